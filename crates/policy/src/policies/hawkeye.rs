//! HawkEye: by what each promotion saves. The default.

mod costs;
mod member;

use crate::average::CoverageAverage;
use crate::observation::{Observation, ProcessId};
use crate::overhead::Overhead;
use crate::page::{PageOrder, RegionAddr};
use crate::plan::{FaultSizes, Promotion};
use crate::policies::hawkeye_pmu::below_limit;
use crate::policies::members::Members;
use crate::policy::{ExplainPolicy, Needs, Policy, Waiting};
use crate::reason::Reason;
use crate::whole::u32_of;
use costs::Costs;
use member::{Candidate, Member, Seen};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// What HawkEye can be told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HawkeyeSettings {
    /// How a region's page walks are averaged over windows.
    pub average: CoverageAverage,
    /// Within which time at most a promotion must have saved the CPU time that it costs, and how far ahead it is reckoned what memory
    /// should be given at first touches (over 0).
    pub horizon: Duration,
}

impl HawkeyeSettings {
    /// A promotion in a process that has just begun has so long to pay.
    const YOUNG: Duration = Duration::from_secs(60);

    /// Within which time a promotion must have paid in a process of this age: half as long as that, for of those that have run for so long
    /// two of three go on for half as long again (the share that lasts `k` times as long is `1/k`: M. Harchol-Balter and A. Downey,
    /// SIGMETRICS 1996, of CPU time; taken over to time).
    fn horizon_at(&self, age: Duration) -> Duration {
        (age / 2).max(Self::YOUNG).min(self.horizon)
    }
}

impl Default for HawkeyeSettings {
    /// Five minutes: those it is for, servers and long computations, go on for longer.
    fn default() -> Self {
        Self {
            average: CoverageAverage::default(),
            horizon: Duration::from_secs(300),
        }
    }
}

/// What the promotion is expected to save, against what it costs.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "rule", rename = "saving")]
struct SavingReason {
    /// The overhead of the process.
    overhead: Overhead,
    /// The size of the pages that are to map the region.
    order: PageOrder,
    /// Page walks of the region that those spare, per second of CPU time.
    walks_per_s: u32,
    /// CPU time that the promotion is expected to save, in microseconds a second.
    saved_us_per_s: f64,
    /// What a promotion costs, as last seen, in microseconds.
    cost_us: f64,
    /// After how long it has paid for itself, in seconds.
    pays_after_s: f64,
}

impl fmt::Display for SavingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            overhead,
            order,
            walks_per_s,
            saved_us_per_s,
            cost_us,
            pays_after_s,
        } = self;
        write!(
            f,
            "overhead {overhead}, {walks_per_s} page walks/s here: {order} saves {saved_us_per_s:.0} us/s, costs {cost_us:.0} us, pays after {pays_after_s:.1} s"
        )
    }
}

/// Promotes the region whose promotion saves most, as long as it pays for itself.
///
/// - What is saved: the process's overhead, by counters or by run-rate, times the CPU it uses, in
///   the share that the region has in its page walks. Where these can't be seen by region, coverage
///   stands in.
/// - What it costs: what the last promotions took, on average. A region is left alone when it
///   would not have saved that within half as long as the process has been there: at least a minute, at most the horizon.
/// - What a promotion saves is taken off the process's overhead at once, until the next
///   observation tells. Under [`MIN_OVERHEAD_PERCENT`](super::HawkeyePmu::MIN_OVERHEAD_PERCENT), or under what its rule says, the
///   process is left alone.
/// - Where a machine has several page sizes, each region is given the one that is worth most, by the TLB entries that it
///   spares, its memory and its promotion ([`sizes`](crate::sizes)); huge pages side by side become one of the next
///   larger size by the same rule, and memory that is touched for the first time is given what suits what was seen of it.
/// - Among processes whose best regions save about the same (within a factor of [`Self::SIMILAR`]) the
///   one with the highest overhead left is next, so that equal programs gain alike.
/// - On machines where accesses are only estimated there is no overhead to go by. There a process
///   counts as [`Self::ASSUMED_PERCENT`]: HawkEye-G, more or less.
#[derive(Debug)]
pub struct Hawkeye {
    settings: HawkeyeSettings,
    members: Members<Member>,
    costs: Costs,
    turns: u64,
}

