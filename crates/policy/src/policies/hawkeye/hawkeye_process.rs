//! State of one process in HawkEye.

use super::promotion_costs::PromotionCosts;
use super::{Hawkeye, PromotionFloor};
use crate::coverage_averaging::CoverageAveraging;
use crate::file_region::FileRegion;
use crate::machine_page_properties::MachinePageProperties;
use crate::observation::{CoverageSource, ProcessSample, RegionSample};
use crate::page::{HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, PageOrderSet, RegionAddr};
use crate::page_size_choice::fault_size_inputs::{FaultSizeInputs, FaultSizeReason};
use crate::page_size_choice::{most_valuable_order, saved_walk_share};
use crate::process_settings::ProcessSettings;
use crate::promotion::FaultSizes;
use crate::reason::Reason;
use crate::saturating_cast::{ratio_or_zero, u64_from_f64, usize_from_u64};
use crate::translation_overhead::{TranslationOverhead, TranslationOverheadSource};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// A region that larger pages could map, or the first of several regions that one page could map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PromotionCandidate {
    pub(super) region: RegionAddr,
    pub(super) order: PageOrder,
    pub(super) present: u16,
    /// What those pages would spare of the process's overhead, averaged over windows: page walks
    /// per second, or coverage where these are not known.
    pub(super) weight: f64,
    /// Of shared memory: which part of which file.
    pub(super) file: Option<FileRegion>,
    /// What its promotion saves in other processes that map the same memory, in cores.
    pub(super) saved_in_others: f64,
}

#[derive(Debug, Default)]
pub(super) struct HawkeyeProcess {
    /// Ordered by weight divided by promotion cost, the highest last.
    pub(super) waiting: Vec<PromotionCandidate>,
    pub(super) proposed: BTreeMap<RegionAddr, PromotionCandidate>,
    /// Averages of all regions of the process.
    weights: BTreeMap<RegionAddr, f64>,
    /// Whether they are page walks per second, not coverage.
    weights_are_walks: bool,
    /// Total weight at the last observation of all regions that could have larger pages.
    pub(super) total_weight: f64,
    pub(super) overhead: Option<TranslationOverhead>,
    /// Overhead that promotions could still save, after those since the last observation.
    pub(super) left_percent: f64,
    /// Promotions end when less than this is left to save.
    pub(super) floor_percent: f64,
    /// By region, overhead that promotions saved and that its larger pages still save.
    saved_percent: BTreeMap<RegionAddr, f64>,
    /// At the last observation: what promotions could still save and what they have saved.
    percent_without_promotions: f64,
    cpu_cores: f64,
    pub(super) horizon: Duration,
    pub(super) terms: ProcessSettings,
    pub(super) last_turn: u64,
    /// Estimated number of its regions under base pages that were not sampled yet.
    pub(super) unsampled_regions: usize,
    /// Its page faults at the last count.
    faults: Option<(Duration, u64)>,
    /// Page faults per second between the last two counts.
    faults_per_s: Option<f64>,
    /// Its page sizes at first touches, as last decided, and when.
    decided: Option<(Duration, FaultSizes)>,
}

impl HawkeyeProcess {
    pub(super) fn fault_sizes(&self) -> Option<&FaultSizes> {
        self.decided.as_ref().map(|(_, sizes)| sizes)
    }

    /// Overhead that promotions can save, in per cent of its CPU time.
    fn savable_percent(&self) -> f64 {
        self.overhead.map_or(0.0, |it| it.savable_percent())
    }

    /// The saving of a promotion in all processes that map the memory, in cores.
    pub(super) fn cores_saved_by(&self, candidate: &PromotionCandidate) -> f64 {
        self.cores_saved_by_weight(candidate.weight) + candidate.saved_in_others
    }

    /// The saving of a promotion of a candidate with this weight in the process itself, in cores.
    pub(super) fn cores_saved_by_weight(&self, weight: f64) -> f64 {
        let all_saved = self.savable_percent() / 100.0 * self.cpu_cores;
        ratio_or_zero(all_saved * weight, self.total_weight)
    }

    /// Share of its CPU time that a promotion saves, in per cent.
    pub(super) fn percent_saved_by_promotion(&self, candidate: &PromotionCandidate) -> f64 {
        ratio_or_zero(self.savable_percent() * candidate.weight, self.total_weight)
    }

    /// Whether its overhead without any promotion would reach the minimum for promotions.
    pub(super) fn is_worth_promoting(&self) -> bool {
        self.percent_without_promotions >= self.terms.min_overhead_to_promote_percent()
    }

