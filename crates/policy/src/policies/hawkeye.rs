//! HawkEye: by what each promotion saves. The default.

use crate::average::CoverageAverage;
use crate::observation::{CoverageSource, Observation, ProcessId, ProcessSample, RegionSample};
use crate::overhead::{Overhead, OverheadSource};
use crate::page::{PageOrder, RegionAddr};
use crate::plan::{Promotion, Reason};
use crate::policies::hawkeye_pmu::{HawkeyePmu, below_limit};
use crate::policies::members::Members;
use crate::policy::{Needs, Policy};
use crate::terms::Terms;
use std::collections::BTreeMap;
use std::time::Duration;

/// What HawkEye can be told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HawkeyeSettings {
    /// How a region's page walks are averaged over windows.
    pub average: CoverageAverage,
    /// Within which time a promotion must have saved the CPU time that it costs (over 0).
    pub horizon: Duration,
}

impl Default for HawkeyeSettings {
    /// A minute: programs that end sooner are hardly sampled.
    fn default() -> Self {
        Self {
            average: CoverageAverage::default(),
            horizon: Duration::from_secs(60),
        }
    }
}

/// A region that is not huge.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    region: RegionAddr,
    present: u16,
    /// Its part in the process's overhead: page walks per second, or coverage where these are not
    /// known; averaged over windows.
    weight: f64,
}

/// One process.
#[derive(Debug)]
struct Member {
    /// By weight, the heaviest last.
    waiting: Vec<Candidate>,
    /// Averages of all its regions.
    weights: BTreeMap<RegionAddr, f64>,
    /// Weight of all base pages' regions together, at the last observation.
    total_weight: f64,
    overhead: Option<Overhead>,
    /// Of its overhead, what promotions since have left, in per cent.
    left_percent: f64,
    cpu_cores: f64,
    terms: Terms,
    last_turn: u64,
}

impl Member {
    /// CPU time that promoting this saves, in seconds a second.
    fn saving(&self, candidate: &Candidate) -> f64 {
        let percent = self.overhead.map_or(0.0, |overhead| overhead.percent);
        if self.total_weight > 0.0 {
            percent / 100.0 * self.cpu_cores * candidate.weight / self.total_weight
        } else {
            0.0
        }
    }

    /// What the heaviest that waits would save, by the process's weight. `None` when nothing of it is
    /// worth a promotion of this cost.
    fn best(&self, cost: Duration, horizon: Duration) -> Option<f64> {
        let least = self
            .terms
            .min_gain_percent
            .unwrap_or(HawkeyePmu::MIN_OVERHEAD_PERCENT);
        if self.left_percent.is_nan() || self.left_percent < least {
            return None;
        }
        let saving = self.saving(self.waiting.last()?);
        (saving * horizon.as_secs_f64() >= cost.as_secs_f64()).then_some(saving * self.terms.weight)
    }
}

/// Promotes the region whose promotion saves most, as long as it pays for itself.
///
/// - What is saved: the process's overhead, by counters or by run-rate, times the CPU it uses, in
///   the share that the region has in its page walks. Where these can't be seen by region, coverage
///   stands in.
/// - What it costs: what the last promotions took, on average. A region is left alone when it
///   would not have saved that within the horizon.
/// - What a promotion saves is taken off the process's overhead at once, until the next
///   observation tells. Under [`HawkeyePmu::MIN_OVERHEAD_PERCENT`], or under what its rule says, the
///   process is left alone.
/// - Among processes whose best regions save about the same (within a factor of [`Self::SIMILAR`]) the
///   one with the highest overhead left is next, so that equal programs gain alike.
/// - On machines where accesses are only estimated there is no overhead to go by. There a process
///   counts as [`Self::ASSUMED_PERCENT`]: HawkEye-G, more or less.
#[derive(Debug)]
pub struct Hawkeye {
    settings: HawkeyeSettings,
    members: Members<Member>,
    /// What a promotion takes, averaged.
    cost: Duration,
    turns: u64,
}

impl Hawkeye {
    /// Its name on the command line.
    pub const NAME: &'static str = "hawkeye";

    /// Savings are about the same when they are no further apart than by this factor.
    pub const SIMILAR: f64 = 2.0;

    /// Overhead that is assumed where it can't be seen, in per cent: a middling one.
    pub const ASSUMED_PERCENT: f64 = 5.0;

    /// What a promotion is taken to cost before one was seen (`kernel-facts.md`: 370-440 us).
    const FIRST_COST: Duration = Duration::from_micros(400);
    /// Weight of the newest promotion in the average cost.
    const NEWEST_COST: f64 = 0.1;

    /// Knows no process yet.
    pub fn new(settings: HawkeyeSettings) -> Self {
        Self {
            settings,
            members: Members::default(),
            cost: Self::FIRST_COST,
            turns: 0,
        }
    }

    fn reason(&self, member: &Member, candidate: &Candidate) -> Option<Reason> {
        let saving = member.saving(candidate);
        let cost_us = self.cost.as_secs_f64() * 1e6;
        Some(Reason::Saving {
            overhead: member.overhead?,
            walks_per_s: candidate.weight as u32,
            saved_us_per_s: saving * 1e6,
            cost_us,
            pays_after_s: cost_us / (saving * 1e6).max(f64::MIN_POSITIVE),
        })
    }
}

