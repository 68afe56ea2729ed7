//! What HawkEye knows of one process.

use super::costs::Costs;
use super::{Hawkeye, HawkeyeSettings};
use crate::machine_shape::MachineShape;
use crate::observation::{CoverageSource, ProcessSample, RegionSample};
use crate::overhead::{Overhead, OverheadSource};
use crate::page::{HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, PageOrders, RegionAddr};
use crate::plan::FaultSizes;
use crate::reason::Reason;
use crate::sizes::faults::{Evidence, FaultSizeReason};
use crate::sizes::region::{best_order, saved_share};
use crate::terms::Terms;
use crate::whole::usize_of;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// A region that larger pages could map, or the first of several that one page could.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Candidate {
    pub(super) region: RegionAddr,
    /// The size of those pages.
    pub(super) order: PageOrder,
    pub(super) present: u16,
    /// What they would spare of the process's overhead: page walks per second, or coverage where these are not known;
    /// averaged over windows.
    pub(super) weight: f64,
}

/// One process.
#[derive(Debug)]
pub(super) struct Member {
    /// By weight for what a promotion costs, the heaviest last.
    pub(super) waiting: Vec<Candidate>,
    /// Those that were proposed since the last observation.
    pub(super) proposed: BTreeMap<RegionAddr, Candidate>,
    /// Averages of all its regions.
    weights: BTreeMap<RegionAddr, f64>,
    /// Weight of all regions that could have larger pages together, at the last observation.
    pub(super) total_weight: f64,
    pub(super) overhead: Option<Overhead>,
    /// Of what promotions could save of its overhead, what those since have left, in per cent.
    pub(super) left_percent: f64,
    cpu_cores: f64,
    /// Within which time a promotion must have paid.
    pub(super) horizon: Duration,
    pub(super) terms: Terms,
    pub(super) last_turn: u64,
    /// Its page faults when they were last counted.
    faults: Option<(Duration, u64)>,
    /// What its memory should be given at first touches, as last decided, and when.
    decided: Option<(Duration, FaultSizes)>,
}

impl Member {
    /// What its memory should be given at first touches.
    pub(super) fn fault_sizes(&self) -> Option<&FaultSizes> {
        self.decided.as_ref().map(|(_, sizes)| sizes)
    }

    /// What promotions can save of its overhead, in per cent of its CPU time.
    fn savable_percent(&self) -> f64 {
        self.overhead.map_or(0.0, |it| it.savable_percent())
    }

    /// The same in cores.
    fn savable_cores(&self) -> f64 {
        self.savable_percent() / 100.0 * self.cpu_cores
    }

    /// CPU time that promoting this saves, in seconds a second.
    pub(super) fn saving(&self, candidate: &Candidate) -> f64 {
        self.worth(candidate.weight)
    }

    /// What so much of the total weight is worth, in cores.
    fn worth(&self, weight: f64) -> f64 {
        if self.total_weight > 0.0 {
            self.savable_cores() * weight / self.total_weight
        } else {
            0.0
        }
    }

    /// Share of its CPU time that a promotion saves, in per cent.
    pub(super) fn saved_percent(&self, candidate: &Candidate) -> f64 {
        if self.total_weight > 0.0 {
            self.savable_percent() * candidate.weight / self.total_weight
        } else {
            0.0
        }
    }

    /// What the heaviest that waits would save for each second that its promotion costs, by the process's weight. `None` when
    /// nothing of it is worth its promotion.
    pub(super) fn best(&self, costs: &Costs) -> Option<f64> {
        let least = self.terms.least_gain_percent();
        if self.left_percent.is_nan() || self.left_percent < least {
            return None;
        }
        let heaviest = self.waiting.last()?;
        let cost = costs.of(heaviest.order).as_secs_f64();
        let saving = self.saving(heaviest);
        let pays = saving * self.horizon.as_secs_f64() >= cost;
        pays.then_some(saving / cost * self.terms.weight)
    }
}