impl Hawkeye {
    /// Its name on the command line.
    pub const NAME: &'static str = "hawkeye";

    /// Savings are about the same when they are no further apart than by this factor.
    pub const SIMILAR: f64 = 2.0;

    /// Overhead that is assumed where it can't be seen, in per cent: a middling one.
    pub const ASSUMED_PERCENT: f64 = 5.0;

    /// Sizes at first touches hold for so long without anything that tells whether they still suit: what is mapped by them does
    /// not say how much of it is used.
    pub const SIZES_HOLD: Duration = Duration::from_secs(300);

    /// Knows no process yet.
    pub fn new(settings: HawkeyeSettings) -> Self {
        Self {
            settings,
            members: Members::default(),
            costs: Costs::default(),
            turns: 0,
        }
    }

    fn reason(&self, member: &Member, candidate: &Candidate) -> Option<SavingReason> {
        let saving = member.saving(candidate);
        let cost_us = self.costs.of(candidate.order).as_secs_f64() * 1e6;
        Some(SavingReason {
            overhead: member.overhead?,
            order: candidate.order,
            walks_per_s: u32_of(candidate.weight),
            saved_us_per_s: saving * 1e6,
            cost_us,
            pays_after_s: cost_us / (saving * 1e6).max(f64::MIN_POSITIVE),
        })
    }
}

impl Policy for Hawkeye {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn needs(&self) -> Needs {
        Needs::OVERHEAD.with(Needs::WALKS)
    }

    fn observe(&mut self, observation: &Observation) {
        let seen = Seen {
            at: observation.at,
            machine: &observation.machine,
            settings: &self.settings,
            costs: &self.costs,
        };
        self.members
            .observe(observation, |sample, before| seen.sampled(sample, before));
    }

    fn next_promotion(&mut self, _now: Duration) -> Option<Promotion> {
        let costs = &self.costs;
        let best = |member: &Member| member.best(costs);
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
        member.left_percent -= member.saved_percent(&candidate);
        member.proposed.insert(candidate.region, candidate);
        Some(Promotion {
            process,
            region: candidate.region,
            order: candidate.order,
            expected_present: candidate.present,
            saved_us_per_s: Some(reason.saved_us_per_s),
            reason: Reason::new(reason),
        })
    }

    fn settle(&mut self, process: ProcessId, region: RegionAddr, took: Option<Duration>) {
        let mut member = self.members.get_mut(process);
        let proposed = member
            .as_mut()
            .and_then(|member| member.proposed.remove(&region));
        if let Some(took) = took {
            let order = proposed.map_or(PageOrder::HUGE, |candidate| candidate.order);
            self.costs.note(order, took);
        } else if let (Some(member), Some(candidate)) = (member, proposed) {
            // Nothing was saved.
            member.left_percent += member.saved_percent(&candidate);
        }
    }

    fn fault_sizes(&self, process: ProcessId) -> Option<FaultSizes> {
        self.members.get(process)?.fault_sizes().cloned()
    }
}

impl ExplainPolicy for Hawkeye {
    fn explain_region(&self, process: ProcessId, region: RegionAddr) -> Option<Waiting> {
        let member = self.members.get(process)?;
        let mut best_first = member.waiting.iter().rev().enumerate();
        let (ahead, candidate) = best_first.find(|(_, c)| c.region == region)?;
        let cost_s = self.costs.of(candidate.order).as_secs_f64();
        let pays = member.saving(candidate) * member.horizon.as_secs_f64() >= cost_s;
        Some(Waiting {
            reason: Reason::new(self.reason(member, candidate)?),
            ahead: ahead as u64,
            passed_over: (!pays).then(|| {
                let most_s = member.horizon.as_secs();
                format!("its promotion would not pay for itself within {most_s} s")
            }),
        })
    }

    fn explain_process(&self, process: ProcessId) -> Option<String> {
        let member = self.members.get(process)?;
        let savable = member.overhead.map(|overhead| Overhead {
            percent: overhead.savable_percent(),
            ..overhead
        });
        below_limit(member.overhead, member.terms).or_else(|| {
            let overhead = member.overhead?;
            below_limit(savable, member.terms)?;
            Some(format!(
                "{:.1} % of its overhead of {overhead} comes from memory that is huge already: too little is left to make promotion worth while",
                overhead.huge_percent
            ))
        })
    }
}

#[cfg(test)]
mod tests;
