use super::*;
use crate::page::HUGE_PAGE_BYTES;
use crate::test_support::{process, region};
use std::collections::BTreeSet;
use std::ops::Range;

mod several;

/// A mapping, a program's way through it, and a filler that works on it. One step of this world is
/// the time in which the filler fills one region.
struct SimulatedFills {
    predictor: PrefaultPredictor,
    mapped: Range<u64>,
    room_regions: u64,
    /// Regions that are present, and those of them that were filled.
    there: BTreeSet<u64>,
    filled: BTreeSet<u64>,
    touched: BTreeSet<u64>,
    /// Whether present memory is checked.
    peeks: bool,
    faults: u64,
    now: Duration,
    in_use: bool,
    /// Whether a region cannot be filled while its program touches it.
    refuses_while_touched: bool,
}

const FIRST: u64 = 1000;

fn advance(at: u64, step: i32, dense: bool) -> StreamFaultReport {
    let region = region(at);
    StreamFaultReport { region, step, dense }
}

impl SimulatedFills {
    fn new(regions: u64) -> Self {
        let bytes = |n: u64| region(n).start();
        Self {
            predictor: PrefaultPredictor::default(),
            mapped: bytes(FIRST)..bytes(FIRST + regions),
            room_regions: u64::MAX,
            there: BTreeSet::new(),
            filled: BTreeSet::new(),
            touched: BTreeSet::new(),
            peeks: false,
            faults: 0,
            now: Duration::ZERO,
            in_use: true,
            refuses_while_touched: false,
        }
    }

    fn touch(&mut self, at: u64, step: i32) {
        self.touched.insert(at);
        if !self.there.insert(at) {
            return;
        }
        self.faults += 1;
        let advance = advance(at, step, false);
        self.predictor.on_fault_report(self.now, process(1), advance);
    }

    fn walk(&mut self, regions: Range<u64>, filled_for_each: usize) {
        for at in regions {
            self.touch(at, 1);
            self.work(filled_for_each);
        }
    }

    /// Checks that the program faulted at most this often.
    fn assert_faults(&self, most: u64) {
        assert!(self.faults <= most, "{} faults", self.faults);
    }

    fn next(&mut self) -> Option<PrefaultTask> {
        let around =
            PrefaultableMemory { mapped: self.mapped.clone(), room_regions: self.room_regions };
        let whole = |_, _| Some(around.clone());
        self.predictor.hand_out_next_prefault(self.now, whole)
    }

    fn work(&mut self, regions: usize) {
        for _ in 0..regions {
            self.now += Duration::from_micros(350);
            let due = |(at, _): &(Duration, PrefaultTask)| self.peeks && *at <= self.now;
            while let Some((_, task)) = self.predictor.next_progress_check().filter(due) {
                let at = task.region.start() / HUGE_PAGE_BYTES;
                let halfway = self.touched.contains(&at);
                self.predictor.on_progress_check_result(self.now, task, halfway);
            }
            while let Some(task) = self.predictor.next_use_check() {
                self.predictor.on_use_check_result(task, self.in_use);
            }
            let Some(task) = self.next() else { continue };
            let at = task.region.start() / HUGE_PAGE_BYTES;
            let is_touched_now = self.touched.last() == Some(&at);
            let is_touched = task.touch != RegionTouch::Untouched;
            assert!(!is_touched || self.in_use, "nothing has proven its use");
            let can_be_filled = is_touched && !(self.refuses_while_touched && is_touched_now);
            let what = if self.there.insert(at) || can_be_filled {
                self.filled.insert(at);
                self.room_regions = self.room_regions.saturating_sub(1);
                PrefaultResult::Done
            } else {
                PrefaultResult::Occupied
            };
            self.predictor.on_prefault_result(self.now, task, what);
        }
    }
}

#[test]
fn a_program_slower_than_the_filler_faults_once_a_window() {
    let mut world = SimulatedFills::new(1000);
    world.walk(FIRST..FIRST + 1000, 3);
    // 2, 4, 8, 16, 32 and then 64 regions at a time.
    world.assert_faults(9 + 1000 / 64);
}

