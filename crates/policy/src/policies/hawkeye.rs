//! HawkEye: promotes by what each promotion saves. The default.
//!
//! ```text
//!  Observation --> hawkeye_process (one a process): PromotionCandidates, the best last
//!                    |                                 ^ expected_cost
//!                    v                                 |
//!            pop_next_promotion                 promotion_costs
//!                    |                                 ^
//!                    `-- Promotion --> the manager ----' on_promotion_result
//! ```
//!
//! Read [`Hawkeye`] first, which states the rules, then `pop_next_promotion`, which chooses the
//! process. `hawkeye_process::process_state_after_sample` weighs the regions of a process.

mod file_mappers;
mod hawkeye_process;
mod promotion_costs;

use crate::bloat_recovery::RecoveryOrder;
use crate::coverage_averaging::CoverageAveraging;
use crate::file_region::FileRegion;
use crate::huge_page_reserve_planner::HugePageReadiness;
use crate::observation::{Observation, ProcessId};
use crate::page::{PageOrder, RegionAddr};
use crate::policies::access_map_policy::explain_low_overhead;
use crate::policy::{ExplainPolicy, Policy, PolicyProperties, WaitingRegion};
use crate::process_states::ProcessStates;
use crate::promotion::{FaultSizes, MeasuredPromotionCost, Promotion};
use crate::reason::Reason;
use crate::sample_kinds::SampleKinds;
use crate::saturating_cast::u32_from_f64;
use crate::translation_overhead::TranslationOverhead;
use hawkeye_process::{HawkeyeProcess, ObservationContext, PromotionCandidate};
use promotion_costs::PromotionCosts;
use serde::Serialize;
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

/// The expected saving of the promotion against its cost.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "rule", rename = "saving")]
struct SavingReason {
    overhead: TranslationOverhead,
    order: PageOrder,
    /// Page walks of the region that they spare, per second of CPU time.
    walks_per_s: u32,
    /// CPU time that the promotion is expected to save, in microseconds per second.
    saved_us_per_s: f64,
    /// Recent cost of a promotion, in microseconds.
    cost_us: f64,
    /// Time until it has paid for itself, in seconds.
    pays_after_s: f64,
}

impl fmt::Display for SavingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { overhead, order, walks_per_s, saved_us_per_s, cost_us, pays_after_s } = self;
        write!(
            f,
            "overhead {overhead}, {walks_per_s} page walks/s here: {order} saves {saved_us_per_s:.0} us/s, costs {cost_us:.0} us, pays after {pays_after_s:.1} s"
        )
    }
}

/// What must be left to save in a process for its promotions to go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PromotionFloor {
    /// [`Hawkeye::LEAST_LEFT_PERCENT`], or the minimum for promotions where that is lower. The
    /// minimum decides only whether a process is promoted at all.
    #[default]
    Low,
    /// The minimum for promotions itself (paper, section 4).
    Minimum,
}

impl PromotionFloor {
    /// The floor of a process with this minimum for promotions, in per cent.
    fn percent(self, minimum_percent: f64) -> f64 {
        match self {
            Self::Low => Hawkeye::LEAST_LEFT_PERCENT.min(minimum_percent),
            Self::Minimum => minimum_percent,
        }
    }
}

/// Promotes the region with the largest saving, as long as the promotion pays for itself.
///
/// - Saving: the process's overhead (by counters or walk-rate sampling), times its CPU use, times
///   the region's share of its page walks. Where walks cannot be seen by region, coverage replaces
///   them.
/// - Cost: the average CPU time of the last promotions. A region is left alone unless it saves that
///   cost in time. The limit is half of the process's age, but at least a minute and at most
///   [`Self::HORIZON`].
/// - What a promotion saves is subtracted from the process's overhead at once, until the next
///   observation.
/// - A process is left alone if its overhead without any promotion would be under
///   [`MIN_OVERHEAD_PERCENT`](crate::ProcessSettings::MIN_OVERHEAD_PERCENT), or under its rule's
///   minimum. In others, promotion goes on down to the [`PromotionFloor`].
/// - Where a machine has several page sizes, each region gets the size that is worth most
///   ([`page_size_choice`](crate::page_size_choice)). TLB entries spared, its memory and its
///   promotion decide. By the same rule, huge pages side by side become one of the next larger
///   size. Memory touched for the first time gets the sizes that suit the observed accesses.
/// - Where the sampled regions of a process are alike, those not sampled yet count as the least of
///   nine in ten.
/// - Some processes have best regions with similar savings (within a factor of [`Self::SIMILAR`]).
///   Of these the one with the highest remaining overhead is next, so that equal programs gain
///   alike.
/// - Shared memory is promoted once: the savings of all processes that map it count, its cost
///   counts once. It is promoted in the process that gains most itself. Where that is refused, the
///   next one is tried.
/// - Where accesses are only estimated, the overhead is unknown. A process then counts as
///   [`Self::ASSUMED_PERCENT`], which is roughly HawkEye-G.
#[derive(Debug)]
pub struct Hawkeye {
    name: &'static str,
    recovery_order: RecoveryOrder,
    /// How a region's page walks are averaged over windows.
    average: CoverageAveraging,
    floor: PromotionFloor,
    members: ProcessStates<HawkeyeProcess>,
    costs: PromotionCosts,
    /// Shared memory that was promoted since the last observation.
    promoted_files: HashSet<FileRegion>,
    turns: u64,
}

