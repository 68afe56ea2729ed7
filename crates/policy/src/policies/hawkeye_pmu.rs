//! HawkEye-PMU: the highest measured overhead of all processes first (paper, section 3.4).

use crate::access_map::{AccessMap, Candidate};
use crate::average::CoverageAverage;
use crate::observation::{Observation, ProcessId};
use crate::overhead::Overhead;
use crate::page::{PageOrder, RegionAddr};
use crate::plan::Promotion;
use crate::policies::members::Members;
use crate::policy::{ExplainPolicy, Needs, Policy, Waiting};
use crate::reason::Reason;
use crate::run_rate::WORTH_CORES;
use crate::terms::Terms;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// What HawkEye-PMU can be told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HawkeyePmuSettings {
    /// How coverage is averaged over windows.
    pub average: CoverageAverage,
}

/// One process.
#[derive(Debug)]
struct Member {
    map: AccessMap,
    /// As last measured.
    overhead: Option<Overhead>,
    terms: Terms,
    /// Number of the last turn it had; 0 for none yet.
    last_turn: u64,
}

impl Member {
    /// Its place among the others: its overhead by its weight. `None` when nothing of it may be
    /// promoted.
    fn rank(&self) -> Option<f64> {
        self.map.highest_bucket()?;
        let percent = self.overhead?.percent;
        let least = self.terms.least_gain_percent();
        (percent >= least).then_some(percent * self.terms.weight)
    }
}

/// The overhead of the process is among the highest, and this is its best region.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "rule", rename = "measured-overhead")]
struct OverheadReason {
    /// What translation costs the process, as last measured.
    overhead: Overhead,
    /// Bucket index in its access map, 0-9.
    bucket: u8,
    /// Averaged coverage, base pages.
    coverage: u16,
}

impl OverheadReason {
    fn of(overhead: Overhead, candidate: &Candidate) -> Reason {
        Reason::new(Self {
            overhead,
            bucket: candidate.bucket,
            coverage: candidate.coverage,
        })
    }
}

impl fmt::Display for OverheadReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            overhead,
            bucket,
            coverage,
        } = self;
        write!(
            f,
            "overhead {overhead}, bucket {bucket}: {coverage} of 512 base pages accessed"
        )
    }
}

/// Takes from the process with the highest measured overhead, its highest bucket first; processes
/// with similar overheads take turns.
///
/// - *Similar* is what lies within [`Self::SIMILAR_POINTS`] of the highest one that has a region to
///   promote. The paper doesn't say; 2 points are its own limit of what is worth a promotion.
///   Everyone is held against the highest, never against a neighbour: a chain of processes, each a
///   little under the one before, would otherwise join the hottest with the coldest.
/// - A turn goes to the process that had none for the longest time, as in HawkEye-G.
/// - Overhead falls as regions are promoted. Each observation brings a new figure, and until then
///   the last one holds, also for a process that could not be read. A process that was read
///   without a figure is unknown from then on, and what is unknown is not promoted.
/// - Under [`Self::MIN_OVERHEAD_PERCENT`], or under what its rule says, nothing of a process is
///   promoted. Its weight counts towards its rank, not against that limit.
#[derive(Debug)]
pub struct HawkeyePmu {
    settings: HawkeyePmuSettings,
    members: Members<Member>,
    turns: u64,
}

impl HawkeyePmu {
    /// Its name on the command line.
    pub const NAME: &'static str = "hawkeye-pmu";

    /// Overhead under which huge pages are not worth their promotion, in per cent (paper, section 4).
    pub const MIN_OVERHEAD_PERCENT: f64 = Terms::MIN_OVERHEAD_PERCENT;

    /// Overheads are similar when they are no further apart than this, in percentage points.
    pub const SIMILAR_POINTS: f64 = 2.0;

    /// Knows no process yet.
    pub fn new(settings: HawkeyePmuSettings) -> Self {
        Self {
            settings,
            members: Members::default(),
            turns: 0,
        }
    }
}