#[test]
fn a_program_checked_between_faults_faults_no_more() {
    let mut world = SimulatedFills::new(3000);
    world.peeks = true;
    world.walk(FIRST..FIRST + 3000, 3);
    world.assert_faults(12);
    assert_eq!(world.filled.len() as u64 + world.faults, 3000);
}

#[test]
fn a_stopped_program_is_checked_ever_less_often() {
    let mut world = SimulatedFills::new(3000);
    world.peeks = true;
    world.walk(FIRST..FIRST + 500, 3);
    let ahead = world.predictor.count_regions_prefaulted_ahead();
    let mut looks = 0;
    let mut now = world.now;
    while let Some((at, task)) = world.predictor.next_progress_check() {
        now = now.max(at);
        if now > world.now + Duration::from_secs(8) {
            break;
        }
        looks += 1;
        world.predictor.on_progress_check_result(now, task, false);
    }
    assert!((10..60).contains(&looks), "{looks} looks in 8 s");
    let still_ahead = world.predictor.count_regions_prefaulted_ahead();
    assert_eq!(still_ahead, ahead, "nothing more is filled");
}

#[test]
fn descending_and_strided_streams_are_filled_too() {
    for step in [-1i32, 3, -2] {
        let mut world = SimulatedFills::new(900);
        let start = if step > 0 { FIRST } else { FIRST + 899 };
        for n in 0..300 {
            world.touch(start.saturating_add_signed(n * i64::from(step)), step);
            world.work(3);
        }
        world.assert_faults(9 + 300 / 64);
        let passed_over = |at: &&u64| (**at as i64 - start as i64) % i64::from(step) != 0;
        assert_eq!(world.filled.iter().filter(passed_over).count(), 0);
    }
}

#[test]
fn a_program_faster_than_the_filler_shares_the_work() {
    let mut world = SimulatedFills::new(2000);
    for at in FIRST..FIRST + 2000 {
        let faults = world.faults;
        world.touch(at, 1);
        // Faulting a region in takes the program as long as the filler needs for one. Memory that
        // is present takes no time.
        world.work(usize::from(world.faults > faults));
    }
    let filled = world.filled.len();
    assert!(filled > 700, "{filled} of 2000 filled");
    world.assert_faults(1299);
}

#[test]
fn parallel_threads_are_separate_streams() {
    let mut world = SimulatedFills::new(4000);
    for n in 0..1000 {
        for thread in 0..4 {
            world.touch(FIRST + thread * 1000 + n, 1);
        }
        world.work(12);
    }
    world.assert_faults(4 * (9 + 1000 / 64));
}

#[test]
fn fills_end_at_the_mapping_and_at_the_memory_limit() {
    let mut world = SimulatedFills::new(40);
    world.room_regions = 20;
    world.walk(FIRST..FIRST + 30, 100);
    assert_eq!(world.filled.len(), 20);
    world.room_regions = 100;
    world.walk(FIRST + 30..FIRST + 40, 100);
    assert_eq!(world.filled.last(), Some(&(FIRST + 39)));
}

/// Walks through 1000 regions of a mapping that the program enlarges by `regions` each time it
/// comes to its end, as Go does. Returns how many were filled.
fn fills_in_mapping_enlarged_by(regions: u64, world: SimulatedFills) -> usize {
    let mut world = world;
    let whole = world.mapped.start;
    for at in FIRST..FIRST + 1000 {
        let end = region(FIRST + (at - FIRST + 1).next_multiple_of(regions)).start();
        world.mapped = whole..end;
        world.walk(at..at + 1, 3);
    }
    world.filled.len()
}

#[test]
fn a_mapping_that_its_program_enlarges_is_filled_as_far_as_it_goes() {
    for regions in [2, 8, 32] {
        for refuses_while_touched in [false, true] {
            let world = SimulatedFills { refuses_while_touched, ..SimulatedFills::new(0) };
            let filled = fills_in_mapping_enlarged_by(regions, world);
            assert!(filled > 950, "{filled} of 1000, {regions} at a time");
        }
        // A stream that nothing has proven yet fills only what it may.
        let world = SimulatedFills { in_use: false, ..SimulatedFills::new(0) };
        let unused = fills_in_mapping_enlarged_by(regions, world);
        assert!(unused <= 24, "{unused} unused, {regions} at a time");
    }
}

