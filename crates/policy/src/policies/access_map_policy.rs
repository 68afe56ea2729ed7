//! The paper's two policies (section 3.4): HawkEye-G and HawkEye-PMU.

use crate::access_map::{AccessMap, WaitingMapRegion};
use crate::coverage_averaging::CoverageAveraging;
use crate::huge_page_reserve_planner::HugePageReadiness;
use crate::observation::{Observation, ProcessId};
use crate::page::RegionAddr;
use crate::policy::{ExplainPolicy, Policy, WaitingRegion};
use crate::process_settings::ProcessSettings;
use crate::process_states::ProcessStates;
use crate::promotion::{MeasuredPromotionCost, Promotion};
use crate::reason::Reason;
use crate::sample_kinds::SampleKinds;
use crate::translation_overhead::TranslationOverhead;
use crate::walk_rate::WORTH_CORES;
use serde::Serialize;
use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

#[derive(Debug)]
struct AccessMapProcess {
    map: AccessMap,
    /// Overhead at the last measurement.
    overhead: Option<TranslationOverhead>,
    terms: ProcessSettings,
    /// Number of the last turn it had; 0 for none yet.
    last_turn: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RankingCriterion {
    /// HawkEye-G: the highest bucket.
    Bucket,
    /// HawkEye-PMU: the overhead times the weight.
    Overhead,
}

impl RankingCriterion {
    /// The rank of a process. `None` when nothing of it may be promoted.
    fn rank_of_process(self, member: &AccessMapProcess) -> Option<f64> {
        let bucket = member.map.highest_bucket()?;
        match self {
            Self::Bucket => Some(f64::from(bucket)),
            Self::Overhead => {
                let percent = member.overhead?.percent;
                let least = member.terms.min_overhead_to_promote_percent();
                (percent >= least).then_some(percent * member.terms.weight)
            }
        }
    }

    fn promotion_reason(
        self,
        overhead: Option<TranslationOverhead>,
        candidate: &WaitingMapRegion,
    ) -> Option<Reason> {
        let (rule, overhead) = match self {
            Self::Bucket => ("bucket", None),
            Self::Overhead => ("measured-overhead", Some(overhead?)),
        };
        let WaitingMapRegion { bucket, coverage, .. } = *candidate;
        Some(Reason::new(AccessMapReason { rule, overhead, bucket, coverage }))
    }
}

#[derive(Debug, PartialEq, Serialize)]
struct AccessMapReason {
    rule: &'static str,
    /// Cost of address translation to the process, as last measured. It is among the highest, and
    /// this is the process's best region.
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead: Option<TranslationOverhead>,
    /// Bucket index in its process's access map, 0-9.
    bucket: u8,
    /// Averaged coverage, base pages.
    coverage: u16,
}

impl fmt::Display for AccessMapReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(overhead) = self.overhead {
            write!(f, "overhead {overhead}, ")?;
        }
        let (bucket, coverage) = (self.bucket, self.coverage);
        write!(f, "bucket {bucket}: {coverage} of 512 base pages accessed")
    }
}

/// Takes regions from the highest bucket of a process's access map, one process after the other.
///
/// - HawkEye-G takes from the highest bucket that is not empty in any process. Processes with
///   regions at that level take turns.
/// - HawkEye-PMU takes from the process with the highest measured overhead. Processes with similar
///   overheads take turns. *Similar* means within [`Self::SIMILAR_POINTS`] of the highest overhead
///   among processes with a region to promote. The paper gives no figure; 2 points are its own
///   limit of what is worth a promotion. Each process is compared with the highest, never with a
///   neighbour. Otherwise a chain of processes, each a little under the one before, would join the
///   hottest with the coldest.
///
/// The turn goes to the process without a turn for the longest time, at any level. Among processes
/// without any turn so far the first to arrive is next. While the same processes have regions at
/// the level, this is a plain round robin. It needs no memory of levels, and gives a newcomer no
/// burst (one turn, then the end of the line). It yields the order of the paper's example.
///
/// For HawkEye-PMU:
///
/// - Overhead falls as regions are promoted. Each observation brings a new figure. Until then the
///   last one holds, also for a process that could not be read. A process that was read without a
///   figure is unknown from then on, and nothing of an unknown process is promoted.
/// - Nothing of a process is promoted under [`ProcessSettings::MIN_OVERHEAD_PERCENT`], or under its
///   rule's minimum. Its weight counts towards its rank, not against that limit.
#[derive(Debug)]
pub struct AccessMapPolicy {
    ranked_by: RankingCriterion,
    average: CoverageAveraging,
    members: ProcessStates<AccessMapProcess>,
    turns: u64,
}

impl AccessMapPolicy {
    /// Overheads are similar when they differ by at most this, in percentage points.
    pub const SIMILAR_POINTS: f64 = 2.0;