impl Policy for HawkeyePmu {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn needs(&self) -> Needs {
        Needs::COVERAGE.with(Needs::OVERHEAD)
    }

    fn observe(&mut self, observation: &Observation) {
        let average = self.settings.average;
        self.members.observe(observation, |sample, before| {
            let (mut map, last_turn) =
                before.map_or_else(|| (AccessMap::new(average), 0), |m| (m.map, m.last_turn));
            map.observe(&sample.regions);
            Member {
                map,
                overhead: sample.overhead,
                terms: sample.terms,
                last_turn,
            }
        });
    }

    fn next_promotion(&mut self, _now: Duration) -> Option<Promotion> {
        let ranks = self.members.iter().filter_map(Member::rank);
        let similar = ranks.reduce(f64::max)? - Self::SIMILAR_POINTS;
        let (process, member) = self
            .members
            .iter_mut()
            .filter(|(_, m)| m.rank().is_some_and(|rank| rank >= similar))
            // The first of equals: first come first.
            .min_by_key(|(_, m)| m.last_turn)?;
        let overhead = member.overhead?;
        let candidate = member.map.pop_highest()?;
        self.turns += 1;
        member.last_turn = self.turns;
        Some(Promotion {
            process,
            region: candidate.region,
            order: PageOrder::HUGE,
            expected_present: candidate.present,
            saved_us_per_s: None,
            reason: OverheadReason::of(overhead, &candidate),
        })
    }

    fn settle(&mut self, process: ProcessId, region: RegionAddr, took: Option<Duration>) {
        // What was not promoted is out of its map already, until the next observation.
        if took.is_some() {
            if let Some(member) = self.members.get_mut(process) {
                member.map.remove(region);
            }
        }
    }
}

impl ExplainPolicy for HawkeyePmu {
    fn explain_region(&self, process: ProcessId, region: RegionAddr) -> Option<Waiting> {
        let member = self.members.get(process)?;
        let candidate = member.map.candidate(region)?;
        Some(Waiting {
            reason: OverheadReason::of(member.overhead?, &candidate),
            ahead: member.map.ahead_of(&candidate),
            passed_over: None,
        })
    }

    fn explain_process(&self, process: ProcessId) -> Option<String> {
        let member = self.members.get(process)?;
        below_limit(member.overhead, member.terms)
    }
}

