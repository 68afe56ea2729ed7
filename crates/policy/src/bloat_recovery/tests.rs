mod totals;

use super::*;
use crate::observation::{CoverageSource, RegionSample};
use crate::test_support::{
    assert_reason_text_and_json, at_second, huge_sample, observation, process, promoted_event,
    recovered_event, region, sample,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn planner() -> RecoveryPlanner {
    planner_with(RecoveryOrder::LowestOverheadFirst)
}

fn planner_with(order: RecoveryOrder) -> RecoveryPlanner {
    RecoveryPlanner::new(BloatThreshold::default(), order, SampleKinds::OVERHEAD)
}

fn take(planner: &mut RecoveryPlanner, now: Duration) -> Option<RecoveryTarget> {
    planner.take_next_huge_page(now, |_| true)
}

fn next(planner: &mut RecoveryPlanner, now: Duration) -> Option<RegionAddr> {
    take(planner, now).map(|target| target.region)
}

fn number_of(target: RecoveryTarget) -> (u32, u64) {
    (target.process.pid, target.region.start() >> 21)
}

fn scan_all(planner: &mut RecoveryPlanner, now: Duration) -> Vec<(u32, u64)> {
    std::iter::from_fn(|| take(planner, now)).map(number_of).collect()
}

const SHORT: MemoryShortage =
    MemoryShortage { used_percent: 90.0, start_percent: 85.0, growth_bytes_per_s: 7 };

/// Recovers until nothing is left; `zero_pages` of each huge page, by process and region.
fn split_all(
    planner: &mut RecoveryPlanner,
    now: Duration,
    zero_pages: impl Fn(u32, u64) -> u16,
) -> Vec<(u32, u64)> {
    let mut split = Vec::new();
    while let Some(target) = take(planner, now) {
        let (pid, index) = number_of(target);
        let found = target.known_zero_pages.unwrap_or_else(|| zero_pages(pid, index));
        assert_eq!(found, zero_pages(pid, index));
        let RecoveryTarget { process, region, .. } = target;
        planner.apply_event(now, &Event::Searched { process, region, zero_pages: found });
        if planner.split_reason(target, found, SHORT, false, |_| true).is_some() {
            split.push((pid, index));
            let bytes = u64::from(found) * BASE_PAGE_BYTES;
            planner.apply_event(now, &given_back(process, region, bytes));
        }
        assert!(split.len() < 1000, "it ends");
    }
    split
}

fn given_back(process: ProcessId, region: RegionAddr, given_bytes: u64) -> Event {
    match recovered_event(process, region) {
        Event::Recovered { process, region, reason, took, searched_for, .. } => {
            Event::Recovered { process, region, reason, bytes: given_bytes, took, searched_for }
        }
        other => other,
    }
}

/// A huge page that is accessed this often per second.
fn touched(index: u64, touches_per_s: u32) -> RegionSample {
    RegionSample { touches_per_s: Some(touches_per_s), ..huge_sample(index, touches_per_s > 0) }
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
    let first = planner.take_next_huge_page(at_second(0), only_2).map(|target| target.process);
    assert_eq!(first, Some(process(2)));
    assert_eq!(planner.take_next_huge_page(at_second(0), only_2), None);
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
fn a_page_that_the_kernel_does_not_split_rests_for_twice_as_long_each_time() {
    for order in [RecoveryOrder::LowestOverheadFirst, RecoveryOrder::MostBytesPerSlowdown] {
        let mut planner = planner_with(order);
        let round = observation(&[(1, vec![touched(1, 1)])]);
        let mut now = at_second(0);
        for seconds in [10, 20, 40, 80, 160, 320, 640, 640] {
            planner.observe(&round);
            assert_eq!(next(&mut planner, now), Some(region(1)), "{seconds}");
            let (process, region) = (process(1), region(1));
            planner.apply_event(now, &Event::NotSplit { process, region });
            planner.observe(&round);
            now += at_second(seconds);
            assert_eq!(next(&mut planner, now - at_second(1)), None, "{order:?} {seconds}");
        }
        // One that is split and huge again is a new page.
        planner.apply_event(now, &recovered_event(process(1), region(1)));
        planner.apply_event(now, &promoted_event(process(1), region(1)));
        assert_eq!(next(&mut planner, now), Some(region(1)));
    }
}

#[test]
fn promotions_and_splits_update_the_list() {
    let mut planner = planner();
    planner.observe(&observation(&[(1, vec![huge_sample(1, true)])]));
    planner.apply_event(at_second(0), &promoted_event(process(1), region(0)));
    planner.apply_event(at_second(0), &promoted_event(process(5), region(9)));
    planner.apply_event(at_second(0), &recovered_event(process(1), region(1)));
    assert_eq!(scan_all(&mut planner, at_second(0)), [(1, 0), (5, 9)]);
    // Split and huge again within the rest: it is a new huge page, without the old rest.
    planner.apply_event(at_second(0), &recovered_event(process(1), region(0)));
    planner.apply_event(at_second(0), &promoted_event(process(1), region(0)));
    assert_eq!(scan_all(&mut planner, at_second(30)), [(1, 0)]);
    assert_eq!(scan_all(&mut planner, at_second(60)), [(5, 9)]);
    assert_eq!(scan_all(&mut planner, at_second(90)), [(1, 0)]);
    planner.observe(&observation(&[]));
    assert_eq!(scan_all(&mut planner, at_second(900)), []);
}

#[test]
fn split_at_or_above_the_threshold() {
    let reason = |order: RecoveryOrder, zero_pages| {
        let mut planner = planner_with(order);
        planner.observe(&observation(&[(1, vec![touched(1, 30)])]));
        let target = take(&mut planner, at_second(0)).expect("a huge page");
        planner.split_reason(target, zero_pages, SHORT, false, |_| true)
    };
    let bloat = |walks_per_s| {
        Reason::new(BloatSplitReason {
            zero_pages: 64,
            threshold: 64,
            walks_per_s,
            used_percent: 90.0,
            start_percent: 85.0,
            growth_bytes_per_s: 7,
        })
    };
    assert_reason_text_and_json(
        &bloat(None),
        "64 zero base pages (threshold 64) with 90 % of memory in use, growing by 0 MB/s (recovery starts at 85 %)",
        r#"{"rule":"bloat","zero_pages":64,"threshold":64,"used_percent":90.0,"start_percent":85.0,"growth_bytes_per_s":7}"#,
    );
    let text = bloat(Some(30)).to_string();
    assert!(text.contains("(threshold 64), expected to cost 30 page walks/s, with 90 %"), "{text}");
    for (order, walks) in [
        (RecoveryOrder::LowestOverheadFirst, None),
        (RecoveryOrder::MostBytesPerSlowdown, Some(30)),
    ] {
        assert_eq!(reason(order, 63), None);
        assert_eq!(reason(order, 64), Some(bloat(walks)));
    }
    assert!(BloatThreshold::new(0).is_err());
    assert!(BloatThreshold::new(513).is_err());
    assert!(BloatThreshold::new(512).is_ok());
}

#[test]
fn what_a_split_costs_and_regains_decides_whichever_process_has_it() {
    let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
    // The process with the lowest overhead has hot bloat, the other one cold bloat.
    let low = vec![touched(1, 5000), touched(2, 5000), touched(3, 0)];
    let high = vec![touched(1, 0), touched(2, 50), touched(3, 5000)];
    planner.observe(&observation(&[(1, low), (2, high)]));
    planner.set_process_overhead(process(1), Some(0.0));
    planner.set_process_overhead(process(2), Some(50.0));
    let zero = |pid, index| match (pid, index) {
        (1, 3) => 100,
        (2, 3) => 0,
        _ => 400,
    };
    let split = split_all(&mut planner, at_second(0), zero);
    // 400 pages for nothing, 100 pages for nothing or 400 for 50 walks/s, then the hot ones.
    assert_eq!(split[0], (2, 1));
    assert_eq!(BTreeSet::from_iter(&split[1..3]), BTreeSet::from_iter(&[(1, 3), (2, 2)]));
    assert_eq!(split[3..], [(1, 1), (1, 2)]);
    assert_eq!(planner.bloat_totals(process(2), at_second(0)).unused_bytes, 0);
}

#[test]
fn emd_splits_the_most_bloated_pages_of_all_processes_in_turn() {
    let mut planner = planner_with(RecoveryOrder::MostBloatedFirst);
    let pages = || (1..=4).map(|index| touched(index, 9)).collect();
    planner.observe(&observation(&[(1, pages()), (2, pages())]));
    let zero = |_, index| if index > 2 { 500 } else { 200 };
    let split = split_all(&mut planner, at_second(0), zero);
    let turns: Vec<u32> = split.iter().map(|(pid, _)| *pid).collect();
    assert!(split[..4].iter().all(|(_, index)| *index > 2), "{split:?}");
    assert!(turns.chunks(2).all(|pair| pair[0] != pair[1]), "{split:?}");
    assert_eq!(split.len(), 8);
}

#[test]
fn danger_splits_what_was_found_whatever_may_be_better() {
    for (urgent, split) in [(false, false), (true, true)] {
        let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
        planner.observe(&observation(&[(1, vec![touched(1, 10), touched(2, 10)])]));
        let target = take(&mut planner, at_second(0)).expect("a huge page");
        let searched = Event::Searched { process: process(1), region: region(1), zero_pages: 70 };
        planner.apply_event(at_second(0), &searched);
        // The other one is expected to hold far more.
        let reason = planner.split_reason(target, 70, SHORT, urgent, |_| true);
        assert_eq!(reason.is_some(), split);
        assert_eq!(planner.pages_to_count(urgent), if urgent { 64 } else { 512 });
    }
    assert_eq!(planner().pages_to_count(false), 64);
}

#[test]
fn equal_programs_lose_alike_and_weights_count() {
    use CoverageSource::{AccessBits, Population};
    for (weights, source, share_of_first) in [
        ([1.0, 1.0], AccessBits, 0.5),
        ([3.0, 1.0], AccessBits, 0.25),
        ([3.0, 1.0], Population, 0.25),
    ] {
        let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
        let pages = || (0..200).map(|index| touched(index, 100 + index as u32 % 7)).collect();
        let mut round = observation(&[(1, pages()), (2, pages())]);
        for (sample, weight) in round.processes.iter_mut().zip(weights) {
            (sample.terms.weight, sample.source) = (weight, source);
        }
        planner.observe(&round);
        // A listing does not know the weights.
        planner.observe_listing(&observation(&[(1, pages()), (2, pages())]));
        let mut lost = [0.0; 3];
        for _ in 0..100 {
            let target = take(&mut planner, at_second(0)).expect("enough huge pages");
            let RecoveryTarget { process, region, .. } = target;
            lost[process.pid as usize] += 1.0;
            planner.apply_event(at_second(0), &given_back(process, region, 1 << 20));
        }
        let share: f64 = lost[1] / 100.0;
        assert!((share - share_of_first).abs() < 0.015, "{lost:?}");
    }
}

#[test]
fn a_cgroup_of_many_processes_loses_no_more_than_one_of_one() {
    let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
    let pages = || (0..100).map(|index| touched(index, 100)).collect::<Vec<_>>();
    planner.observe(&observation(&[(1, pages()), (2, pages()), (3, pages())]));
    let group = |process: ProcessId| Some(if process.pid < 3 { "/two" } else { "/one" }.to_owned());
    planner.set_missing_groups(group);
    let mut lost = [0; 4];
    for _ in 0..100 {
        let RecoveryTarget { process, region, .. } =
            take(&mut planner, at_second(0)).expect("enough huge pages");
        lost[process.pid as usize] += 1;
        planner.apply_event(at_second(0), &given_back(process, region, 1 << 20));
    }
    assert_eq!(lost, [0, 25, 25, 50]);
    // The second process moves, and takes along what it has lost.
    planner.forget_groups();
    planner.set_missing_groups(|it| Some(if it.pid == 1 { "/two" } else { "/one" }.to_owned()));
    for _ in 0..49 {
        let target = take(&mut planner, at_second(0)).expect("enough huge pages");
        assert_eq!(target.process, process(1));
        planner.apply_event(at_second(0), &given_back(process(1), target.region, 1 << 20));
    }
}

#[test]
fn what_is_unknown_of_a_process_that_hardly_runs_costs_little() {
    let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
    let mut round = observation(&[
        (1, vec![huge_sample(1, true)]),
        (2, vec![touched(1, 500), huge_sample(2, true)]),
        (3, vec![huge_sample(1, true)]),
    ]);
    round.processes[2].cpu_cores = 0.01;
    planner.observe(&round);
    assert_eq!(next(&mut planner, at_second(0)), Some(region(1)));
    let split = split_all(&mut planner, at_second(0), |_, _| 400);
    assert_eq!(split, [(1, 1), (2, 1), (2, 2)], "the third process was first");
}

#[test]
fn walks_seen_before_a_promotion_are_remembered_until_the_page_is_left_alone() {
    let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
    let walked = RegionSample { walks_per_s: 900, ..sample(1, 400) };
    planner.observe(&observation(&[(1, vec![walked])]));
    planner.apply_event(at_second(1), &promoted_event(process(1), region(1)));
    let cost = |planner: &RecoveryPlanner| {
        planner.huge_page_bloat(process(1), region(1), at_second(2)).map(|it| it.walks_per_s)
    };
    assert_eq!(cost(&planner), Some(Some(900.0)));
    // Accesses are an upper limit of page walks.
    planner.observe(&observation(&[(1, vec![touched(1, 300)])]));
    assert_eq!(cost(&planner), Some(Some(300.0)));
    planner.observe(&observation(&[(1, vec![touched(1, 0)])]));
    assert_eq!(cost(&planner), Some(Some(0.0)));
}

#[test]
fn pages_are_searched_in_advance_in_turns_until_all_are_known() {
    let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
    let pages = |n: u64| (0..n).map(|index| touched(index, 1)).collect();
    planner.observe(&observation(&[(1, pages(3)), (2, pages(2))]));
    let mut found = Vec::new();
    while let Some((process, region)) = planner.next_huge_page_to_track(at_second(5), |_| None) {
        planner.apply_event(at_second(5), &Event::Searched { process, region, zero_pages: 100 });
        found.push(process.pid);
    }
    assert_eq!(found, [1, 2, 1, 2, 1]);
    let unused = |second| planner.bloat_totals(process(1), at_second(second)).unused_bytes;
    assert_eq!((unused(6), unused(4000)), (300 * BASE_PAGE_BYTES, 0), "an old count is stale");
    assert_eq!(planner.next_huge_page_to_track(at_second(500), |_| None), None);
    assert!(planner.next_huge_page_to_track(at_second(700), |_| None).is_some());
    let mut paper = planner_with(RecoveryOrder::LowestOverheadFirst);
    paper.observe(&observation(&[(1, pages(3))]));
    assert_eq!(paper.next_huge_page_to_track(at_second(5), |_| None), None);
}

#[test]
fn pages_of_an_idle_process_are_searched_again_before_their_counts_are_stale() {
    let due = |second, idle_since: Option<u64>| {
        let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
        planner.observe(&observation(&[(1, vec![touched(1, 1)])]));
        let searched = Event::Searched { process: process(1), region: region(1), zero_pages: 100 };
        planner.apply_event(at_second(5), &searched);
        let next =
            planner.next_huge_page_to_track(at_second(second), |_| idle_since.map(at_second));
        assert!(planner.bloat_totals(process(1), at_second(second)).unused_bytes > 0);
        next.is_some()
    };
    assert!(due(700, None));
    assert!(!due(700, Some(5)));
    assert!(due(3100, Some(5)));
    assert!(due(700, Some(6)), "it may have run after the search");
}

#[test]
fn a_page_that_recovery_took_is_searched_in_advance_like_others() {
    let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
    planner.observe(&observation(&[(1, vec![touched(1, 1)])]));
    let page = Some((process(1), region(1)));
    let found = |planner: &mut RecoveryPlanner, second, zero_pages| {
        let searched = Event::Searched { process: process(1), region: region(1), zero_pages };
        planner.apply_event(at_second(second), &searched);
    };
    assert_eq!(next(&mut planner, at_second(5)), Some(region(1)));
    found(&mut planner, 5, 10);
    assert_eq!(planner.next_huge_page_to_track(at_second(700), |_| None), page);
    found(&mut planner, 700, 400);
    // The end of the round, and the next round.
    assert_eq!(planner.next_huge_page_to_track(at_second(705), |_| None), None);
    assert_eq!(
        planner.next_huge_page_to_track(at_second(740), |_| None),
        None,
        "it was searched just now"
    );
    found(&mut planner, 3990, 400);
    let unused = planner.bloat_totals(process(1), at_second(4000)).unused_bytes;
    assert_eq!(unused, 400 * BASE_PAGE_BYTES);
    // It rests since 5 s, whatever was found meanwhile.
    assert_eq!(next(&mut planner, at_second(4010)), Some(region(1)));
    assert_eq!(next(&mut planner, at_second(4010)), None);
}

#[test]
fn a_search_that_failed_says_nothing_of_the_page() {
    let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
    planner.observe(&observation(&[(1, vec![touched(1, 1)])]));
    assert_eq!(next(&mut planner, at_second(5)), Some(region(1)));
    assert_eq!(planner.huge_page_bloat(process(1), region(1), at_second(6)), None);
    let page = Some((process(1), region(1)));
    assert_eq!(planner.next_huge_page_to_track(at_second(6), |_| None), page);
}

#[test]
fn a_count_grows_old_however_often_it_is_used() {
    let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
    planner.observe(&observation(&[(1, vec![touched(1, 1000)]), (2, vec![touched(1, 0)])]));
    let searched = Event::Searched { process: process(1), region: region(1), zero_pages: 70 };
    planner.apply_event(at_second(0), &searched);
    for (second, known) in [(3, Some(70)), (6, Some(70)), (9, Some(70)), (12, None)] {
        let only_1 = |it: ProcessId| it == process(1);
        let target = planner.take_next_huge_page(at_second(second), only_1).expect("a huge page");
        assert_eq!(target.known_zero_pages, known, "{second}");
        // The other one comes before it, so it waits again.
        assert_eq!(planner.split_reason(target, 70, SHORT, false, |_| true), None);
    }
}

#[test]
fn what_a_program_fills_again_is_left_huge_for_a_while() {
    let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
    let round = |second| Observation {
        at: at_second(second),
        ..observation(&[(1, vec![touched(1, 1), touched(2, 1)])])
    };
    planner.observe(&round(0));
    assert_eq!(
        split_all(&mut planner, at_second(0), |_, index| 300 * (index == 1) as u16).len(),
        1
    );
    planner.observe(&round(30));
    let hold = planner.hold_of_region(process(1), region(1), at_second(30));
    assert_eq!(hold.map(|hold| hold.state), Some(HeldState::Huge));
    assert!(planner.refilled_share(process(1)) > 0.0);
    assert_eq!(split_all(&mut planner, at_second(100), |_, _| 300), [(1, 2)]);
    planner.observe(&round(900));
    assert_eq!(split_all(&mut planner, at_second(900), |_, _| 300).len(), 2);
}

#[test]
fn a_region_that_promotion_and_recovery_undo_in_turn_is_kept_split() {
    let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
    planner.observe(&observation(&[(1, vec![touched(1, 1)])]));
    for second in [0, 40] {
        assert!(!planner.is_kept_split(process(1), region(1), at_second(second)));
        let bytes = 300 * BASE_PAGE_BYTES;
        planner.apply_event(at_second(second), &given_back(process(1), region(1), bytes));
        planner.apply_event(at_second(second + 10), &promoted_event(process(1), region(1)));
    }
    assert!(planner.is_kept_split(process(1), region(1), at_second(41)));
    assert!(!planner.is_kept_split(process(1), region(1), at_second(41 + 240)));
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
            while let Some(target) = take(&mut planner, at_second(start)).map(number_of) {
                prop_assert!(seen.insert(target));
                scans += 1;
                if scans % observe_every == 0 {
                    planner.observe(&round);
                }
            }
            prop_assert_eq!(seen.len(), pages.iter().map(Vec::len).sum::<usize>());
        }
    }

    /// In an order by rank, every page with enough zero pages is split, and no page is lost.
    #[test]
    fn every_bloated_page_is_split_in_the_end(
        zero in prop::collection::vec(prop::collection::vec(0u16..=512, 0..12), 0..4),
        touches in prop::collection::vec(0u32..10_000, 12),
        emd: bool,
    ) {
        let pages = |zero: &Vec<u16>| {
            (0u64..).zip(zero).zip(&touches).map(|((i, _), t)| touched(i, *t)).collect()
        };
        let all: Vec<_> = (1u32..).zip(&zero).map(|(pid, zero)| (pid, pages(zero))).collect();
        let order = match emd {
            true => RecoveryOrder::MostBloatedFirst,
            false => RecoveryOrder::MostBytesPerSlowdown,
        };
        let mut planner = planner_with(order);
        planner.observe(&observation(&all));
        let found = |pid: u32, index: u64| zero[pid as usize - 1][index as usize];
        let split = split_all(&mut planner, at_second(0), found);
        let bloated = zero.iter().flatten().filter(|pages| **pages >= 64).count();
        prop_assert_eq!(split.len(), bloated);
    }
}

