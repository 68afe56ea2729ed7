//! Several fills under way at once, as worker threads do them.

use super::*;
use std::collections::VecDeque;

const LAST: u64 = FIRST + 999;

impl SimulatedFills {
    /// A world with a program known to use what it passes through, reported in the first region.
    fn with_stream() -> Self {
        let mut pool = Self::new(1000);
        pool.report(FIRST);
        pool
    }

    fn report(&mut self, at: u64) {
        self.predictor.on_fault_report(self.now, process(1), advance(at, 1, true));
    }

    /// All regions handed out before any result, at most `most`.
    fn all(&mut self, most: usize) -> Vec<PrefaultTask> {
        std::iter::from_fn(|| self.next()).take(most).collect()
    }

    /// Returns whether the stream ended with it.
    fn end(&mut self, task: PrefaultTask, what: PrefaultResult) -> bool {
        self.predictor.on_prefault_result(self.now, task, what)
    }

    fn done(&mut self, task: PrefaultTask) {
        assert!(!self.end(task, PrefaultResult::Done));
        self.room_regions = self.room_regions.saturating_sub(1);
    }

    /// Regions filled ahead of streams, and fills under way.
    fn counts(&self) -> (u64, u64) {
        let predictor = &self.predictor;
        (predictor.count_regions_prefaulted_ahead(), predictor.count_prefaults_under_way())
    }

    fn with_warm_start(regions: u64) -> Self {
        let mut pool = Self::new(1000);
        pool.predictor.request_warm_start(process(1), regions);
        let last = region(LAST);
        pool.predictor.on_new_mapping(pool.now, process(1), last);
        pool
    }
}

fn places(tasks: &[PrefaultTask]) -> Vec<u64> {
    let place = |task: &PrefaultTask| task.region.start() / HUGE_PAGE_BYTES - FIRST;
    tasks.iter().map(place).collect()
}

fn at_full_window() -> (SimulatedFills, u64) {
    let mut pool = SimulatedFills::with_stream();
    let mut at = FIRST;
    for _ in 0..6 {
        let tasks = pool.all(100);
        at += tasks.len() as u64;
        for task in tasks {
            pool.done(task);
        }
        pool.report(at);
    }
    (pool, at - FIRST)
}

#[test]
fn a_window_is_handed_out_in_order_and_once() {
    let (mut pool, at) = at_full_window();
    let tasks = pool.all(100);
    let window: Vec<u64> = (at + 1..=at + 64).collect();
    assert_eq!(places(&tasks), window);
    assert_eq!(pool.predictor.count_prefaults_under_way(), 64);
    // The fills end in any order, which makes no further fill due.
    for task in tasks.into_iter().rev() {
        pool.done(task);
        assert_eq!(pool.next(), None);
    }
    assert_eq!(pool.counts(), (64, 0));
}

#[test]
fn a_program_that_reaches_a_fill_under_way_outruns_the_fillers() {
    let (mut pool, at) = at_full_window();
    let tasks = pool.all(2);
    assert_eq!(places(&tasks), [at + 1, at + 2]);
    // The program moves on to regions under way, so the next regions are left to it.
    pool.report(FIRST + at + 1);
    assert_eq!(places(&pool.all(1)), [at + 1 + 1 + 4]);
    let before = pool.predictor.count_regions_prefaulted_ahead();
    for task in tasks {
        pool.done(task);
    }
    // Regions that the program has passed do not count.
    assert_eq!(pool.predictor.count_regions_prefaulted_ahead(), before);
}

#[test]
fn the_window_goes_on_if_only_the_first_fill_under_way_is_reached() {
    let (mut pool, at) = at_full_window();
    let tasks = pool.all(12);
    pool.report(FIRST + at + 1);
    assert_eq!(places(&pool.all(1)), [at + 13], "the window goes on");
    for task in tasks {
        pool.done(task);
    }
    assert_eq!(pool.predictor.count_regions_prefaulted_ahead(), 12);
}

#[test]
fn regions_under_way_are_not_checked() {
    let (mut pool, _) = at_full_window();
    let mut tasks = pool.all(100);
    let halfway = tasks.remove(31);
    for task in tasks {
        pool.done(task);
    }
    assert_eq!(pool.predictor.next_progress_check(), None);
    pool.done(halfway);
    let peek = pool.predictor.next_progress_check();
    assert_eq!(peek.map(|(_, task)| task.region), Some(halfway.region));
}

#[test]
fn a_refusal_in_the_middle_ends_the_stream_and_drops_its_other_results() {
    let (mut pool, at) = at_full_window();
    let mut tasks = pool.all(5);
    let refused = tasks.remove(2);
    assert!(pool.end(refused, PrefaultResult::Refused));
    assert_eq!(pool.counts(), (0, 4));
    assert_eq!(pool.next(), None);
    // Meanwhile another stream of the same process begins, further on.
    pool.report(FIRST + at + 500);
    for task in tasks.drain(1..) {
        pool.done(task);
    }
    let last = tasks.remove(0);
    let ends = pool.end(last, PrefaultResult::Refused);
    assert!(!ends, "the stream had ended already");
    assert_eq!(places(&pool.all(1)), [at + 501]);
    assert_eq!(pool.predictor.count_prefaults_under_way(), 1);
}

