use super::*;
use crate::test_support::{
    assert_reason_text_and_json, at_second, huge_sample, observation, process, promoted_event,
    recovered_event, region, sample,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn planner() -> RecoveryPlanner {
    RecoveryPlanner::new(BloatThreshold::default())
}

fn next(planner: &mut RecoveryPlanner, now: Duration) -> Option<RegionAddr> {
    planner.take_next_huge_page_to_scan(now, |_| true).map(|(_, region)| region)
}

fn scan_all(planner: &mut RecoveryPlanner, now: Duration) -> Vec<(u32, u64)> {
    std::iter::from_fn(|| planner.take_next_huge_page_to_scan(now, |_| true))
        .map(|(process, region)| (process.pid, region.start() >> 21))
        .collect()
}

#[test]
fn lowest_overhead_first() {
    let mut planner = planner();
    let round: Vec<_> = (1..=3).map(|pid| (pid, vec![huge_sample(1, pid == 1)])).collect();
    planner.observe(&observation(&round));
    planner.set_process_overhead(process(1), Some(1.0));
    planner.set_process_overhead(process(2), Some(9.0));
    // 3 is unknown and counts as 5 %. Overhead goes before access.
    assert_eq!(scan_all(&mut planner, at_second(0)), [(1, 1), (3, 1), (2, 1)]);
}

#[test]
fn without_overheads_unaccessed_pages_of_all_processes_come_first() {
    let mut planner = planner();
    let samples =
        vec![huge_sample(1, true), huge_sample(2, false), sample(3, 0), huge_sample(4, false)];
    planner.observe(&observation(&[(1, samples.clone()), (2, samples)]));
    planner.set_process_overhead(process(1), Some(f64::NAN));
    let order = scan_all(&mut planner, at_second(0));
    let idle_first = [(1, 2), (1, 4), (2, 2), (2, 4), (1, 1), (2, 1)];
    assert_eq!(order, idle_first);
}

#[test]
fn only_from_the_processes_allowed() {
    let mut planner = planner();
    planner.observe(&observation(&[
        (1, vec![huge_sample(1, false)]),
        (2, vec![huge_sample(1, true)]),
    ]));
    let only_2 = |p: ProcessId| p == process(2);
    let first =
        planner.take_next_huge_page_to_scan(at_second(0), only_2).map(|(process, _)| process);
    assert_eq!(first, Some(process(2)));
    assert_eq!(planner.take_next_huge_page_to_scan(at_second(0), only_2), None);
}

#[test]
fn scanned_pages_are_not_scanned_again_at_once() {
    let mut planner = planner();
    let round = observation(&[(1, vec![huge_sample(1, false), huge_sample(2, false)])]);
    planner.observe(&round);
    assert_eq!(next(&mut planner, at_second(0)), Some(region(1)));
    assert_eq!(next(&mut planner, at_second(10)), Some(region(2)));
    planner.observe(&round);
    assert_eq!(scan_all(&mut planner, at_second(59)), []);
    assert_eq!(scan_all(&mut planner, at_second(60)), [(1, 1)]);
    assert_eq!(scan_all(&mut planner, at_second(70)), [(1, 2)]);
    assert_eq!(scan_all(&mut planner, at_second(119)), []);
    assert_eq!(scan_all(&mut planner, at_second(200)), [(1, 1), (1, 2)]);
}

#[test]
fn promotions_and_splits_update_the_list() {
    let mut planner = planner();
    planner.observe(&observation(&[(1, vec![huge_sample(1, true)])]));
    planner.apply_event(&promoted_event(process(1), region(0)));
    planner.apply_event(&promoted_event(process(5), region(9)));
    planner.apply_event(&recovered_event(process(1), region(1)));
    assert_eq!(scan_all(&mut planner, at_second(0)), [(1, 0), (5, 9)]);
    // Split and huge again within the rest: it is a new huge page, without the old rest.
    planner.apply_event(&recovered_event(process(1), region(0)));
    planner.apply_event(&promoted_event(process(1), region(0)));
    assert_eq!(scan_all(&mut planner, at_second(30)), [(1, 0)]);
    assert_eq!(scan_all(&mut planner, at_second(60)), [(5, 9)]);
    assert_eq!(scan_all(&mut planner, at_second(90)), [(1, 0)]);
    planner.observe(&observation(&[]));
    assert_eq!(scan_all(&mut planner, at_second(900)), []);
}

#[test]
fn split_at_or_above_the_threshold() {
    let planner = planner();
    let short = MemoryShortage { used_percent: 90.0, start_percent: 85.0, growth_bytes_per_s: 7 };
    assert_eq!(planner.split_reason(63, short), None);
    let bloat = Reason::new(BloatSplitReason {
        zero_pages: 64,
        threshold: 64,
        used_percent: 90.0,
        start_percent: 85.0,
        growth_bytes_per_s: 7,
    });
    assert_reason_text_and_json(
        &bloat,
        "64 zero base pages (threshold 64) with 90 % of memory in use, growing by 0 MB/s (recovery starts at 85 %)",
        r#"{"rule":"bloat","zero_pages":64,"threshold":64,"used_percent":90.0,"start_percent":85.0,"growth_bytes_per_s":7}"#,
    );
    assert_eq!(planner.split_reason(64, short), Some(bloat));
    assert!(BloatThreshold::new(0).is_err());
    assert!(BloatThreshold::new(513).is_err());
    assert!(BloatThreshold::new(512).is_ok());
}

proptest! {
    /// Each huge page is scanned once a minute, and none is lost.
    #[test]
    fn each_page_is_scanned_once(
        pages in prop::collection::vec(prop::collection::vec(any::<bool>(), 0..20), 0..5),
        observe_every in 1usize..10,
    ) {
        let processes: Vec<_> = (1u32..)
            .zip(&pages)
            .map(|(pid, p)| (pid, (0u64..).zip(p).map(|(i, a)| huge_sample(i, *a)).collect()))
            .collect();
        let round = observation(&processes);
        let mut planner = planner();
        planner.observe(&round);
        for start in [0, 60, 120] {
            let mut seen = BTreeSet::new();
            let mut scans = 0;
            while let Some(target) = planner.take_next_huge_page_to_scan(at_second(start), |_| true) {
                prop_assert!(seen.insert(target));
                scans += 1;
                if scans % observe_every == 0 {
                    planner.observe(&round);
                }
            }
            prop_assert_eq!(seen.len(), pages.iter().map(Vec::len).sum::<usize>());
        }
    }
}