/// A huge page of which base pages map what the process has not given back.
fn partly_freed(index: u64, freed: u16) -> RegionSample {
    RegionSample { present: 512 - freed, freed, ..sample(index, 0) }
}

#[test]
fn what_a_process_gave_back_is_freed_first_and_is_no_loss_to_it() {
    let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
    planner.observe(&observation(&[(1, vec![touched(1, 9), touched(2, 9), touched(3, 9)])]));
    planner.observe(&observation(&[(1, vec![partly_freed(1, 400), touched(2, 9), sample(3, 0)])]));
    let freed = 400 * BASE_PAGE_BYTES;
    let expected =
        BloatTotals { freed_part_bytes: freed, recoverable_bytes: freed, ..BloatTotals::default() };
    assert_eq!(planner.bloat_totals(process(1), at_second(1)), expected);
    let zero_pages = |_, index| if index == 1 { 400 } else { 500 };
    assert_eq!(split_all(&mut planner, at_second(1), zero_pages), [(1, 1), (1, 2)]);
    // It takes memory of both again. That undoes the split of the second alone.
    let round = observation(&[(1, vec![touched(1, 9), touched(2, 9)])]);
    planner.observe(&Observation { at: at_second(30), ..round });
    let held = |index| planner.hold_of_region(process(1), region(index), at_second(30)).is_some();
    assert_eq!((held(1), held(2)), (false, true));
}