/// A stream that has come to the end of a mapping of two regions, and knows it. Its program is
/// known to use what it passes through.
fn stream_held_at_the_end_of_its_mapping() -> SimulatedFills {
    let mut world = SimulatedFills::new(2);
    let report = advance(FIRST, 1, true);
    world.predictor.on_fault_report(world.now, process(1), report);
    world.work(3);
    assert_eq!(world.filled.len(), 1);
    world
}

#[test]
fn a_report_from_within_the_old_mapping_hands_nothing_out_again() {
    let mut world = stream_held_at_the_end_of_its_mapping();
    let report = advance(FIRST + 1, 1, true);
    world.predictor.on_fault_report(world.now, process(1), report);
    assert_eq!(world.next(), None);
    // The stream goes on where the mapping does.
    world.mapped.end = region(FIRST + 4).start();
    let report = advance(FIRST + 2, 1, true);
    world.predictor.on_fault_report(world.now, process(1), report);
    let due = [world.next(), world.next()].map(|task| task.map(|task| task.region));
    assert_eq!(due, [Some(region(FIRST + 2)), Some(region(FIRST + 3))]);
}

#[test]
fn a_region_that_the_kernel_refuses_is_tried_twice_in_all() {
    let mut world = stream_held_at_the_end_of_its_mapping();
    world.mapped.end = region(FIRST + 3).start();
    let report = advance(FIRST + 2, 1, true);
    world.predictor.on_fault_report(world.now, process(1), report);
    let touched = world.next().expect("the first region of the new part is due");
    assert_eq!((touched.region, touched.touch), (region(FIRST + 2), RegionTouch::BeingTouched));
    // Refused before and after the program has left it.
    world.predictor.on_prefault_result(world.now, touched, PrefaultResult::Occupied);
    assert_eq!(world.next(), None, "the program is still there");
    world.mapped.end = region(FIRST + 4).start();
    let report = advance(FIRST + 3, 1, true);
    world.predictor.on_fault_report(world.now, process(1), report);
    let due = [(); 3].map(|()| {
        let task = world.next();
        if let Some(task) = task {
            world.predictor.on_prefault_result(world.now, task, PrefaultResult::Occupied);
        }
        task.map(|task| (task.region, task.touch))
    });
    let next = (region(FIRST + 3), RegionTouch::BeingTouched);
    let again = (region(FIRST + 2), RegionTouch::LeftBehind);
    assert_eq!(due, [Some(next), Some(again), None]);
}

#[test]
fn a_program_that_uses_few_pages_of_a_region_is_not_filled_for() {
    let mut world = SimulatedFills::new(4000);
    world.in_use = false;
    world.walk(FIRST..FIRST + 4000, 10);
    let filled = world.filled.len() as u64;
    // Some windows of the first size, until what was filled is left behind.
    let first = u64::from(super::super::fault_stream::FIRST_WINDOW);
    assert!(filled <= 3 * first, "{filled}");
}

#[test]
fn fills_are_bounded_for_a_process_whose_streams_use_none() {
    let mut world = SimulatedFills::new(100_000);
    world.in_use = false;
    for n in 0..1000 {
        for step in 0..3 {
            world.touch(FIRST + n * 100 + step, 1);
            world.work(4);
        }
    }
    assert!(world.filled.len() <= 24, "{}", world.filled.len());
}

#[test]
fn random_touches_get_few_fills() {
    let mut world = SimulatedFills::new(4096);
    let mut state = 1u64;
    for _ in 0..4096 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        let at = FIRST + (state >> 33) % 4096;
        // The kernel side reports neighbours now and then.
        world.touch(at, if state & 64 == 0 { 1 } else { -1 });
        world.work(1);
    }
    // Even when each touch looks like part of a stream.
    assert!(world.predictor.count_regions_prefaulted_ahead() <= 16 * 64);
}