/// What all processes of an observation are seen by.
pub(super) struct Seen<'a> {
    pub(super) at: Duration,
    pub(super) machine: &'a MachineShape,
    pub(super) settings: &'a HawkeyeSettings,
    pub(super) costs: &'a Costs,
}

impl Seen<'_> {
    /// The member after one more sample.
    pub(super) fn sampled(&self, sample: &ProcessSample, before: Option<Member>) -> Member {
        let walks = sample.regions.iter().any(|r| r.walks_per_s > 0);
        let weigh = |r: &RegionSample| {
            if walks {
                f64::from(r.walks_per_s)
            } else {
                f64::from(r.accessed)
            }
        };
        let newest = self.settings.average.weight_new();
        let (known, before_percent, last_turn, faults, decided) =
            before.map_or_else(Default::default, |m| {
                let left = m.overhead.map(|_| m.left_percent.max(0.0));
                (m.weights, left, m.last_turn, m.faults, m.decided)
            });
        let largest = self.machine.promotable.largest();
        let mut weights = BTreeMap::new();
        for r in sample.regions.iter().filter(|r| Some(r.order) < largest) {
            let new = weigh(r);
            // A region without walks may be one that was not looked at yet.
            let old = known.get(&r.region).filter(|old| !walks || **old > 0.0);
            let weight = old.map_or(new, |old| old + (new - old) * newest);
            weights.insert(r.region, weight);
        }
        // Where there are larger pages than huge ones, promotions save what these cost, too.
        let larger = largest > Some(PageOrder::HUGE);
        let measured = sample.overhead.map(|new| Overhead {
            huge_percent: if larger { 0.0 } else { new.huge_percent },
            ..new
        });
        let overhead = match (measured, sample.source) {
            (Some(new), _) => Some(averaged(new, before_percent)),
            // It could have been seen, and was not: the process ran too little.
            (None, CoverageSource::AccessBits) => None,
            (None, CoverageSource::Estimated | CoverageSource::Population) => Some(Overhead {
                low_percent: 0.0,
                high_percent: 100.0,
                ..Overhead::exact(Hawkeye::ASSUMED_PERCENT, OverheadSource::Assumed)
            }),
        };
        let mut member = Member {
            // What was not seen yet is taken to be like the rest: a promotion saves only its share of all.
            total_weight: weights.values().sum::<f64>()
                / if walks { sample.walks_seen } else { 1.0 },
            waiting: Vec::new(),
            proposed: BTreeMap::new(),
            weights,
            left_percent: overhead.map_or(0.0, |o| o.savable_percent()),
            overhead,
            cpu_cores: sample.cpu_cores,
            horizon: self.settings.horizon_at(sample.age),
            terms: sample.terms,
            last_turn,
            faults: sample.faults.map(|faults| (self.at, faults)),
            decided,
        };
        member.waiting = self.candidates(&member, sample);
        if !self.machine.at_faults.is_empty() {
            // While it is given larger pages, all of each is there, whatever was touched of it: that tells nothing.
            let larger = member.fault_sizes().is_some_and(|f| !f.orders.is_empty());
            let chosen = if larger {
                None
            } else {
                self.choose_fault_sizes(&member, sample, faults)
            };
            member.decided = match chosen {
                Some(chosen) => Some((self.at, chosen)),
                None => member.decided.take().map(|decided| self.kept(decided)),
            };
        }
        member
    }

    fn candidates(&self, member: &Member, sample: &ProcessSample) -> Vec<Candidate> {
        let weight = |r: &RegionSample| member.weights.get(&r.region).copied().unwrap_or(0.0);
        let small = sample.regions.iter().filter(|r| !r.is_huge());
        let small = small.filter(|r| r.present > 0 && weight(r) > 0.0);
        let mut waiting: Vec<Candidate> = small
            .filter_map(|r| {
                let walks = weight(r);
                let order = best_order(r, member.worth(walks), self.machine)?;
                Some(Candidate {
                    region: r.region,
                    order,
                    present: r.present,
                    weight: walks * saved_share(r, order, self.machine),
                })
            })
            .filter(|candidate| candidate.weight > 0.0)
            .collect();
        waiting.extend(self.groups(&sample.regions, weight));
        let pays = |c: &Candidate| c.weight / self.costs.of(c.order).as_secs_f64();
        waiting.sort_by(|a, b| {
            let by_weight = pays(a).total_cmp(&pays(b));
            by_weight.then_with(|| b.region.cmp(&a.region))
        });
        waiting
    }

    /// Neighbours that are huge, all of one size, and could be one page of the next larger size that a TLB entry has.
    fn groups<'s>(
        &'s self,
        regions: &'s [RegionSample],
        weight: impl Fn(&RegionSample) -> f64 + 's,
    ) -> impl Iterator<Item = Candidate> + 's {
        let sizes = self.machine.promotable.and(self.machine.tlb);
        regions.iter().enumerate().filter_map(move |(at, first)| {
            let order = sizes
                .iter()
                .find(|order| *order > first.order.max(PageOrder::HUGE))?;
            let aligned = first.region.start() % order.bytes() == 0;
            if !first.is_huge() || !aligned {
                return None;
            }
            let all = regions.get(at..at + usize_of(order.regions()))?;
            let end = first.region.start() + order.bytes() - HUGE_PAGE_BYTES;
            let alike = all.iter().all(|r| r.order == first.order);
            let weight: f64 = all.iter().map(&weight).sum();
            let together = all.last()?.region.start() == end;
            (alike && together && weight > 0.0).then_some(Candidate {
                region: first.region,
                order,
                present: PAGES_PER_REGION,
                weight,
            })
        })
    }

    /// What was decided holds for a while without anything new that tells; then base pages are tried again, which do.
    fn kept(&self, (at, decided): (Duration, FaultSizes)) -> (Duration, FaultSizes) {
        let over = self.at.saturating_sub(at) >= Hawkeye::SIZES_HOLD;
        if !over || decided.orders.is_empty() {
            return (at, decided);
        }
        let reason = Reason::new(FaultSizeReason {
            order: PageOrder::BASE,
            faults_percent: 0.0,
            saved_us_per_s: 0.0,
            added_bytes: 0,
        });
        let orders = PageOrders::NONE;
        (self.at, FaultSizes { orders, reason })
    }

    fn choose_fault_sizes(
        &self,
        member: &Member,
        sample: &ProcessSample,
        before: Option<(Duration, u64)>,
    ) -> Option<FaultSizes> {
        let (then, faults_then) = before?;
        let faults = sample.faults?.saturating_sub(faults_then);
        let time_s = self.at.saturating_sub(then).as_secs_f64();
        let waiting = member.waiting.iter();
        let become_huge: HashSet<RegionAddr> = waiting
            .filter(|c| c.order >= PageOrder::HUGE)
            .map(|c| c.region)
            .collect();
        let small = sample.regions.iter().filter(|r| !r.is_huge());
        let regions: Vec<_> = small
            .map(|r| {
                let walks = member.weights.get(&r.region).copied();
                let left = walks.filter(|_| !become_huge.contains(&r.region));
                (*r, member.worth(left.unwrap_or(0.0)))
            })
            .collect();
        let evidence = Evidence {
            regions: &regions,
            outside: &sample.outside,
            faults_per_s: if time_s > 0.0 {
                faults as f64 / time_s
            } else {
                0.0
            },
        };
        evidence.choose(self.machine, self.settings.horizon)
    }
}

/// The new figure. What promotions can save of it is averaged with what they had left of that before: one window is off by
/// a tenth or two, and equal programs are to be served alike.
fn averaged(new: Overhead, before_percent: Option<f64>) -> Overhead {
    /// More than of a region's walks: what is left after a wave of promotions shows in the next window.
    const NEWEST: f64 = 0.7;
    let savable = new.savable_percent();
    let before = before_percent.unwrap_or(savable);
    let percent = before + (savable - before) * NEWEST + new.huge_percent;
    Overhead {
        percent,
        low_percent: new.low_percent.min(percent),
        high_percent: new.high_percent.max(percent),
        ..new
    }
}