    /// Whether enough is left to save.
    pub(super) fn has_overhead_left(&self) -> bool {
        self.left_percent >= self.floor_percent
    }

    /// Why nothing more of a process is promoted that is worth it.
    pub(super) fn explain_end_of_promotions(&self) -> Option<String> {
        if self.waiting.is_empty() {
            let unsampled = self.unsampled_regions;
            return (unsampled > 0).then(|| {
                format!(
                    "what was sampled is promoted; about {unsampled} regions wait for their sample"
                )
            });
        }
        (!self.has_overhead_left()).then(|| {
            format!(
                "what promotions can still save, {:.1} % of its CPU time, is under the {} % at which they end",
                self.left_percent.max(0.0),
                self.floor_percent
            )
        })
    }

    /// Takes in that a candidate was promoted.
    pub(super) fn record_saving(&mut self, candidate: &PromotionCandidate) {
        let percent = self.percent_saved_by_promotion(candidate);
        *self.saved_percent.entry(candidate.region).or_default() += percent;
    }

    /// Weight of a region that was sampled; 0 also for others.
    fn region_weight_or_zero(&self, region: &RegionSample) -> f64 {
        self.weights.get(&region.region).copied().unwrap_or(0.0)
    }

    /// Weights of regions that were not sampled yet, where the sampled ones are so alike that the
    /// others must be like them.
    ///
    /// A large process takes many windows to sample whole. Where nine of ten sampled regions have a
    /// weight, a region without one gets the least weight that nine of ten have. Only full ones do:
    /// their promotion adds no memory. Where more sampled regions are cold, the others wait for
    /// their sample.
    fn infer_weights_of_unsampled(&self, sample: &ProcessSample) -> BTreeMap<RegionAddr, f64> {
        /// Share of the sampled regions that decides for the others.
        const ALIKE: f64 = 0.9;
        if self.unsampled_regions == 0 {
            return BTreeMap::new();
        }
        let mut weights: Vec<f64> =
            populated_base_page_regions(sample).map(|r| self.region_weight_or_zero(r)).collect();
        weights.sort_by(|a, b| b.total_cmp(a));
        let sampled = weights.len().saturating_sub(self.unsampled_regions);
        let alike = usize_from_u64(u64_from_f64((sampled as f64 * ALIKE).ceil()));
        let least = alike.checked_sub(1).and_then(|last| weights.get(last));
        let Some(&least) = least.filter(|least| **least > 0.0) else { return BTreeMap::new() };
        let full = populated_base_page_regions(sample)
            .filter(|r| r.present == PAGES_PER_REGION && self.region_weight_or_zero(r) == 0.0);
        full.take(self.unsampled_regions).map(|r| (r.region, least)).collect()
    }

    /// What the best waiting candidate would save for each second of its promotion's cost, times
    /// the process's weight. `None` when no candidate is worth its promotion.
    pub(super) fn best_saving_per_cost(&self, costs: &PromotionCosts) -> Option<f64> {
        if !self.is_worth_promoting() || !self.has_overhead_left() {
            return None;
        }
        let heaviest = self.waiting.last()?;
        let cost = costs.expected_cost(heaviest.order).as_secs_f64();
        let saving = self.cores_saved_by(heaviest);
        let pays = saving * self.horizon.as_secs_f64() >= cost;
        pays.then_some(saving / cost * self.terms.weight)
    }
}

pub(super) struct ObservationContext<'a> {
    pub(super) at: Duration,
    pub(super) machine: &'a MachinePageProperties,
    pub(super) average: CoverageAveraging,
    pub(super) floor: PromotionFloor,
    pub(super) costs: &'a PromotionCosts,
}