#[test]
fn a_stopped_program_has_at_most_one_surplus_window() {
    let mut world = SimulatedFills::new(10_000);
    world.walk(FIRST..FIRST + 500, 3);
    world.work(1000);
    let surplus = world.filled.range(FIRST + 500..).count();
    assert!(surplus <= 64, "{surplus}");
    let known = world.predictor.count_regions_prefaulted_ahead();
    assert!(known <= 64, "{known}");
}

#[test]
fn regions_never_reached_count_as_unused() {
    let mut world = SimulatedFills::new(4000);
    world.walk(FIRST..FIRST + 500, 3);
    let ahead = world.predictor.count_regions_prefaulted_ahead();
    assert!((1..=64).contains(&ahead), "{ahead}");
    assert_eq!(world.predictor.count_unused_regions(), 0);
    let later = world.now + Duration::from_secs(20);
    world.predictor.forget_ended_streams(later);
    assert_eq!(world.predictor.count_regions_prefaulted_ahead(), 0);
    assert_eq!(world.predictor.count_unused_regions(), ahead);
}

#[test]
fn a_warm_start_fills_what_was_requested_once_it_is_mapped() {
    let mut world = SimulatedFills::new(4000);
    world.predictor.request_warm_start(process(1), 1000);
    let last = region(FIRST + 3999);
    world.predictor.on_new_mapping(world.now, process(1), last);
    // No reports for a long time.
    world.now += Duration::from_secs(100);
    world.work(1200);
    assert_eq!(world.filled.len(), 1000);
    assert_eq!(world.filled.first(), Some(&(FIRST + 3000)));
    assert_eq!(world.predictor.warm_start_regions_left(process(1)), 0);
    world.predictor.on_new_mapping(world.now, process(1), last);
    world.work(100);
    assert_eq!(world.filled.len(), 1000, "not more than requested");
}

#[test]
fn streams_are_filled_before_warm_starts() {
    let mut world = SimulatedFills::new(4000);
    world.predictor.request_warm_start(process(1), 4000);
    let last = region(FIRST + 3999);
    world.predictor.on_new_mapping(world.now, process(1), last);
    world.walk(FIRST..FIRST + 500, 3);
    // As without a request, but without waiting for proof.
    world.assert_faults(9 + 500 / 64);
    // In the time left over, the end is filled too.
    let from_the_end = world.filled.range(FIRST + 3000..).count();
    assert!(from_the_end > 500, "{from_the_end}");
}

#[test]
fn mappings_filled_on_request_are_bounded_and_displace_no_streams() {
    let mut predictor = PrefaultPredictor::default();
    let (process, now) = (process(1), Duration::ZERO);
    predictor.request_warm_start(process, 1 << 20);
    predictor.on_fault_report(now, process, advance(FIRST, 1, true));
    let mapping_end = |n: u64| region(FIRST + 1000 * (n + 1));
    for n in 0..16 {
        predictor.on_new_mapping(now, process, mapping_end(n));
    }
    for n in 16..30_000 {
        predictor.on_new_mapping(now + Duration::from_secs(1), process, mapping_end(n));
    }
    let asked_for = |it: &(_, &FaultStream)| it.1.asked_for;
    let streams: Vec<_> = predictor.streams_of_process(process).collect();
    assert_eq!(streams.iter().filter(|it| asked_for(it)).count(), 16);
    assert_eq!(streams.len(), 17, "the program's own stream is kept");
}

#[test]
fn of_mappings_seen_at_once_the_first_is_kept_longest() {
    let mut predictor = PrefaultPredictor::default();
    let process = process(1);
    predictor.request_warm_start(process, 1 << 20);
    for n in 0..20 {
        // The first 16 were seen at once.
        let now = Duration::from_secs(n / 16);
        predictor.on_new_mapping(now, process, region(FIRST + 1000 * n));
    }
    let ends = predictor.streams_of_process(process).map(|(_, it)| it.last_reported_region());
    let kept = (0..12).chain(16..20).map(|n| region(FIRST + 1000 * n));
    assert!(ends.eq(kept), "the smallest are replaced");
}