#[test]
fn a_region_under_way_is_handed_out_once() {
    let (mut pool, at) = at_full_window();
    let first = pool.all(1);
    // Forgotten, and reported again in the same place.
    pool.predictor.forget_process(process(1));
    assert_eq!(pool.predictor.count_prefaults_under_way(), 1);
    pool.report(FIRST + at);
    assert_eq!(pool.next(), None);
    let [first] = first[..] else { panic!("expected one task") };
    pool.end(first, PrefaultResult::Occupied);
    assert_eq!(places(&pool.all(2)), [at + 1, at + 2]);
}

#[test]
fn fills_under_way_stay_within_the_memory_limit() {
    let (mut pool, at) = at_full_window();
    pool.room_regions = 3;
    let tasks = pool.all(100);
    assert_eq!(places(&tasks), [at + 1, at + 2, at + 3]);
    let [first, second, third] = tasks[..] else { panic!("expected three tasks") };
    pool.done(first);
    // Two fills are under way, with room for two.
    assert_eq!(pool.next(), None);
    pool.end(second, PrefaultResult::Occupied);
    assert_eq!(places(&pool.all(100)), [at + 4]);
    pool.done(third);
    assert_eq!(pool.next(), None);
}

#[test]
fn a_warm_start_fills_at_most_what_was_requested() {
    let mut pool = SimulatedFills::with_warm_start(5);
    let mut tasks = VecDeque::from(pool.all(3));
    assert_eq!(tasks.len(), 3);
    let mut filled = BTreeSet::new();
    while let Some(task) = tasks.pop_front() {
        // The program was there first, now and then.
        let what = if task.region.start() / HUGE_PAGE_BYTES % 3 == 0 {
            PrefaultResult::Occupied
        } else {
            assert!(filled.insert(task.region), "a region was filled twice");
            PrefaultResult::Done
        };
        pool.end(task, what);
        let wanted = pool.predictor.warm_start_regions_left(process(1));
        tasks.extend(pool.all(3 - tasks.len()));
        assert!(pool.predictor.count_prefaults_under_way() <= wanted);
    }
    assert_eq!(filled.len(), 5);
}

#[test]
fn fills_under_way_for_an_ended_process_are_not_counted() {
    for becomes_another in [false, true] {
        let mut pool = SimulatedFills::with_warm_start(100);
        let tasks = pool.all(4);
        if becomes_another {
            pool.predictor.forget_process(process(1));
            pool.predictor.request_warm_start(process(1), 100);
        } else {
            pool.predictor.retain_processes(|_| false);
        }
        assert_eq!(pool.next(), None);
        let under_way = pool.predictor.count_prefaults_under_way();
        assert_eq!(under_way, 4, "fills under way still count");
        let results = [PrefaultResult::Done, PrefaultResult::Refused, PrefaultResult::Occupied];
        for (task, what) in tasks.into_iter().zip(results.into_iter().cycle()) {
            assert!(!pool.end(task, what));
        }
        assert_eq!(pool.counts(), (0, 0));
        let warm = if becomes_another { 100 } else { 0 };
        assert_eq!(pool.predictor.warm_start_regions_left(process(1)), warm);
    }
}

#[test]
fn first_windows_are_bounded_with_many_fills_under_way() {
    let mut pool = SimulatedFills::new(1000);
    pool.mapped.end = region(FIRST + 100_000).end();
    let mut tasks = Vec::new();
    for n in 0..16 {
        let advance = advance(FIRST + n * 1000, 1, false);
        pool.predictor.on_fault_report(pool.now, process(1), advance);
        tasks.extend(pool.all(100));
    }
    assert_eq!(tasks.len(), 24);
    for task in tasks {
        pool.done(task);
    }
    assert_eq!(pool.next(), None);
}

/// A program that touches one region after the other, as fast as it can. A missing region takes it
/// as long as a worker. Returns how many it faults in by itself.
fn faults_beside(workers: usize) -> u64 {
    const FILL: u64 = 4;
    let mut pool = SimulatedFills::new(1000);
    let mut there = BTreeSet::new();
    let mut working: VecDeque<(u64, PrefaultTask)> = VecDeque::new();
    let mut faulting = None;
    let (mut at, mut faults) = (FIRST, 0);
    for tick in 0.. {
        while let Some((_, task)) = working.front().copied().filter(|(end, _)| *end <= tick) {
            working.pop_front();
            let fresh = there.insert(task.region.start() / HUGE_PAGE_BYTES);
            let what = if fresh { PrefaultResult::Done } else { PrefaultResult::Occupied };
            pool.end(task, what);
        }
        pool.now += Duration::from_micros(60);
        if faulting.is_some_and(|end| end <= tick) {
            faulting = None;
            there.insert(at);
        }
        while faulting.is_none() && there.contains(&at) {
            at += 1;
        }
        if at > LAST {
            break;
        }
        if faulting.is_none() {
            faults += 1;
            faulting = Some(tick + FILL);
            pool.report(at);
        }
        while working.len() < workers {
            let Some(task) = pool.next() else { break };
            let under_way = working.iter().any(|(_, other)| other.region == task.region);
            assert!(!under_way, "a region is filled twice at once");
            working.push_back((tick + FILL, task));
        }
    }
    faults
}

#[test]
fn a_fast_program_is_helped_by_each_worker_in_turn() {
    let faults = [1, 2, 4].map(faults_beside);
    // All work at the same speed: a half, a third, a fifth, plus those needed to recognise the
    // stream.
    for (faults, part) in faults.into_iter().zip([2, 3, 5]) {
        assert!(faults < 1000 / part + 150, "{faults}, over 1/{part}");
    }
}