#[test]
fn what_was_given_back_is_freed_at_any_time_and_once() {
    let mut planner = planner_with(RecoveryOrder::LowestOverheadFirst);
    let few = partly_freed(2, 63);
    planner.observe(&observation(&[(1, vec![partly_freed(1, 64), few, huge_sample(3, false)])]));
    let (target, reason) = planner.take_next_freed_part(at_second(0)).expect("a huge page");
    assert_eq!((number_of(target), target.known_zero_pages), ((1, 1), Some(64)));
    assert_reason_text_and_json(
        &reason,
        "64 base pages that the program gave back",
        r#"{"rule":"freed-part","freed_pages":64}"#,
    );
    assert!(planner.take_next_freed_part(at_second(0)).is_none(), "few parts stay");
    // The kernel refused it. It rests.
    let refused = Event::NotSplit { process: process(1), region: region(1) };
    planner.apply_event(at_second(0), &refused);
    assert!(planner.take_next_freed_part(at_second(9)).is_none());
    assert!(planner.take_next_freed_part(at_second(10)).is_some());
}

#[test]
fn while_memory_is_short_small_parts_are_freed_too() {
    let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
    let parts = vec![partly_freed(1, 15), partly_freed(2, 16), partly_freed(3, 300)];
    planner.observe(&observation(&[(1, parts)]));
    let freed = |_, index: u64| [15, 16, 300][index as usize - 1];
    assert_eq!(split_all(&mut planner, at_second(0), freed), [(1, 3), (1, 2)]);
}

