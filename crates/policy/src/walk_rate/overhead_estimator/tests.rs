use super::region_walk_rates::count_newly_touched_pages;
use super::*;
use crate::test_support::{bitmap_of, region};
use crate::walk_rate::confidence_interval::NINETY_PERCENT;
use crate::walk_rate::region_probe_plan::{READS_AFTER, xorshift};
use crate::walk_rate::walk_costs::{
    SCATTERED_ERROR, WalkCostAtInterval, WalkCostsAtFootprint, WalkRates,
};
use proptest::prelude::*;

mod coverage;

const REGIONS: u64 = 1024;
const ROUND: u64 = 32;

fn costs() -> WalkCosts {
    WalkCosts {
        by_footprint: vec![WalkCostsAtFootprint {
            footprint_bytes: 2 << 30,
            independent_ns: 8.0,
            dependent_ns: 80.0,
        }],
        by_distance: [(20.0, 8.0), (250.0, 80.0)]
            .map(|(apart_ns, walk_ns)| WalkCostAtInterval { apart_ns, walk_ns, error_ns: 1.0 })
            .to_vec(),
        ..WalkCosts::typical()
    }
}

fn marks(
    regions: std::ops::Range<u64>,
    exposed: Duration,
    touched: impl Fn(u64) -> PageBitmap,
) -> Vec<RegionAccessBits> {
    let mark =
        |r| RegionAccessBits { region: region(r), huge: false, exposed, touched: touched(r) };
    regions.map(mark).collect()
}

fn of_round(round: u64) -> std::ops::Range<u64> {
    round * ROUND..(round + 1) * ROUND
}

/// A round for the rate over these regions, after a clear that took `clear`. By a time since then,
/// the process has used the CPU time `cpu` and touched `touched(r, time in seconds)` of a region.
/// Returns whether it ran.
fn probe_round(
    estimator: &mut OverheadEstimator,
    regions: std::ops::Range<u64>,
    clear: Duration,
    cpu: impl Fn(Duration) -> Duration,
    touched: impl Fn(u64, f64) -> PageBitmap,
) -> bool {
    for after in READS_AFTER {
        let exposed = after + clear;
        let marks = marks(regions.clone(), exposed, |r| touched(r, exposed.as_secs_f64()));
        estimator.record_probe_read(&marks, cpu(exposed), exposed);
    }
    estimator.end_probe_round(true)
}

const CLEAR: Duration = Duration::from_micros(100);

fn estimator_after(
    rounds: u64,
    cores: f64,
    first_touch: Duration,
    touched: impl Fn(u64, f64) -> PageBitmap,
) -> OverheadEstimator {
    let mut estimator = OverheadEstimator::new(REGIONS, 0, first_touch);
    for round in 0..rounds {
        let cpu = |time: Duration| time.mul_f64(cores);
        probe_round(&mut estimator, of_round(round), CLEAR, cpu, &touched);
    }
    estimator
}

/// A process on one core, with `touched(r, t)` as the touched pages of region `r` after `t`
/// seconds. All of its CPU time is its own.
fn probed(rounds: u64, touched: impl Fn(u64, f64) -> PageBitmap) -> OverheadEstimate {
    estimator_after(rounds, 1.0, Duration::ZERO, touched).finish_estimate(&costs())
}

fn rates(estimator: &OverheadEstimator) -> WalkRates {
    let (costs, process) = (costs(), estimator.process);
    let reads = sum_rounds_without(&estimator.rate_rounds, None);
    let from = RateReads::choose_for_touch_kinds(&reads);
    let residence_s = process.tlb_residence_s(f64::from(costs.tlb_pages), &estimator.at_work);
    process.base_page_walk_rates(&reads, from, residence_s, &costs)
}

fn overhead(estimate: &OverheadEstimate) -> TranslationOverhead {
    estimate.overhead.expect("the process ran, so it has an estimate")
}

