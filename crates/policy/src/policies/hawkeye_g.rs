//! HawkEye-G: the highest access coverage of all processes first (paper, section 3.4).

use crate::access_map::{AccessMap, Candidate};
use crate::average::CoverageAverage;
use crate::observation::{Observation, ProcessId};
use crate::page::{PageOrder, RegionAddr};
use crate::plan::Promotion;
use crate::policies::members::Members;
use crate::policy::{ExplainPolicy, Needs, Policy, Waiting};
use crate::reason::Reason;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// What HawkEye-G can be told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HawkeyeGSettings {
    /// How coverage is averaged over windows.
    pub average: CoverageAverage,
}

/// One process.
#[derive(Debug)]
struct Member {
    map: AccessMap,
    /// Number of the last turn it had; 0 for none yet.
    last_turn: u64,
}

/// The region is next in this bucket of its access map.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "rule", rename = "bucket")]
struct BucketReason {
    /// Bucket index, 0-9.
    bucket: u8,
    /// Averaged coverage, base pages.
    coverage: u16,
}

impl BucketReason {
    fn of(candidate: &Candidate) -> Reason {
        Reason::new(Self {
            bucket: candidate.bucket,
            coverage: candidate.coverage,
        })
    }
}

impl fmt::Display for BucketReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bucket, coverage } = self;
        write!(f, "bucket {bucket}: {coverage} of 512 base pages accessed")
    }
}

/// Takes from the highest bucket that is not empty in any process; processes that have one at that
/// level take turns.
///
/// The turn goes to the process that had none for the longest time, at any level; between
/// processes that never had one, to the first come. This is a plain round robin while the same
/// processes have regions at the level, needs no memory of levels, gives no burst to a newcomer
/// (one turn, then the end of the line), and yields the order of the paper's example.
#[derive(Debug)]
pub struct HawkeyeG {
    settings: HawkeyeGSettings,
    members: Members<Member>,
    turns: u64,
}

impl HawkeyeG {
    /// Its name on the command line.
    pub const NAME: &'static str = "hawkeye-g";

    /// Knows no process yet.
    pub fn new(settings: HawkeyeGSettings) -> Self {
        Self {
            settings,
            members: Members::default(),
            turns: 0,
        }
    }

    /// The access map of a process, for views of it.
    pub fn access_map(&self, process: ProcessId) -> Option<&AccessMap> {
        self.members.get(process).map(|m| &m.map)
    }
}

impl Policy for HawkeyeG {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn needs(&self) -> Needs {
        Needs::COVERAGE
    }

    fn observe(&mut self, observation: &Observation) {
        let average = self.settings.average;
        self.members.observe(observation, |sample, before| {
            let mut member = before.unwrap_or_else(|| Member {
                map: AccessMap::new(average),
                last_turn: 0,
            });
            member.map.observe(&sample.regions);
            member
        });
    }