    /// HawkEye-G, with no process known yet.
    pub fn hawkeye_g(average: CoverageAveraging) -> Self {
        Self::new(RankingCriterion::Bucket, average)
    }

    /// HawkEye-PMU, with no process known yet.
    pub fn hawkeye_pmu(average: CoverageAveraging) -> Self {
        Self::new(RankingCriterion::Overhead, average)
    }

    fn new(ranked_by: RankingCriterion, average: CoverageAveraging) -> Self {
        Self { ranked_by, average, members: ProcessStates::default(), turns: 0 }
    }
}

impl Policy for AccessMapPolicy {
    fn name(&self) -> &'static str {
        match self.ranked_by {
            RankingCriterion::Bucket => "hawkeye-g",
            RankingCriterion::Overhead => "hawkeye-pmu",
        }
    }

    fn sample_kinds(&self) -> SampleKinds {
        match self.ranked_by {
            RankingCriterion::Bucket => SampleKinds::COVERAGE,
            RankingCriterion::Overhead => SampleKinds::COVERAGE.union(SampleKinds::OVERHEAD),
        }
    }

    fn observe(&mut self, observation: &Observation) {
        let average = self.average;
        let new = || AccessMapProcess {
            map: AccessMap::new(average),
            overhead: None,
            terms: ProcessSettings::default(),
            last_turn: 0,
        };
        for (sample, member) in self.members.states_to_update(observation, new) {
            member.map.observe(&sample.regions);
            (member.overhead, member.terms) = (sample.overhead, sample.terms);
        }
    }

    fn pop_next_promotion(
        &mut self,
        _now: Duration,
        _supply: HugePageReadiness,
        held: &HashSet<ProcessId>,
    ) -> Option<Promotion> {
        let by = self.ranked_by;
        let ranks = self.members.iter_mut_of_free(held).filter_map(|(_, m)| by.rank_of_process(m));
        let reach = match by {
            RankingCriterion::Bucket => 0.0,
            RankingCriterion::Overhead => Self::SIMILAR_POINTS,
        };
        let similar = ranks.reduce(f64::max)? - reach;
        let (process, member) = self
            .members
            .iter_mut_of_free(held)
            .filter(|(_, m)| by.rank_of_process(m).is_some_and(|rank| rank >= similar))
            // The first of equal ones: first come, first served.
            .min_by_key(|(_, m)| m.last_turn)?;
        let candidate = member.map.pop_from_highest_bucket()?;
        self.turns += 1;
        member.last_turn = self.turns;
        let reason = by.promotion_reason(member.overhead, &candidate)?;
        let WaitingMapRegion { region, present, file, .. } = candidate;
        Some(Promotion::to_huge_page(process, region, present, file, reason))
    }

    fn on_promotion_result(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        cost: Option<MeasuredPromotionCost>,
    ) {
        // A region that was not promoted is already out of its map until the next observation.
        if let (Some(_), Some(member)) = (cost, self.members.get_mut(process)) {
            member.map.remove(region);
        }
    }
}

impl ExplainPolicy for AccessMapPolicy {
    fn explain_waiting_region(
        &self,
        process: ProcessId,
        region: RegionAddr,
    ) -> Option<WaitingRegion> {
        let member = self.members.get(process)?;
        let candidate = member.map.find_waiting_region(region)?;
        Some(WaitingRegion {
            reason: self.ranked_by.promotion_reason(member.overhead, &candidate)?,
            ahead: member.map.count_regions_ahead_of(&candidate),
            passed_over: None,
        })
    }

    fn why_process_not_promoted(&self, process: ProcessId) -> Option<String> {
        let member = self.members.get(process)?;
        match self.ranked_by {
            RankingCriterion::Bucket => None,
            RankingCriterion::Overhead => explain_low_overhead(member.overhead, member.terms),
        }
    }
}

/// Why nothing of a process is promoted, if its overhead is too low.
pub(super) fn explain_low_overhead(
    overhead: Option<TranslationOverhead>,
    terms: ProcessSettings,
) -> Option<String> {
    let Some(overhead) = overhead else {
        let percent = WORTH_CORES * 100.0;
        return Some(format!(
            "its overhead is unknown: it uses less than {percent} % of a core, or has not been measured yet"
        ));
    };
    let least = terms.min_overhead_to_promote_percent();
    // NaN is not at least anything either.
    let worth = overhead.percent >= least;
    (!worth).then(|| match overhead.at_least {
        false => {
            format!("its overhead of {overhead} is under the minimum of {least} % for promotion")
        }
        true => format!(
            "its overhead is {overhead}: nothing shows that it reaches the minimum of {least} % for promotion"
        ),
    })
}

#[cfg(test)]
mod tests;
