use super::*;
use hawkeye_policy::{FileRegion, PageOrder};
use hawkeye_test_support::event_constructors::{process_with_pid, region_at_index};

fn sample(n: u64, accessed: u16) -> RegionSample {
    RegionSample { accessed, ..RegionSample::new_full_and_untouched(region_at_index(n)) }
}

#[test]
fn a_region_untouched_since_its_last_look_has_no_walks() {
    // Two regions of this window, one of the last.
    let regions = [(1, 3), (2, 3), (3, 2)];
    let mut walks = RegionWalkRates {
        windows: 3,
        regions: regions.map(|(n, window)| (region_at_index(n), (7, window))).into(),
        ..RegionWalkRates::default()
    };
    let of = |walks: &mut RegionWalkRates, touched: [u16; 4]| {
        let samples = (1..5).zip(touched);
        let mut samples: Vec<_> = samples.map(|(n, it)| sample(n, it)).collect();
        let applied = walks.apply_to_regions(&mut samples);
        let known: Vec<u32> = samples.iter().map(|sample| sample.walks_per_s).collect();
        (known, applied)
    };
    let (known, applied) = of(&mut walks, [0, 20, 0, 0]);
    assert_eq!(known, [0, 7, 7, 0]);
    assert_eq!((applied.set_bits, applied.probed_share), (20, 0.75));
    // The value holds until the region is seen again.
    walks.windows += 1;
    assert_eq!(of(&mut walks, [9; 4]).0, [0, 7, 7, 0]);
}

#[test]
fn a_huge_page_is_touched_as_often_as_the_time_to_its_first_access_says() {
    let interval = |over_s: f64, accessed_by_s: f64| {
        let mut seen = FirstAccess::default();
        seen.record_read(over_s, false, true);
        seen.record_read(accessed_by_s, true, true);
        AccessInterval::after_round(None, seen).expect("known")
    };
    let mut walks = RegionWalkRates {
        windows: 3,
        cpu_cores: Some(0.5),
        huge: [(1, 0.004), (2, 0.004), (3, 0.249)]
            .map(|(n, over_s)| (region_at_index(n), (interval(over_s, over_s + 0.002), 3)))
            .into(),
        ..RegionWalkRates::default()
    };
    let huge = |(n, accessed)| RegionSample { order: PageOrder::HUGE, ..sample(n, accessed) };
    let mut samples = [(1, 512), (2, 0), (3, 512), (4, 512)].map(huge);
    walks.apply_to_regions(&mut samples);
    let touches = samples.map(|sample| sample.touches_per_s);
    assert_eq!(touches, [Some(100), Some(0), Some(2), None]);
}

#[test]
fn shared_regions_are_neither_seen_nor_missing() {
    let mut walks = RegionWalkRates {
        windows: 3,
        regions: [(region_at_index(1), (7, 3))].into(),
        shared: [(region_at_index(2), 3)].into(),
        ..RegionWalkRates::default()
    };
    let mut samples = [1, 2, 3].map(|n| sample(n, 20));
    let applied = walks.apply_to_regions(&mut samples);
    assert_eq!(samples.map(|sample| sample.walks_per_s), [7, 0, 0]);
    assert_eq!((applied.set_bits, applied.probed_share), (20, 0.5));
    assert_eq!(
        [1, 2, 3].map(|n| walks.last_window_of_region_or_zero(region_at_index(n))),
        [3, 3, 0]
    );
}

#[test]
fn pages_that_could_not_be_cleared_are_not_touched() {
    let shared = PageBitmap([0b101, 0, 0, 0, 0, 0, 0, 1 << 63]);
    let round = RunningProbeRound {
        regions: Vec::new(),
        begun: Duration::ZERO,
        cpu_before: Duration::ZERO,
        cleared: Duration::ZERO,
        reads: 0,
        is_running: false,
        huge_first_access: HashMap::new(),
        for_rate: true,
        shared: [(region_at_index(1), shared)].into(),
    };
    let marks = AccessBitSnapshot {
        at: Duration::ZERO,
        accessed: PageBitmap([0b111, 0, 0, 0, 0, 0, 0, u64::MAX]),
        present: 512,
        write_protected: 3,
        huge: false,
    };
    let touched = PageBitmap([0b010, 0, 0, 0, 0, 0, 0, u64::MAX >> 1]);
    assert_eq!(round.touched_clearable_pages(region_at_index(1), &marks), touched);
    assert_eq!(round.touched_clearable_pages(region_at_index(2), &marks), marks.accessed);
}

#[test]
fn regions_of_a_slow_target_are_neither_shared_nor_probed() {
    let [private, maybe_shared] = [1, 2].map(region_at_index);
    let mut round = RunningProbeRound {
        regions: [private, maybe_shared].map(|region| (region, Duration::ZERO)).into(),
        begun: Duration::ZERO,
        cpu_before: Duration::ZERO,
        cleared: Duration::ZERO,
        reads: 0,
        is_running: false,
        huge_first_access: HashMap::new(),
        for_rate: true,
        shared: HashMap::new(),
    };
    let marks = |write_protected| AccessBitSnapshot {
        at: Duration::ZERO,
        accessed: PageBitmap::default(),
        present: 512,
        write_protected,
        huge: false,
    };
    let mut found = vec![Some(marks(0)), Some(marks(512))];
    let mut calls = CallHelperPool::default();
    let (own, eligible) = (process_with_pid(std::process::id()), EligibleRanges::default());
    let mut checked = Vec::new();
    let looked = |region, _: &AccessBitSnapshot, shared| checked.push((region, shared));
    let now = Instant::now();
    round.find_pages_shared_at_clear(own, &mut calls, &mut found, &eligible, now, looked);
    assert_eq!(checked, [(private, false)]);
    assert_eq!(round.regions, [(private, Duration::ZERO)]);
    assert_eq!(found, [Some(marks(0))]);
    assert_eq!(calls.statistics.longest, Duration::ZERO, "a call was made");
}

#[test]
fn shared_memory_of_several_processes_hides_accesses() {
    let walks = |known: &[u64], shared: &[u64]| RegionWalkRates {
        regions: known.iter().map(|n| (region_at_index(*n), (7, 1))).collect(),
        shared: shared.iter().map(|n| (region_at_index(*n), 1)).collect(),
        ..RegionWalkRates::default()
    };
    let file = FileRegion::at_offset(1, 7, 0);
    let of_file = |n| RegionSample { file, ..sample(n, 20) };
    let regions = [sample(1, 20), of_file(2), of_file(3), of_file(4)];
    assert!(!walks(&[1, 2], &[3, 4]).has_mostly_shared_files(&regions));
    assert!(walks(&[1], &[3, 4]).has_mostly_shared_files(&regions));
    // Copy-on-write after a fork, in private memory, is another matter.
    assert!(!walks(&[], &[1]).has_mostly_shared_files(&regions));
    assert!(!walks(&[], &[]).has_mostly_shared_files(&regions));
}