    fn next_promotion(&mut self, _now: Duration) -> Option<Promotion> {
        let (_, process, highest) = self
            .members
            .iter_mut()
            .filter_map(|(process, m)| Some((m.map.highest_bucket()?, process, m)))
            // The first of equals stays: first come first.
            .reduce(|best, next| {
                let better =
                    next.0 > best.0 || (next.0 == best.0 && next.2.last_turn < best.2.last_turn);
                if better { next } else { best }
            })?;
        let candidate = highest.map.pop_highest()?;
        self.turns += 1;
        highest.last_turn = self.turns;
        Some(Promotion {
            process,
            region: candidate.region,
            order: PageOrder::HUGE,
            expected_present: candidate.present,
            saved_us_per_s: None,
            reason: BucketReason::of(&candidate),
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

impl ExplainPolicy for HawkeyeG {
    fn explain_region(&self, process: ProcessId, region: RegionAddr) -> Option<Waiting> {
        let map = self.access_map(process)?;
        let candidate = map.candidate(region)?;
        Some(Waiting {
            reason: BucketReason::of(&candidate),
            ahead: map.ahead_of(&candidate),
            passed_over: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observation::RegionSample;
    use crate::testing::{observation, process, region, sample};
    use proptest::prelude::*;

    fn newest_only() -> HawkeyeG {
        HawkeyeG::new(HawkeyeGSettings {
            average: CoverageAverage::new(1.0).unwrap_or_default(),
        })
    }

    fn drain(policy: &mut HawkeyeG) -> Vec<Promotion> {
        std::iter::from_fn(|| policy.next_promotion(Duration::ZERO)).collect()
    }

    /// Coverage in the middle of a bucket.
    fn bucket(index: u64, bucket: u16) -> RegionSample {
        sample(index, bucket * 50 + 25)
    }

    /// The paper's Figure 4 is lost; this is the layout with the fewest levels that yields the
    /// order the text gives: bucket 9: A1 | B1 | C1 C2, 8: B2 | C3 C4, 7: B3 B4, 6: A2 | C5, 5: A3.
    #[test]
    fn the_order_of_the_papers_example() {
        let a = vec![bucket(1, 9), bucket(2, 6), bucket(3, 5)];
        let b = vec![bucket(1, 9), bucket(2, 8), bucket(3, 7), bucket(4, 7)];
        let c = vec![
            bucket(1, 9),
            bucket(2, 9),
            bucket(3, 8),
            bucket(4, 8),
            bucket(5, 6),
        ];
        let mut policy = newest_only();
        policy.observe(&observation(&[(1, a), (2, b), (3, c)]));
        let order: Vec<String> = drain(&mut policy)
            .iter()
            .map(|p| {
                let process = ["?", "A", "B", "C"][p.process.pid as usize];
                format!("{process}{}", p.region.start() >> 21)
            })
            .collect();
        assert_eq!(order.join(" "), "A1 B1 C1 C2 B2 C3 C4 B3 B4 A2 C5 A3");
    }

    #[test]
    fn says_why_and_what_it_expects() {
        let mut policy = newest_only();
        let partly = RegionSample {
            present: 400,
            ..sample(3, 333)
        };
        policy.observe(&observation(&[(1, vec![partly])]));
        assert_eq!(
            drain(&mut policy),
            [Promotion {
                process: process(1),
                region: region(3),
                order: PageOrder::HUGE,
                expected_present: 400,
                saved_us_per_s: None,
                reason: Reason::new(BucketReason {
                    bucket: 6,
                    coverage: 333
                }),
            }]
        );
    }

    #[test]
    fn tells_what_a_region_waits_for_until_it_is_taken() {
        let mut policy = newest_only();
        let regions = vec![sample(1, 340), sample(3, 333), sample(4, 0), sample(5, 500)];
        policy.observe(&observation(&[(1, regions)]));
        let reason = Reason::new(BucketReason {
            bucket: 6,
            coverage: 333,
        });
        assert_eq!(
            serde_json::to_string(&reason).ok().as_deref(),
            Some(r#"{"rule":"bucket","bucket":6,"coverage":333}"#)
        );
        let waits = Waiting {
            reason,
            ahead: 2,
            passed_over: None,
        };
        assert_eq!(policy.explain_region(process(1), region(3)), Some(waits));
        assert_eq!(policy.explain_region(process(1), region(4)), None);
        assert_eq!(policy.explain_region(process(2), region(3)), None);
        drain(&mut policy);
        assert_eq!(policy.explain_region(process(1), region(3)), None);
    }

    #[test]
    fn what_was_never_accessed_is_not_proposed() {
        let mut policy = newest_only();
        policy.observe(&observation(&[(1, vec![sample(1, 0), sample(2, 1)])]));
        let regions: Vec<_> = drain(&mut policy).iter().map(|p| p.region).collect();
        assert_eq!(regions, [region(2)]);
    }

    #[test]
    fn a_dropped_proposal_comes_back_and_a_gone_process_does_not() {
        let mut policy = newest_only();
        let samples = vec![sample(1, 300)];
        policy.observe(&observation(&[(1, samples.clone()), (2, samples.clone())]));
        assert_eq!(drain(&mut policy).len(), 2);
        policy.settle(process(2), region(1), None);
        assert_eq!(drain(&mut policy), []);
        policy.observe(&observation(&[(2, samples)]));
        let back: Vec<_> = drain(&mut policy).iter().map(|p| p.process).collect();
        assert_eq!(back, [process(2)]);
        assert!(policy.access_map(process(1)).is_none());
    }

    #[test]
    fn turns_go_on_across_observations() {
        let mut policy = newest_only();
        let samples: Vec<_> = (0..4).map(|i| sample(i, 500)).collect();
        let round = observation(&[(1, samples.clone()), (2, samples.clone()), (3, samples)]);
        let mut pids = Vec::new();
        for _ in 0..6 {
            policy.observe(&round);
            pids.extend(policy.next_promotion(Duration::ZERO).map(|p| p.process.pid));
        }
        assert_eq!(pids, [1, 2, 3, 1, 2, 3]);
    }

    proptest! {
        /// While all processes have regions at the level, no process is ahead by more than one.
        #[test]
        fn round_robin_is_fair(
            lengths in prop::collection::vec(1usize..30, 1..8),
            head_start in 0usize..40,
            observe_again in any::<bool>(),
        ) {
            let round = |level: u16, lengths: &[usize]| {
                let processes: Vec<_> = (1u32..)
                    .zip(lengths)
                    .map(|(pid, n)| (pid, (0..*n as u64).map(|i| bucket(i, level)).collect()))
                    .collect();
                observation(&processes)
            };
            let mut policy = newest_only();
            // Any history of turns before must not matter.
            policy.observe(&round(4, &lengths));
            for _ in 0..head_start {
                policy.next_promotion(Duration::ZERO);
            }
            policy.observe(&round(7, &lengths));
            let shortest = lengths.iter().copied().min().unwrap_or(0);
            let mut turns = vec![0u32; lengths.len()];
            for i in 0..shortest * lengths.len() {
                if observe_again && i % 3 == 2 {
                    policy.observe(&round(7, &lengths));
                }
                let Some(promotion) = policy.next_promotion(Duration::ZERO) else { break };
                turns[promotion.process.pid as usize - 1] += 1;
                let spread = turns.iter().max().zip(turns.iter().min()).map(|(a, b)| a - b);
                prop_assert!(spread <= Some(1), "{:?}", turns);
            }
        }

        /// Whatever the coverage, proposals never go up a bucket, and each region comes once.
        #[test]
        fn buckets_never_rise_between_observations(
            coverage in prop::collection::vec(prop::collection::vec(0u16..=512, 0..40), 0..5),
        ) {
            let processes: Vec<_> = (1u32..)
                .zip(&coverage)
                .map(|(pid, c)| (pid, (0u64..).zip(c).map(|(i, c)| sample(i, *c)).collect()))
                .collect();
            let mut policy = newest_only();
            policy.observe(&observation(&processes));
            let promotions = drain(&mut policy);
            let buckets: Vec<_> = promotions
                .iter()
                .filter_map(|p| p.reason.data::<BucketReason>())
                .map(|reason| reason.bucket)
                .collect();
            prop_assert!(buckets.is_sorted_by(|a, b| a >= b), "{:?}", buckets);
            let accessed = coverage.iter().flatten().filter(|c| **c > 0).count();
            prop_assert_eq!(promotions.len(), accessed);
        }
    }
}