impl Hawkeye {
    /// Savings are similar when they differ by at most this factor.
    pub const SIMILAR: f64 = 2.0;

    /// Assumed overhead where it cannot be measured, in per cent: a medium value.
    pub const ASSUMED_PERCENT: f64 = 5.0;

    /// Where promotion ends in a process that is worth it, in per cent of its CPU time. Estimates
    /// cannot tell less from nothing. A higher floor would give up that much of the gain for good.
    pub const LEAST_LEFT_PERCENT: f64 = 0.5;

    /// Sizes at first touches hold for at most this long without new information on whether they
    /// still suit. Memory mapped in these sizes does not show how much of it is used.
    pub const SIZES_HOLD: Duration = Duration::from_secs(300);

    /// The longest time in which a promotion must save the CPU time that it costs. Sizes at first
    /// touches are estimated this far ahead too. Servers and long computations run for longer.
    pub const HORIZON: Duration = Duration::from_secs(300);

    /// A promotion in a process that has just started has this long to pay.
    const YOUNG: Duration = Duration::from_secs(60);

    /// A policy that knows no process yet.
    pub fn new(average: CoverageAveraging, floor: PromotionFloor) -> Self {
        Self {
            name: "hawkeye",
            recovery_order: RecoveryOrder::MostBytesPerSlowdown,
            average,
            floor,
            members: ProcessStates::default(),
            costs: PromotionCosts::default(),
            promoted_files: HashSet::new(),
            turns: 0,
        }
    }

    /// The same promotions, and EMD's order of recovery.
    pub fn with_recovery_by_emd(average: CoverageAveraging, floor: PromotionFloor) -> Self {
        let recovery_order = RecoveryOrder::MostBloatedFirst;
        Self { name: "emd", recovery_order, ..Self::new(average, floor) }
    }

    /// Half of the age: two of three processes that have run for t run for another t/2. The share
    /// that lasts `k` times as long is `1/k` (M. Harchol-Balter and A. Downey, SIGMETRICS 1996, for
    /// CPU time; applied here to time).
    fn payback_horizon(age: Duration) -> Duration {
        (age / 2).max(Self::YOUNG).min(Self::HORIZON)
    }

    fn saving_reason(
        &self,
        member: &HawkeyeProcess,
        candidate: &PromotionCandidate,
    ) -> Option<SavingReason> {
        let saving = member.cores_saved_by(candidate);
        let cost_us = self.costs.expected_cost(candidate.order).as_secs_f64() * 1e6;
        Some(SavingReason {
            overhead: member.overhead?,
            order: candidate.order,
            walks_per_s: u32_from_f64(candidate.weight),
            saved_us_per_s: saving * 1e6,
            cost_us,
            pays_after_s: cost_us / (saving * 1e6).max(f64::MIN_POSITIVE),
        })
    }
}