/// The first `count` pages of an order that is different in each region.
fn scattered(region: u64, count: f64) -> PageBitmap {
    let mut random = xorshift(region.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    bitmap_of((0..count as u64).map(|_| (random() % 512) as u16))
}

#[test]
fn the_rate_of_random_touches_is_found() {
    // 4 million a second over all regions: 3906 a second in each.
    let touched = |r, t: f64| scattered(r, t * 4e6 / 1024.0 + 0.5);
    let estimator = estimator_after(8, 1.0, Duration::ZERO, touched);
    let rate = rates(&estimator).scattered_per_s;
    assert!((3.2e6..4.4e6).contains(&rate), "{rate}");
    let estimate = estimator.finish_estimate(&costs());
    let percent = overhead(&estimate).percent;
    assert!((20.0..28.0).contains(&percent), "{percent}");
    assert_eq!(estimate.walks.len(), 256);
    // The walks that one region was seen to cause, in the same unit.
    let walks = estimate.walks.iter();
    let per_region = walks.map(|walks| f64::from(walks.expected_per_s));
    let mean = per_region.sum::<f64>() / 256.0;
    assert!((2000.0..9000.0).contains(&mean), "{mean}");
    // Rates are per second of CPU time.
    let half = estimator_after(8, 0.5, Duration::ZERO, touched);
    let ratio = rates(&half).scattered_per_s / rate;
    assert!((ratio - 2.0).abs() < 0.01, "{ratio}");
    assert!((half.finish_estimate(&costs()).cpu_cores - 0.5).abs() < 0.01);
}

/// A process that touches 2000 pages a second in each region. It starts to pause `pause_after`
/// after the clear of every other round, which took 100 us. Returns what is known of regions.
fn with_pauses(pause_after: Duration) -> Vec<(RegionAddr, u32)> {
    let mut estimator = OverheadEstimator::new(REGIONS, 0, Duration::ZERO);
    for round in 0..4 {
        let runs = if round % 2 == 1 { pause_after } else { Duration::MAX };
        let touched = |r, t: f64| scattered(r, t.min(runs.as_secs_f64()) * 2000.0);
        let cpu = |time: Duration| time.min(runs);
        let ran = probe_round(&mut estimator, of_round(round), CLEAR, cpu, touched);
        assert_eq!(ran, runs > Duration::from_millis(5), "round {round}");
    }
    let walks = estimator.finish_estimate(&costs()).walks.into_iter();
    walks.map(|walks| (walks.region, walks.expected_per_s)).collect()
}

#[test]
fn regions_read_during_a_pause_are_not_judged() {
    // It paused before all was cleared, or soon after.
    for pause_after in [0, 90, 5000].map(Duration::from_micros) {
        let walks = with_pauses(pause_after);
        let seen: Vec<_> = walks.iter().map(|(region, _)| *region).collect();
        let ran: Vec<_> = (0..ROUND).chain(2 * ROUND..3 * ROUND).map(region).collect();
        assert_eq!(seen, ran, "{pause_after:?}");
        // As often as the process touches them while it runs.
        let right = |(_, walks): &(_, u32)| walks.abs_diff(2000) < 400;
        assert!(walks.iter().all(right), "{walks:?}");
    }
}

#[test]
fn a_short_pause_hides_no_region() {
    let walks = with_pauses(Duration::from_millis(20));
    assert_eq!(walks.len() as u64, 4 * ROUND);
    let right = |(_, walks): &(_, u32)| walks.abs_diff(2000) < 400;
    assert!(walks.iter().all(right), "{walks:?}");
}

#[test]
fn touches_that_hit_the_tlb_are_no_walks() {
    // One hot page in each region, marked right after the clear and never again.
    let estimate = probed(8, |r, _| scattered(r, 1.0));
    let percent = estimate.overhead.map(|o| o.percent);
    assert_eq!(percent, Some(0.0));
    assert!(estimate.walks.iter().all(|walks| walks.expected_per_s == 0));
}

#[test]
fn a_region_in_use_all_the_time_does_not_outweigh_one_that_walks() {
    // 20 pages are used over and over. In all other regions 2000 are touched per second, at random.
    let estimate = probed(8, |r, t| scattered(r, if r == 5 { 20.0 } else { t * 2000.0 + 0.5 }));
    let all = || estimate.walks.iter();
    let of = |wanted| all().find(|walks| walks.region == region(wanted));
    assert_eq!(of(5).map(|walks| walks.expected_per_s), Some(0));
    let right = |walks: &RegionWalksPerSecond| walks.expected_per_s.abs_diff(2000) < 500;
    assert!(of(6).is_some_and(right), "{:?}", of(6));
}

#[test]
fn chance_touches_do_not_lift_rarely_touched_regions() {
    // One region in four shows a touch in 15 ms, another one every time; eight are hot.
    let is_hot = |r: u64| r % 32 == 9;
    let estimate = probed(8, |r, t| {
        let cold = f64::from(u8::from(r % 4 == 1 && t > 0.02));
        scattered(r, if is_hot(r) { t * 2000.0 } else { cold })
    });
    let walks =
        |hot| estimate.walks.iter().filter(move |walks| is_hot(walks.region.start() >> 21) == hot);
    let most = walks(false).map(|walks| walks.expected_per_s).max();
    let counted = walks(false).map(|walks| walks.counted_per_s).max();
    assert!(counted > Some(60), "{counted:?}");
    assert!(most < Some(25), "{most:?}");
    let right = |walks: &RegionWalksPerSecond| walks.expected_per_s.abs_diff(2000) < 500;
    assert!(walks(true).all(right));
}

#[test]
fn a_small_hot_part_touched_everywhere_still_walks() {
    // 16 regions, 8192 pages, each touched 490 times a second: nearly all of them after 6 ms. A TLB
    // of 2048 entries holds a quarter of them.
    let hot_per_s = 490.0;
    let is_hot = |r: u64| r % 64 == 3;
    let estimate = probed(8, |r, t| {
        let per_s = if is_hot(r) { hot_per_s } else { 0.01 };
        scattered(r, 512.0 * per_s * t)
    });
    let hot: Vec<_> = (0..8 * ROUND).filter(|r| is_hot(*r)).map(region).collect();
    let all = estimate.walks.iter();
    let seen = all.filter(|walks| hot.contains(&walks.region));
    let shares: Vec<f64> =
        seen.map(|walks| f64::from(walks.expected_per_s) / (512.0 * hot_per_s)).collect();
    assert_eq!(shares.len(), hot.len());
    let right = |share: &f64| (0.5..0.9).contains(share);
    assert!(shares.iter().all(right), "{shares:?}");
}

/// Reads are given as microseconds of CPU time since the clear, and pages touched.
fn new_per_s(reads: &[(f64, f64)], residence_us: f64) -> f64 {
    let read = |(us, touched): &(f64, f64)| {
        let touched = (0..*touched as u16).map(|n| n * 37 % 512);
        RegionProbeRead {
            shape: TouchedPagesByPattern::classify(&bitmap_of(touched)),
            cpu_s: us * 1e-6,
        }
    };
    let reads: Vec<_> = reads.iter().map(read).collect();
    count_newly_touched_pages(&reads, residence_us * 1e-6)
        .map_or(0.0, |(count, _)| ratio_or_zero(count.touches, count.over_s))
}

#[test]
fn touches_within_the_tlbs_residence_time_are_left_out() {
    // 30 pages are used every 200 us.
    let resident = [(50.0, 8.0), (450.0, 30.0), (2500.0, 30.0), (30_000.0, 30.0)];
    assert!(new_per_s(&resident, 440.0) < 500.0);
    // The same, plus another page every 100 us.
    let walking = [(50.0, 8.0), (450.0, 34.0), (2500.0, 55.0), (30_000.0, 330.0)];
    let per_s = new_per_s(&walking, 440.0);
    assert!((per_s - 10_000.0).abs() < 1500.0, "{per_s}");
}

#[test]
fn a_region_full_at_the_first_read_is_not_idle() {
    // The first read is much later than the residence time in the TLB.
    let full = [(1000.0, 502.0), (1400.0, 510.0), (30_000.0, 512.0)];
    assert!(new_per_s(&full, 50.0) > 400_000.0);
    // Only one read, so nothing else is known.
    assert!((new_per_s(&full[..1], 5000.0) - 502_000.0).abs() < 1.0);
    // Pages that fit into the TLB and are not touched anew.
    let fit = [(100.0, 20.0), (30_000.0, 20.0)];
    assert_eq!(new_per_s(&fit, f64::INFINITY), 0.0);
    assert_eq!(new_per_s(&[], 1.0), 0.0);
}

#[test]
fn a_stream_costs_little() {
    // The program goes through a region in 2 ms, at changing places.
    let estimator = estimator_after(16, 1.0, Duration::ZERO, |r, t| {
        let touched = if r % 16 == 3 { t * 256_000.0 } else { 0.0 };
        bitmap_of(0..(touched as u16).min(512))
    });
    let rates = rates(&estimator);
    assert!(rates.scattered_per_s < 0.1 * rates.streamed_per_s);
    let overhead = overhead(&estimator.finish_estimate(&costs()));
    assert!(overhead.percent < 6.0, "{overhead}");
}

/// An estimator after rounds of 30 ms in which a process ran for these shares of the time.
fn after_rounds(cores: &[f64]) -> OverheadEstimator {
    let mut estimator = OverheadEstimator::new(REGIONS, 0, Duration::ZERO);
    for (round, cores) in (0..).zip(cores) {
        let cpu = |time: Duration| time.mul_f64(*cores);
        let touched = |r, t| scattered(r, t * 2000.0);
        probe_round(&mut estimator, round..round + 1, CLEAR, cpu, touched);
    }
    estimator
}

#[test]
fn a_light_process_gets_no_estimate_and_a_paused_one_does() {
    // A server that answers at times, a process that has paused and works now, and one that was
    // never seen at work.
    let light = after_rounds(&[0.0, 0.06, 0.0, 0.04]);
    assert!(light.uses_little_cpu());
    assert_eq!(light.finish_estimate(&costs()).overhead, None);
    let paused = after_rounds(&[0.0, 0.0, 0.0, 0.0, 0.9]);
    assert!(!paused.uses_little_cpu());
    assert!(paused.finish_estimate(&costs()).overhead.is_some());
    let idle = after_rounds(&[0.0; 4]);
    assert!(!idle.uses_little_cpu());
    assert_eq!(idle.finish_estimate(&costs()).overhead, None);
}

#[test]
fn costly_first_touches_make_the_estimate_a_minimum() {
    for (first_touch_ns, at_least) in [(0, false), (600, true)] {
        let first_touch = Duration::from_nanos(first_touch_ns);
        let touched = |r, t| scattered(r, t * 20_000.0);
        let estimate = estimator_after(4, 1.0, first_touch, touched).finish_estimate(&costs());
        assert_eq!(overhead(&estimate).at_least, at_least);
    }
}

/// All pages of the `looked_at` sampled ones are touched.
fn with_huge_pages(all: u64, looked_at: u64) -> TranslationOverhead {
    let mut estimator = OverheadEstimator::new(0, all, Duration::ZERO);
    let time = Duration::from_millis(1);
    let mut marks = marks(0..looked_at, time, |_| PageBitmap([u64::MAX; 8]));
    marks.iter_mut().for_each(|mark| mark.huge = true);
    assert_eq!(estimator.record_probe_read(&marks, time, time), looked_at);
    estimator.end_probe_round(true);
    overhead(&estimator.finish_estimate(&costs()))
}

#[test]
fn overhead_of_huge_pages_beyond_the_tlbs_reach_is_separate() {
    assert_eq!(with_huge_pages(512, 16).percent, 0.0);
    let beyond = with_huge_pages(8192, 128);
    assert!(beyond.huge_percent > 0.0, "{beyond}");
    assert_eq!(beyond.savable_percent(), 0.0);
}

#[test]
fn without_reads_there_is_no_estimate() {
    let estimate = OverheadEstimator::new(10, 0, Duration::ZERO).finish_estimate(&costs());
    assert_eq!(estimate.overhead, None);
    assert_eq!(estimate.walks, []);
}

#[test]
fn left_out_memory_has_no_walks() {
    let rate = |left_out: f64| {
        let touched = |r, t| scattered(r, 1e4 * t);
        let mut estimator = estimator_after(1, 1.0, Duration::ZERO, touched);
        estimator.leave_out_unprobed_regions(left_out, 0.0);
        rates(&estimator).scattered_per_s
    };
    assert!(rate(0.0) > 0.0);
    assert!((rate(0.25) / rate(0.0) - 0.75).abs() < 0.1);
    assert_eq!(rate(1.0), 0.0);
}

/// A loop over all regions at this distance in pages, which touches a page each `apart_s`.
fn loop_over_all(step: u64, apart_s: f64) -> OverheadEstimate {
    probed(16, |r, t| {
        let (all, before) = (REGIONS * 512 / step, r * 512 / step);
        // The loop starts in another place in each round.
        let start = r / ROUND * 7919 * 512 / step;
        let touched = (t / apart_s) as u64;
        let reached = |n: &u64| (before + n + all - start % all) % all < touched;
        bitmap_of((0..512 / step).filter(reached).map(|n| (n * step) as u16))
    })
}

#[test]
fn tight_loops_lose_what_loops_like_them_lost_at_start() {
    // 8 ns a page of a stream and 10 ns a page of a stride cost a tenth and a fifth.
    for (step, apart_s, percent) in [(1, 8e-9, 10.0), (16, 10e-9, 20.0)] {
        let found = overhead(&loop_over_all(step, apart_s));
        assert!(found.low_percent < percent && percent < found.high_percent, "{found}");
        assert!((found.percent / percent - 1.0).abs() < 0.35, "{found}");
        assert!(found.high_percent - found.low_percent < percent, "{found}");
    }
    // Each page is read in full, and few are seen.
    let found = overhead(&loop_over_all(1, 300e-9));
    let percent = 2.5 / 300.0 * 100.0;
    assert!(found.low_percent < percent && percent < found.high_percent, "{found}");
    assert!(found.percent < 3.0, "{found}");
}

#[test]
fn a_loop_faster_than_the_first_read_may_be_as_tight_as_any() {
    // 8,192 pages, all of them touched before the first read.
    let mut estimator = OverheadEstimator::new(256, 0, Duration::ZERO);
    for round in 0..8 {
        let clear = Duration::from_millis(2);
        let cpu = |time| time;
        let touched = |_, _| bitmap_of((0..512).step_by(16));
        probe_round(&mut estimator, of_round(round), clear, cpu, touched);
    }
    let found = overhead(&estimator.finish_estimate(&costs()));
    // The tightest loop of this shape lost a fifth, and a quarter of the pages fit into the TLB.
    assert!(found.high_percent > 15.0, "{found}");
    assert!(found.low_percent < 3.0, "{found}");
    assert!((3.0..12.0).contains(&found.percent), "{found}");
}

#[test]
fn pages_that_stay_in_the_tlb_cause_no_walks() {
    // A page of each region is in constant use: 1,024 pages. 1 million others a second are random.
    let touched = |r, t: f64| {
        let mut touched = scattered(r, t * 1e6 / 1024.0 + 0.5);
        touched.insert(0);
        touched
    };
    let rate = rates(&estimator_after(8, 1.0, Duration::ZERO, touched)).scattered_per_s;
    assert!((0.9e6..1.1e6).contains(&rate), "{rate}");
}

/// Overhead of a process with 4 million random touches a second.
fn with_rounds(rounds: u64) -> TranslationOverhead {
    let mut estimator = OverheadEstimator::new(REGIONS, 0, Duration::ZERO);
    for round in 0..rounds {
        // Its pace differs from round to round.
        let pace = 0.8 + 0.4 * (round % 3) as f64 / 2.0;
        let touched = |r, t: f64| scattered(r, t * pace * 4e6 / 1024.0 + 0.5);
        probe_round(&mut estimator, round..round + 1, CLEAR, |time| time, touched);
    }
    overhead(&estimator.finish_estimate(&costs()))
}

#[test]
fn more_rounds_make_the_interval_narrower() {
    // The error of walk costs stays, however long the program is sampled.
    let of_costs = 2.0 * (NINETY_PERCENT * SCATTERED_ERROR).sinh();
    let more = [2, 6, 24, 96].map(|rounds| {
        let found = with_rounds(rounds);
        found.high_percent - found.low_percent - of_costs * found.percent
    });
    assert!(more.is_sorted_by(|a, b| a > b), "{more:?}");
    assert!(more[3] < 1.0, "{more:?}");
}

#[test]
fn little_that_was_seen_leaves_room_for_more() {
    // One region was read once and shows nothing.
    let mut estimator = OverheadEstimator::new(REGIONS, 0, Duration::ZERO);
    let time = Duration::from_millis(1);
    estimator.record_probe_read(&marks(0..1, time, |_| PageBitmap::default()), time, time);
    estimator.end_probe_round(true);
    let found = overhead(&estimator.finish_estimate(&costs()));
    assert_eq!((found.percent, found.low_percent), (0.0, 0.0));
    assert!(found.high_percent > 10.0, "{found}");
}

proptest! {
    #[test]
    fn intervals_contain_their_estimate(
        per_region_s in 0.0..50_000.0f64, hot in 1..64u64, step in 1..40u64, rounds in 0..9u64,
    ) {
        let found = probed(rounds, |r, t| {
            let count = t * per_region_s;
            if r % hot != 0 {
                return PageBitmap::default();
            }
            let mut bits = scattered(r, if step > 20 { count } else { 0.0 });
            (0..count.min(512.0) as u64 / step).for_each(|n| bits.insert((n * step) as u16));
            bits
        });
        if let Some(found) = found.overhead {
            let ends = [0.0, found.low_percent, found.percent, found.high_percent, 100.0];
            prop_assert!(ends.is_sorted(), "{found:?}");
        }
    }
}