impl ObservationContext<'_> {
    /// Replaces the state of a process by that after a sample, except what is chosen from it.
    pub(super) fn update_weights_and_overhead(
        &self,
        member: &mut HawkeyeProcess,
        sample: &ProcessSample,
    ) {
        let walks = sample.regions.iter().any(|r| r.walks_per_s > 0);
        let weigh = |r: &RegionSample| {
            if walks {
                f64::from(r.walks_per_s)
            } else {
                r.accessed_tlb_entries(self.machine) as f64
            }
        };
        let newest = self.average.newest_weight();
        let before = std::mem::take(member);
        let same_unit = before.weights_are_walks == walks;
        let before_percent = before.overhead.map(|_| before.left_percent.max(0.0));
        let largest = self.machine.promotable.largest();
        let mut weights = BTreeMap::new();
        for r in sample.regions.iter().filter(|r| Some(r.order) < largest) {
            let new = weigh(r);
            let old = before.weights.get(&r.region).filter(|_| same_unit);
            // A region without walks may be one that was not sampled yet.
            let old = old.filter(|old| !walks || **old > 0.0);
            weights.insert(r.region, old.map_or(new, |old| old + (new - old) * newest));
        }
        // Where pages larger than huge pages exist, promotions also save the cost of huge pages.
        let larger = largest > Some(PageOrder::HUGE);
        let measured = sample.overhead.map(|new| TranslationOverhead {
            huge_percent: if larger { 0.0 } else { new.huge_percent },
            ..new
        });
        let overhead = match (measured, sample.source) {
            (Some(new), _) => Some(average_with_previous_overhead(new, before_percent)),
            // It could have been measured but was not, because the process ran too little.
            (None, CoverageSource::AccessBits) => None,
            (None, CoverageSource::Estimated | CoverageSource::Population) => {
                Some(TranslationOverhead {
                    low_percent: 0.0,
                    high_percent: 100.0,
                    ..TranslationOverhead::new_without_error(
                        Hawkeye::ASSUMED_PERCENT,
                        TranslationOverheadSource::Assumed,
                    )
                })
            }
        };
        let faults_per_s = before.faults.zip(sample.faults).map(|((then, old), new)| {
            let time_s = self.at.saturating_sub(then).as_secs_f64();
            ratio_or_zero(new.saturating_sub(old) as f64, time_s)
        });
        let savable_percent = overhead.map_or(0.0, |o| o.savable_percent());
        // What was split or unmapped since saves nothing any more.
        let larger_pages = sample.regions.iter().filter(|r| r.order > PageOrder::BASE);
        let saved_percent: BTreeMap<_, _> = larger_pages
            .filter_map(|r| Some((r.region, *before.saved_percent.get(&r.region)?)))
            .collect();
        *member = HawkeyeProcess {
            // Regions not seen yet are assumed to be like the rest. So a promotion saves only its
            // share of all.
            total_weight: weights.values().sum::<f64>()
                / if walks { sample.walks_seen } else { 1.0 },
            weights,
            weights_are_walks: walks,
            left_percent: savable_percent,
            floor_percent: self.floor.percent(sample.terms.min_overhead_to_promote_percent()),
            percent_without_promotions: savable_percent + saved_percent.values().sum::<f64>(),
            saved_percent,
            overhead,
            cpu_cores: sample.cpu_cores,
            horizon: Hawkeye::payback_horizon(sample.age),
            terms: sample.terms,
            last_turn: before.last_turn,
            unsampled_regions: count_unsampled_regions(sample),
            faults: sample.faults.map(|faults| (self.at, faults)),
            faults_per_s,
            decided: before.decided,
            ..HawkeyeProcess::default()
        };
    }

    /// The regions of a process that larger pages could map, the best one last.
    pub(super) fn promotion_candidates(
        &self,
        member: &HawkeyeProcess,
        sample: &ProcessSample,
    ) -> Vec<PromotionCandidate> {
        let unsampled = member.infer_weights_of_unsampled(sample);
        let weight = |r: &RegionSample| match member.region_weight_or_zero(r) {
            0.0 => unsampled.get(&r.region).copied().unwrap_or(0.0),
            sampled => sampled,
        };
        let small = sample.regions.iter().filter(|r| !r.is_huge());
        let small = small.filter(|r| r.present > 0 && weight(r) > 0.0);
        let mut waiting: Vec<PromotionCandidate> = small
            .filter_map(|r| {
                let walks = weight(r);
                let order =
                    most_valuable_order(r, member.cores_saved_by_weight(walks), self.machine)?;
                Some(PromotionCandidate {
                    region: r.region,
                    order,
                    present: r.present,
                    weight: walks * saved_walk_share(r, order, self.machine),
                    file: r.file,
                    saved_in_others: 0.0,
                })
            })
            .filter(|candidate| candidate.weight > 0.0)
            .collect();
        waiting.extend(self.larger_page_candidates(&sample.regions, weight));
        let pays =
            |c: &PromotionCandidate| c.weight / self.costs.expected_cost(c.order).as_secs_f64();
        waiting.sort_by(|a, b| {
            let by_weight = pays(a).total_cmp(&pays(b));
            by_weight.then_with(|| b.region.cmp(&a.region))
        });
        waiting
    }

    /// Neighbouring huge pages of one size that could be one page of the next larger size with a
    /// TLB entry.
    fn larger_page_candidates<'s>(
        &'s self,
        regions: &'s [RegionSample],
        weight: impl Fn(&RegionSample) -> f64 + 's,
    ) -> impl Iterator<Item = PromotionCandidate> + 's {
        let sizes = self.machine.promotable.intersection(self.machine.tlb);
        regions.iter().enumerate().filter_map(move |(at, first)| {
            let order = sizes.iter().find(|order| *order > first.order.max(PageOrder::HUGE))?;
            let aligned = first.region.start() % order.bytes() == 0;
            if !first.is_huge() || !aligned {
                return None;
            }
            let all = regions.get(at..at + usize_from_u64(order.regions_per_page()))?;
            let end = first.region.start() + order.bytes() - HUGE_PAGE_BYTES;
            let alike = all.iter().all(|r| r.order == first.order);
            let weight: f64 = all.iter().map(&weight).sum();
            let together = all.last()?.region.start() == end;
            (alike && together && weight > 0.0).then_some(PromotionCandidate {
                region: first.region,
                order,
                present: PAGES_PER_REGION,
                weight,
                file: None,
                saved_in_others: 0.0,
            })
        })
    }

    /// Decides on page sizes at first touches, where the machine allows a choice.
    pub(super) fn update_fault_sizes(&self, member: &mut HawkeyeProcess, sample: &ProcessSample) {
        if self.machine.at_faults.is_empty() {
            return;
        }
        // While the process gets larger pages, all of each page is present, whatever was touched.
        // Their presence then says nothing.
        let larger = member.fault_sizes().is_some_and(|f| !f.orders.is_empty());
        let chosen = if larger { None } else { self.choose_fault_sizes(member, sample) };
        let decided = chosen.map(|chosen| (self.at, chosen));
        let before = member.decided.take().map(|it| self.expire_fault_sizes_decision(it));
        member.decided = decided.or(before);
    }

    /// A decision holds for a while. Then base pages are tried again, which give information.
    fn expire_fault_sizes_decision(
        &self,
        (at, decided): (Duration, FaultSizes),
    ) -> (Duration, FaultSizes) {
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
        let orders = PageOrderSet::NONE;
        (self.at, FaultSizes { orders, reason })
    }

    fn choose_fault_sizes(
        &self,
        member: &HawkeyeProcess,
        sample: &ProcessSample,
    ) -> Option<FaultSizes> {
        let faults_per_s = member.faults_per_s?;
        let waiting = member.waiting.iter();
        let become_huge: HashSet<RegionAddr> =
            waiting.filter(|c| c.order >= PageOrder::HUGE).map(|c| c.region).collect();
        let small = sample.regions.iter().filter(|r| !r.is_huge());
        let regions: Vec<_> = small
            .map(|r| {
                let walks = member.weights.get(&r.region).copied();
                let left = walks.filter(|_| !become_huge.contains(&r.region));
                (*r, member.cores_saved_by_weight(left.unwrap_or(0.0)))
            })
            .collect();
        let evidence =
            FaultSizeInputs { regions: &regions, outside: &sample.outside, faults_per_s };
        evidence.choose_fault_size(self.machine, Hawkeye::HORIZON)
    }
}

/// Regions under base pages that have memory.
fn populated_base_page_regions(sample: &ProcessSample) -> impl Iterator<Item = &RegionSample> {
    sample.regions.iter().filter(|r| !r.is_huge() && r.present > 0)
}

/// Estimated number of regions under base pages that were not sampled yet.
fn count_unsampled_regions(sample: &ProcessSample) -> usize {
    let base = populated_base_page_regions(sample).count() as f64;
    usize_from_u64(u64_from_f64(base * (1.0 - sample.walks_seen)))
}

/// The new figure. Its savable part is averaged with what was left of the previous one. One window
/// is off by a tenth or two, and equal programs should be treated alike.
fn average_with_previous_overhead(
    new: TranslationOverhead,
    before_percent: Option<f64>,
) -> TranslationOverhead {
    /// More than for a region's walks: the effect of a wave of promotions shows in the next window.
    const NEWEST: f64 = 0.7;
    let savable = new.savable_percent();
    let before = before_percent.unwrap_or(savable);
    let percent = before + (savable - before) * NEWEST + new.huge_percent;
    TranslationOverhead {
        percent,
        low_percent: new.low_percent.min(percent),
        high_percent: new.high_percent.max(percent),
        ..new
    }
}