impl Policy for Hawkeye {
    fn name(&self) -> &'static str {
        self.name
    }

    fn sample_kinds(&self) -> SampleKinds {
        SampleKinds::OVERHEAD
    }

    fn properties(&self) -> PolicyProperties {
        let recovery_order = self.recovery_order;
        PolicyProperties { recovery_order, ..PolicyProperties::USUAL }
    }

    fn observe(&mut self, observation: &Observation) {
        self.costs.now = observation.at;
        let seen = ObservationContext {
            at: observation.at,
            machine: &observation.machine,
            average: self.average,
            floor: self.floor,
            costs: &self.costs,
        };
        let members = self.members.states_to_update(observation, HawkeyeProcess::default);
        for (sample, member) in members {
            seen.update_weights_and_overhead(member, sample);
            member.waiting = seen.promotion_candidates(member, sample);
            seen.update_fault_sizes(member, sample);
        }
        self.promoted_files.clear();
        file_mappers::add_savings_of_other_mappers(&mut self.members, &self.costs);
    }

    fn pop_next_promotion(
        &mut self,
        _now: Duration,
        supply: HugePageReadiness,
        held: &HashSet<ProcessId>,
    ) -> Option<Promotion> {
        self.costs.supply = supply;
        if !self.promoted_files.is_empty() {
            let members = self.members.iter_mut();
            members.for_each(|(_, member)| member.drop_promoted_file_regions(&self.promoted_files));
        }
        let costs = &self.costs;
        let best = |member: &HawkeyeProcess| member.best_saving_per_cost(costs);
        let free = self.members.iter_mut_of_free(held);
        let most = free.filter_map(|(_, member)| best(member)).reduce(f64::max)?;
        let process = self
            .members
            .iter_mut_of_free(held)
            .filter(|(_, m)| best(m).is_some_and(|saving| saving * Self::SIMILAR >= most))
            .reduce(|first, next| {
                let left = |m: &HawkeyeProcess| m.left_percent * m.terms.weight;
                let order = left(next.1)
                    .total_cmp(&left(first.1))
                    .then_with(|| first.1.last_turn.cmp(&next.1.last_turn));
                // Of equal ones the first stays: first come, first served.
                if order.is_gt() { next } else { first }
            })?
            .0;
        let process =
            file_mappers::process_that_gains_most(&mut self.members, process, costs, held)?;
        let member = self.members.get(process)?;
        let candidate = *member.waiting.last()?;
        let reason = self.saving_reason(member, &candidate)?;
        self.turns += 1;
        let turn = self.turns;
        let member = self.members.get_mut(process)?;
        member.waiting.pop();
        member.last_turn = turn;
        member.left_percent -= member.percent_saved_by_promotion(&candidate);
        member.proposed.insert(candidate.region, candidate);
        Some(Promotion {
            process,
            region: candidate.region,
            order: candidate.order,
            expected_present: candidate.present,
            file: candidate.file,
            saved_us_per_s: Some(reason.saved_us_per_s),
            reason: Reason::new(reason),
        })
    }

    fn on_promotion_result(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        cost: Option<MeasuredPromotionCost>,
    ) {
        let mut member = self.members.get_mut(process);
        let proposed = member.as_mut().and_then(|member| member.proposed.remove(&region));
        if let Some(MeasuredPromotionCost { cpu, supply }) = cost {
            let order = proposed.map_or(PageOrder::HUGE, |candidate| candidate.order);
            self.costs.supply = supply;
            self.costs.record_promotion_cost(order, cpu);
            if let (Some(member), Some(candidate)) = (member, &proposed) {
                member.record_saving(candidate);
            }
            self.promoted_files.extend(proposed.and_then(|candidate| candidate.file));
        } else if let (Some(member), Some(candidate)) = (member, proposed) {
            // The promotion failed, so it saved nothing.
            member.left_percent += member.percent_saved_by_promotion(&candidate);
        }
    }

    fn fault_sizes(&self, process: ProcessId) -> Option<FaultSizes> {
        self.members.get(process)?.fault_sizes().cloned()
    }
}

impl ExplainPolicy for Hawkeye {
    fn explain_waiting_region(
        &self,
        process: ProcessId,
        region: RegionAddr,
    ) -> Option<WaitingRegion> {
        let member = self.members.get(process)?;
        let mut best_first = member.waiting.iter().rev().enumerate();
        let (ahead, candidate) = best_first.find(|(_, c)| c.region == region)?;
        let cost_s = self.costs.expected_cost(candidate.order).as_secs_f64();
        let pays = member.cores_saved_by(candidate) * member.horizon.as_secs_f64() >= cost_s;
        Some(WaitingRegion {
            reason: Reason::new(self.saving_reason(member, candidate)?),
            ahead: ahead as u64,
            passed_over: (!pays).then(|| {
                let most_s = member.horizon.as_secs();
                format!("its promotion would not pay for itself within {most_s} s")
            }),
        })
    }

    fn why_process_not_promoted(&self, process: ProcessId) -> Option<String> {
        let member = self.members.get(process)?;
        if member.overhead.is_some() && member.is_worth_promoting() {
            return member.explain_end_of_promotions();
        }
        explain_low_overhead(member.overhead, member.terms).or_else(|| {
            let overhead = member.overhead?;
            Some(format!(
                "{:.1} % of its overhead of {overhead} comes from memory that is huge already: the rest is under the minimum for promotion",
                overhead.huge_percent
            ))
        })
    }
}

#[cfg(test)]
mod tests;