#[test]
fn a_page_whose_rest_was_given_back_meanwhile_is_none_any_more() {
    let mut planner = planner_with(RecoveryOrder::MostBytesPerSlowdown);
    planner.observe(&observation(&[(1, vec![partly_freed(1, 400)])]));
    let searched = Event::Searched { process: process(1), region: region(1), zero_pages: 0 };
    planner.apply_event(at_second(1), &searched);
    assert_eq!(planner.bloat_totals(process(1), at_second(1)), BloatTotals::default());
    assert_eq!(split_all(&mut planner, at_second(100), |_, _| 0), []);
}

#[test]
fn shared_memory_is_never_split() {
    let file = crate::FileRegion::at_offset(1, 7, 0);
    for order in [RecoveryOrder::LowestOverheadFirst, RecoveryOrder::MostBytesPerSlowdown] {
        let mut planner = planner_with(order);
        let shared = RegionSample { file, ..huge_sample(1, false) };
        planner.observe(&observation(&[(1, vec![shared, huge_sample(2, false)])]));
        let mut promoted = promoted_event(process(1), region(3));
        if let Event::Promoted { file: promoted_file, .. } = &mut promoted {
            *promoted_file = file;
        }
        planner.apply_event(at_second(0), &promoted);
        assert_eq!(scan_all(&mut planner, at_second(0)), [(1, 2)], "{order:?}");
    }
}