/// The member after one more sample.
fn sampled(settings: &HawkeyeSettings, sample: &ProcessSample, before: Option<Member>) -> Member {
    let seen = sample.regions.iter().any(|r| r.walks_per_s > 0);
    let weigh = |r: &RegionSample| {
        if seen {
            f64::from(r.walks_per_s)
        } else {
            f64::from(r.accessed)
        }
    };
    let newest = settings.average.weight_new();
    let (known, before_percent, last_turn) = before.map_or_else(
        || (BTreeMap::new(), None, 0),
        |m| {
            let left = m.overhead.map(|_| m.left_percent.max(0.0));
            (m.weights, left, m.last_turn)
        },
    );
    let mut weights = BTreeMap::new();
    let mut waiting = Vec::new();
    for r in sample.regions.iter().filter(|r| !r.is_huge()) {
        let new = weigh(r);
        let weight = known
            .get(&r.region)
            .map_or(new, |old| old + (new - old) * newest);
        weights.insert(r.region, weight);
        if weight > 0.0 && r.present > 0 {
            waiting.push(Candidate {
                region: r.region,
                present: r.present,
                weight,
            });
        }
    }
    waiting.sort_by(|a, b| {
        let by_weight = a.weight.total_cmp(&b.weight);
        by_weight.then_with(|| b.region.cmp(&a.region))
    });
    let overhead = match (sample.overhead, sample.source) {
        (Some(new), _) => Some(averaged(new, before_percent)),
        // It could have been seen, and was not: the process hardly ran.
        (None, CoverageSource::AccessBits) => None,
        (None, CoverageSource::Estimated | CoverageSource::Population) => Some(Overhead {
            low_percent: 0.0,
            high_percent: 100.0,
            ..Overhead::exact(Hawkeye::ASSUMED_PERCENT, OverheadSource::Assumed)
        }),
    };
    Member {
        total_weight: weights.values().sum(),
        waiting,
        weights,
        left_percent: overhead.map_or(0.0, |o| o.percent),
        overhead,
        cpu_cores: sample.cpu_cores,
        terms: sample.terms,
        last_turn,
    }
}

/// The new figure, averaged with what promotions had left of the one before: one window is off by a tenth or two, and
/// equal programs are to be served alike.
fn averaged(new: Overhead, before_percent: Option<f64>) -> Overhead {
    /// More than of a region's walks: what is left after a wave of promotions shows in the next window.
    const NEWEST: f64 = 0.7;
    let before = before_percent.unwrap_or(new.percent);
    let percent = before + (new.percent - before) * NEWEST;
    Overhead {
        percent,
        low_percent: new.low_percent.min(percent),
        high_percent: new.high_percent.max(percent),
        ..new
    }
}

impl Policy for Hawkeye {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn needs(&self) -> Needs {
        Needs::Walks
    }

    fn observe(&mut self, observation: &Observation) {
        let settings = self.settings;
        self.members.observe(observation, |sample, before| {
            sampled(&settings, sample, before)
        });
    }

    fn next_promotion(&mut self, _now: Duration) -> Option<Promotion> {
        let (cost, horizon) = (self.cost, self.settings.horizon);
        let best = |member: &Member| member.best(cost, horizon);
        let most = self.members.iter().filter_map(best).reduce(f64::max)?;
        let process = self
            .members
            .iter_mut()
            .filter(|(_, m)| best(m).is_some_and(|saving| saving * Self::SIMILAR >= most))
            .reduce(|first, next| {
                let left = |m: &Member| m.left_percent * m.terms.weight;
                let order = left(next.1)
                    .total_cmp(&left(first.1))
                    .then_with(|| first.1.last_turn.cmp(&next.1.last_turn));
                // The first of equals stays: first come first.
                if order.is_gt() { next } else { first }
            })?
            .0;
        let member = self.members.get(process)?;
        let candidate = *member.waiting.last()?;
        let reason = self.reason(member, &candidate)?;
        self.turns += 1;
        let turn = self.turns;
        let member = self.members.get_mut(process)?;
        member.waiting.pop();
        member.last_turn = turn;
        let percent = member.overhead.map_or(0.0, |overhead| overhead.percent);
        member.left_percent -= percent * candidate.weight / member.total_weight;
        Some(Promotion {
            process,
            region: candidate.region,
            order: PageOrder::HUGE,
            expected_present: candidate.present,
            reason,
        })
    }

    fn settle(&mut self, process: ProcessId, region: RegionAddr, took: Option<Duration>) {
        match took {
            Some(took) => {
                self.cost =
                    self.cost.mul_f64(1.0 - Self::NEWEST_COST) + took.mul_f64(Self::NEWEST_COST);
            }
            None => {
                // Nothing was saved.
                if let Some(member) = self.members.get_mut(process) {
                    let weight = member.weights.get(&region).copied().unwrap_or(0.0);
                    let percent = member.overhead.map_or(0.0, |overhead| overhead.percent);
                    if member.total_weight > 0.0 {
                        member.left_percent += percent * weight / member.total_weight;
                    }
                }
            }
        }
    }

    fn waiting(&self, process: ProcessId, region: RegionAddr) -> Option<Reason> {
        let member = self.members.get(process)?;
        let candidate = member.waiting.iter().find(|c| c.region == region)?;
        self.reason(member, candidate)
    }

    fn passes_over(&self, process: ProcessId) -> Option<String> {
        let member = self.members.get(process)?;
        below_limit(member.overhead, member.terms)
    }
}

#[cfg(test)]
mod tests;
