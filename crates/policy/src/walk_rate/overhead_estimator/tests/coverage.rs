//! How often the intervals hold, and how wide they are: ninety simulated runs of nine programs.
//!
//! A run differs from another by the moments at which the program touches its pages, by the
//! program's pace in each round, and by the true cost of its walks. The estimator knows the costs
//! only as well as a measurement at start does.

use super::*;
use crate::test_support::Chance;
use crate::walk_rate::RegionProbePlan;
use crate::walk_rate::walk_costs::SCATTERED_ERROR;

const RUNS: u64 = 10;
const ROUNDS: u64 = 12;
const REGIONS_PER_ROUND: u64 = 8;

#[derive(Clone, Copy, Debug)]
enum Pattern {
    /// A loop over all memory at a distance in pages.
    Loop {
        step: u64,
    },
    Random,
}

/// A program: how it touches memory, the time between touches, and how much its pace differs
/// between rounds (standard deviation of the logarithm).
const PROGRAMS: [(Pattern, f64, f64); 9] = [
    // A stream, a loop over pages, and one over every sixteenth page.
    (Pattern::Loop { step: 1 }, 900.0, 0.02),
    (Pattern::Loop { step: 1 }, 8.5, 0.02),
    (Pattern::Loop { step: 16 }, 12.0, 0.02),
    // Random and chained reads.
    (Pattern::Random, 25.0, 0.05),
    (Pattern::Random, 60.0, 0.05),
    (Pattern::Random, 240.0, 0.05),
    // Servers and a virtual machine, with work between reads and an uneven load.
    (Pattern::Random, 900.0, 0.2),
    (Pattern::Random, 1500.0, 0.2),
    (Pattern::Random, 3000.0, 0.2),
];

impl Pattern {
    fn rates(self, apart_ns: f64) -> WalkRates {
        let mut rates = WalkRates::default();
        let rate = match self {
            Self::Loop { step: 1 } => &mut rates.streamed_per_s,
            Self::Loop { .. } => &mut rates.strided_per_s,
            Self::Random => &mut rates.scattered_per_s,
        };
        *rate = 1e9 / apart_ns;
        rates
    }

    /// The share that one run truly loses. Its costs are as far from those measured as their errors
    /// say.
    fn true_percent(self, apart_ns: f64, costs: &WalkCosts, off: f64) -> f64 {
        let at = costs.at_footprint(REGIONS << 21);
        let [streamed, strided, scattered] = self.rates(apart_ns).cpu_shares(&at, costs);
        let added = off * (streamed.added_error + strided.added_error);
        streamed.percent
            + strided.percent
            + added
            + scattered.percent * (off * SCATTERED_ERROR).exp()
    }

    /// What a run's probe finds.
    fn probed(
        self,
        apart_ns: f64,
        unevenness: f64,
        costs: &WalkCosts,
        chance: &mut Chance,
    ) -> TranslationOverhead {
        let mut estimator = OverheadEstimator::new(REGIONS, 0, Duration::from_nanos(80));
        for round in 0..ROUNDS {
            let regions = round * REGIONS_PER_ROUND..(round + 1) * REGIONS_PER_ROUND;
            // Regions that were chosen at random lie anywhere in memory.
            let places: Vec<u64> = regions.clone().map(|_| chance.below(REGIONS)).collect();
            let apart_s = apart_ns * 1e-9 * (unevenness * chance.normal()).exp();
            let start = chance.below(REGIONS * 512);
            let mut touched = vec![PageBitmap::default(); places.len()];
            let mut before_s = 0.0;
            for (read, after) in READS_AFTER.into_iter().enumerate() {
                let exposed = after + Duration::from_micros(200);
                let exposed_s = exposed.as_secs_f64();
                for (bits, place) in touched.iter_mut().zip(&places) {
                    match self {
                        Self::Loop { step } => {
                            let reached = (exposed_s / apart_s) as u64 * step;
                            (0..512).step_by(step as usize).for_each(|page| {
                                let all = REGIONS * 512;
                                if (place * 512 + page + all - start) % all < reached {
                                    bits.insert(page as u16);
                                }
                            });
                        }
                        Self::Random => {
                            let mean = (exposed_s - before_s) / apart_s / REGIONS as f64;
                            let touches = chance.poisson(mean);
                            (0..touches).for_each(|_| bits.insert(chance.below(512) as u16));
                        }
                    }
                }
                before_s = exposed_s;
                let first = regions.start;
                let marks = marks(regions.clone(), exposed, |r| touched[(r - first) as usize]);
                let count = estimator.record_probe_read(&marks, exposed, exposed);
                let regions = places.len();
                if RegionProbePlan::round_has_enough_touches(read, count, regions) {
                    break;
                }
            }
            estimator.end_probe_round(true);
        }
        overhead(&estimator.finish_estimate(costs))
    }
}

#[test]
fn intervals_hold_in_nine_of_ten_runs_and_are_narrow() {
    let costs = WalkCosts::typical();
    let mut chance = Chance::default();
    let (mut widths, mut held) = (Vec::new(), 0);
    let mut runs = Vec::new();
    for (pattern, apart_ns, unevenness) in PROGRAMS {
        for _ in 0..RUNS {
            let truth = pattern.true_percent(apart_ns, &costs, chance.normal());
            let found = pattern.probed(apart_ns, unevenness, &costs, &mut chance);
            assert!(!found.at_least, "{pattern:?} {apart_ns} ns: {found}");
            held += usize::from((found.low_percent..=found.high_percent).contains(&truth));
            widths.push(found.high_percent - found.low_percent);
            runs.push(format!("{pattern:?} {apart_ns} ns: {truth:.2} %, {found}"));
        }
    }
    widths.sort_by(f64::total_cmp);
    assert_eq!(widths.len(), 90);
    let all = runs.join("\n");
    assert!(held >= 81, "{held} of 90 hold:\n{all}");
    assert!(widths[45] <= 12.0, "median width {}:\n{all}", widths[45]);
    // Intervals that always hold would be wider than they need to be.
    assert!(held < 90, "all hold:\n{all}");
}