/// Why nothing of a process is promoted, if its overhead is not worth it.
pub(super) fn below_limit(overhead: Option<Overhead>, terms: Terms) -> Option<String> {
    let Some(overhead) = overhead else {
        let percent = WORTH_CORES * 100.0;
        return Some(format!(
            "its overhead isn't known: it uses less than {percent} % of a core, or was not measured yet"
        ));
    };
    let least = terms.least_gain_percent();
    // What is no number is not at least anything either.
    let worth = overhead.percent >= least;
    (!worth).then(|| {
        format!("its overhead of {overhead} is under the {least} % that make promotion worth while")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::RegionSample;
    use crate::overhead::OverheadSource;
    use crate::testing::{at, huge, observation, process, region, sample};
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn measured(percent: f64) -> Option<Overhead> {
        Some(Overhead::exact(percent, OverheadSource::Counters))
    }

    /// One round; the processes are numbered from 1.
    fn round(processes: &[(Option<f64>, Vec<RegionSample>)]) -> Observation {
        let numbered: Vec<_> = (1u32..)
            .zip(processes)
            .map(|(pid, (_, regions))| (pid, regions.clone()))
            .collect();
        let mut observation = observation(&numbered);
        for (sample, (percent, _)) in observation.processes.iter_mut().zip(processes) {
            sample.overhead = percent.and_then(measured);
        }
        observation
    }

    /// So many regions, each fully accessed.
    fn hot(regions: u64) -> Vec<RegionSample> {
        (0..regions).map(|i| sample(i, 512)).collect()
    }

    fn policy() -> HawkeyePmu {
        HawkeyePmu::new(HawkeyePmuSettings {
            average: CoverageAverage::new(1.0).unwrap_or_default(),
        })
    }

    fn drain(policy: &mut HawkeyePmu) -> Vec<Promotion> {
        std::iter::from_fn(|| policy.next_promotion(at(0))).collect()
    }

    fn pids(promotions: &[Promotion]) -> Vec<u32> {
        promotions.iter().map(|p| p.process.pid).collect()
    }

    #[test]
    fn the_highest_overhead_first_whatever_the_coverage() {
        let mut policy = policy();
        let sparse = vec![sample(0, 60), sample(1, 210), sample(2, 10)];
        policy.observe(&round(&[(Some(8.0), hot(2)), (Some(30.0), sparse)]));
        let promotions = drain(&mut policy);
        let order: Vec<_> = promotions
            .iter()
            .map(|p| (p.process.pid, p.region))
            .collect();
        let expected = [(2, 1), (2, 0), (2, 2), (1, 0), (1, 1)];
        assert_eq!(order, expected.map(|(pid, i)| (pid, region(i))));
    }

    /// 30 and 28.5 are within 2 points of the highest, 27 is not, though it is within 2 of 28.5.
    /// When 30 has nothing left, 28.5 is the highest, and 27 is within 2 of it.
    #[test]
    fn similar_is_held_against_the_highest_only() {
        let mut policy = policy();
        policy.observe(&round(&[
            (Some(27.0), hot(2)),
            (Some(28.5), hot(3)),
            (Some(30.0), hot(2)),
        ]));
        assert_eq!(pids(&drain(&mut policy)), [2, 3, 2, 3, 1, 2, 1]);
    }

    #[test]
    fn nothing_under_the_limit_and_nothing_unknown() {
        let mut policy = policy();
        let mut observation = round(&[
            (Some(1.99), hot(1)),
            (Some(2.0), hot(1)),
            (None, hot(1)),
            (Some(4.9), hot(1)),
            (Some(0.5), hot(1)),
            (Some(f64::NAN), hot(1)),
        ]);
        observation.processes[3].terms.min_gain_percent = Some(5.0);
        observation.processes[4].terms.min_gain_percent = Some(0.0);
        policy.observe(&observation);
        assert_eq!(pids(&drain(&mut policy)), [2, 5]);
    }

    /// 3 % of weight 4 rank as 12, above 9 and out of its reach of 2 points.
    #[test]
    fn weight_counts_in_the_rank_and_not_against_the_limit() {
        let mut policy = policy();
        let mut observation = round(&[
            (Some(9.0), hot(1)),
            (Some(3.0), hot(2)),
            (Some(1.0), hot(1)),
        ]);
        observation.processes[1].terms.weight = 4.0;
        observation.processes[2].terms.weight = 50.0;
        policy.observe(&observation);
        assert_eq!(pids(&drain(&mut policy)), [2, 2, 1]);
    }

    #[test]
    fn overhead_is_read_anew_and_kept_while_a_process_is_unread() {
        let mut policy = policy();
        policy.observe(&round(&[(Some(30.0), hot(4)), (Some(10.0), hot(4))]));
        assert_eq!(policy.next_promotion(at(0)).map(|p| p.process.pid), Some(1));
        // The first one's promotions have helped it.
        policy.observe(&round(&[(Some(5.0), hot(4)), (Some(10.0), hot(4))]));
        assert_eq!(policy.next_promotion(at(0)).map(|p| p.process.pid), Some(2));
        // The second one can't be read: its 10 % stand.
        let mut only_first = round(&[(Some(5.0), hot(4))]);
        only_first.unread = vec![process(2)];
        policy.observe(&only_first);
        assert_eq!(policy.next_promotion(at(0)).map(|p| p.process.pid), Some(2));
        // It is read, and its counters are not.
        policy.observe(&round(&[(Some(5.0), hot(1)), (None, hot(4))]));
        assert_eq!(pids(&drain(&mut policy)), [1]);
    }

    #[test]
    fn says_why_and_what_it_expects() {
        let mut policy = policy();
        let partly = RegionSample {
            present: 400,
            ..sample(3, 333)
        };
        policy.observe(&round(&[(Some(12.5), vec![partly, huge(4, true)])]));
        let promotions = drain(&mut policy);
        let reason = Reason::new(OverheadReason {
            overhead: Overhead::exact(12.5, OverheadSource::Counters),
            bucket: 6,
            coverage: 333,
        });
        assert_eq!(
            serde_json::to_string(&reason).ok().as_deref(),
            Some(
                r#"{"rule":"measured-overhead","overhead":{"percent":12.5,"huge_percent":0.0,"low_percent":12.5,"high_percent":12.5,"at_least":false,"source":"counters"},"bucket":6,"coverage":333}"#
            )
        );
        assert_eq!(
            reason.to_string(),
            "overhead 12.5 %, bucket 6: 333 of 512 base pages accessed"
        );
        assert_eq!(
            promotions,
            [Promotion {
                process: process(1),
                region: region(3),
                order: PageOrder::HUGE,
                expected_present: 400,
                saved_us_per_s: None,
                reason,
            }]
        );
    }

    proptest! {
        /// Whatever the overheads: each region that was accessed comes once, if its process is worth
        /// it, always from a process within reach of the highest that has regions left.
        #[test]
        fn always_from_the_highest_or_similar(
            processes in prop::collection::vec(
                (prop::option::of(0.0..40.0f64), prop::collection::vec((0u16..=512, any::<bool>()), 0..12)),
                0..7,
            ),
        ) {
            let processes: Vec<_> = processes
                .into_iter()
                .map(|(percent, regions)| {
                    let regions = (0u64..).zip(regions);
                    let samples = regions.map(|(i, (accessed, is_huge))| {
                        if is_huge { huge(i, accessed > 0) } else { sample(i, accessed) }
                    });
                    (percent, samples.collect::<Vec<_>>())
                })
                .collect();
            let mut left: HashMap<u32, (f64, Vec<RegionAddr>)> = HashMap::new();
            for (pid, (percent, regions)) in (1u32..).zip(&processes) {
                let regions = regions.iter().filter(|r| !r.is_huge() && r.accessed > 0);
                let regions: Vec<_> = regions.map(|r| r.region).collect();
                match percent {
                    Some(percent) if *percent >= 2.0 && !regions.is_empty() => {
                        left.insert(pid, (*percent, regions));
                    }
                    _ => {}
                }
            }
            let mut policy = policy();
            policy.observe(&round(&processes));
            for promotion in drain(&mut policy) {
                let highest = left.values().map(|(percent, _)| *percent).fold(0.0, f64::max);
                let pid = promotion.process.pid;
                let Some((percent, regions)) = left.get_mut(&pid) else {
                    return Err(TestCaseError::fail("nothing of this process was to be promoted"));
                };
                prop_assert!(*percent >= highest - 2.0, "{} of {}", percent, highest);
                let found = regions.iter().position(|r| *r == promotion.region);
                prop_assert!(found.is_some(), "{} was not to be promoted", promotion.region);
                found.map(|index| regions.remove(index));
                if regions.is_empty() {
                    left.remove(&pid);
                }
            }
            prop_assert!(left.is_empty(), "left over: {:?}", left);
        }

        /// Processes whose overheads are similar get as many turns, to one.
        #[test]
        fn round_robin_is_fair(
            overheads in prop::collection::vec(20.0..22.0f64, 1..8),
            turns in 0usize..60,
            observe_every in 1usize..20,
        ) {
            let processes: Vec<_> = overheads.iter().map(|o| (Some(*o), hot(60))).collect();
            let mut policy = policy();
            let mut count = vec![0u32; overheads.len()];
            for turn in 0..turns {
                if turn % observe_every == 0 {
                    policy.observe(&round(&processes));
                }
                let Some(promotion) = policy.next_promotion(at(0)) else { break };
                count[promotion.process.pid as usize - 1] += 1;
                let spread = count.iter().max().zip(count.iter().min()).map(|(a, b)| a - b);
                prop_assert!(spread <= Some(1), "{:?}", count);
            }
        }
    }
}
