use super::*;
use crate::observation::ProcessSample;
use crate::page::HUGE_PAGE_BYTES;

#[test]
fn bloat_is_what_was_never_accessed_what_is_zero_and_what_a_recovery_would_do_about_it() {
    let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
    let round = |touches: [u32; 4]| {
        let pages = (1..).zip(touches).map(|(index, touches)| touched(index, touches)).collect();
        observation(&[(1, pages)])
    };
    let totals =
        |planner: &RecoveryPlanner, second| planner.bloat_totals(process(1), at_second(second));
    let listed = (1..5).map(|index| huge_sample(index, false)).collect();
    let listed = ProcessSample::from_present_pages(process(1), listed);
    planner.observe(&Observation { processes: vec![listed], ..Observation::default() });
    assert_eq!(totals(&planner, 0), BloatTotals::default(), "a list of pages shows no accesses");
    planner.observe(&round([0, 0, 500, 30]));
    planner.observe(&round([0, 40, 0, 30]));
    assert_eq!(totals(&planner, 0).never_accessed_bytes, HUGE_PAGE_BYTES, "the first one alone");
    for (index, zero_pages) in [(1, 512), (2, 400), (3, 300), (4, 63)] {
        let searched = Event::Searched { process: process(1), region: region(index), zero_pages };
        planner.apply_event(at_second(0), &searched);
    }
    let expected = BloatTotals {
        unused_bytes: (512 + 400 + 300 + 63) * BASE_PAGE_BYTES,
        never_accessed_bytes: HUGE_PAGE_BYTES,
        freed_part_bytes: 0,
        // The last one has too few zero base pages for a split.
        recoverable_bytes: (512 + 400 + 300) * BASE_PAGE_BYTES,
        recovery_walks_per_s: 40.0,
    };
    assert_eq!(totals(&planner, 1), expected);
    let none = planner.bloat_totals(process(2), at_second(1));
    let freed = BloatTotals { freed_part_bytes: BASE_PAGE_BYTES, ..none };
    assert_eq!(
        [expected, freed, expected].into_iter().sum::<BloatTotals>(),
        BloatTotals {
            unused_bytes: 2 * expected.unused_bytes,
            never_accessed_bytes: 2 * HUGE_PAGE_BYTES,
            freed_part_bytes: BASE_PAGE_BYTES,
            recoverable_bytes: 2 * expected.recoverable_bytes,
            recovery_walks_per_s: 80.0,
        }
    );
}

#[test]
fn an_access_bit_tells_something_once_a_window_has_cleared_it() {
    let never_accessed = |kinds: SampleKinds, samples: [RegionSample; 3]| {
        let (threshold, order) = (BloatThreshold::default(), RecoveryOrder::MostBytesPerSlowdown);
        let mut planner = RecoveryPlanner::new(threshold, order, kinds);
        samples.map(|sample| {
            planner.observe(&observation(&[(1, vec![sample])]));
            planner.bloat_totals(process(1), at_second(0)).never_accessed_bytes > 0
        })
    };
    let [set, clear] = [true, false].map(|accessed| huge_sample(1, accessed));
    let overhead = SampleKinds::OVERHEAD;
    // The first touch set the bit. Nothing cleared it until a window probed the region.
    assert_eq!(never_accessed(overhead, [set, clear, clear]), [false, true, true]);
    assert_eq!(never_accessed(overhead, [set, clear, set]), [false, true, false]);
    assert_eq!(never_accessed(overhead, [touched(1, 9), clear, clear]), [false; 3]);
    // A window for coverage clears all bits before it is read.
    assert_eq!(never_accessed(SampleKinds::COVERAGE, [set, clear, clear]), [false; 3]);
    assert_eq!(never_accessed(SampleKinds::COVERAGE, [clear, clear, set]), [true, true, false]);
}

#[test]
fn what_is_left_huge_is_unused_and_not_recoverable() {
    let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
    let round =
        |second| Observation { at: at_second(second), ..observation(&[(1, vec![touched(1, 1)])]) };
    planner.observe(&round(0));
    planner.apply_event(at_second(0), &given_back(process(1), region(1), 1 << 20));
    planner.observe(&round(30));
    let searched = Event::Searched { process: process(1), region: region(1), zero_pages: 100 };
    planner.apply_event(at_second(31), &searched);
    let totals = |second| planner.bloat_totals(process(1), at_second(second));
    let bytes = |second| (totals(second).unused_bytes, totals(second).recoverable_bytes);
    let hundred = 100 * BASE_PAGE_BYTES;
    assert_eq!((bytes(31), bytes(900)), ((hundred, 0), (hundred, hundred)));
}
