//! Failures of calls, and how the manager handles them.

use hawkeye_manager::{Event, JournalEntry, LoopWakeReason, Machine, MachineError};
use hawkeye_policy::{Errno, PromotionBlockReason};
use hawkeye_test_support::builders::*;
use std::time::Duration;

#[test]
fn refused_candidates_come_back_after_a_cool_down() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 8, 1.0)]);
    machine.promotion_answers = [(Duration::ZERO, Some(Errno::EAGAIN)); 3].into();
    let manager =
        run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(120.0));
    let refused = refused_promotions(&manager);
    assert!(refused.iter().map(|(.., r)| *r).eq(regions_at(0..3)));
    let promoted = promotions(&manager);
    assert_eq!(promoted.len(), 8);
    for (at, _, region) in refused {
        let again = promoted.iter().find(|(.., r)| *r == region);
        let later = again.map(|(again, ..)| *again - at);
        assert!(later >= Some(seconds(30.0)), "{at:?} {later:?}");
    }
}

#[test]
fn the_best_region_waits_for_memory_and_is_not_left_alone() {
    for (shortages, paused) in [(1, 0.1), (7, 0.7), (8, 0.9)] {
        let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 8, 1.0)]);
        machine.promotion_answers = vec![(Duration::ZERO, Some(Errno::ENOMEM)); shortages].into();
        let manager =
            run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(120.0));
        let refused = refused_promotions(&manager);
        let promoted = promotions(&manager);
        assert_eq!(promoted.len(), 8);
        let (first, _, best) = refused[0];
        assert_eq!(refused.len(), shortages);
        assert!(refused.iter().all(|(.., region)| *region == best));
        let (at, _, region) = promoted[0];
        // Pauses of 0.1 s; the last one is twice that.
        assert!(at >= first + seconds(paused), "{at:?} {first:?}");
        assert!(at < first + seconds(paused + 0.01), "{at:?} {first:?}");
        // After the eighth time other regions have their turn.
        assert_eq!(region == best, shortages < 8);
    }
}

#[test]
fn programs_are_sampled_and_end_while_memory_is_short() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 16, 1.0)]);
    machine.schedule(seconds(31.0), |machine| machine.end_program(FIRST_PROCESS));
    let long = machine.add_program(program_of_parts(&[base_page_part(0, 8, 1.0)]));
    // Seven pauses of 0.1 s, then each twice the last: this takes until after the first has ended.
    machine.promotion_answers = [(Duration::ZERO, Some(Errno::ENOMEM)); 15].into();
    let manager =
        run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(300.0));
    assert!(first_promotion_time(&manager) > seconds(31.0));
    assert_eq!(count_promotions_of(&manager, FIRST_PROCESS), 0);
    assert_eq!(count_promotions_of(&manager, long), 8);
}

#[test]
fn a_slow_call_stops_the_batch_and_pauses() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 16, 1.0)]);
    machine.promotion_answers = [(seconds(0.05), None); 2].into();
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(60.0));
    let times: Vec<Duration> = promotions(&manager).iter().map(|(at, ..)| *at).collect();
    let [first, second, third, fourth, ..] = times[..] else {
        panic!("{times:?}");
    };
    // A pause of 0.1 s, then one twice that; a batch of short calls follows.
    assert!(second >= first + seconds(0.05 + 0.1), "{times:?}");
    assert!(third >= second + seconds(0.05 + 0.2), "{times:?}");
    assert!(fourth < third + seconds(0.01), "{times:?}");
    assert_eq!(times.len(), 16);
}

#[test]
fn a_slow_refusal_counts_as_a_slow_call() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 16, 1.0)]);
    machine.promotion_answers = [(seconds(0.05), Some(Errno::EAGAIN))].into();
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(30.0));
    let refused = refused_promotions(&manager).first().map(|(at, ..)| *at);
    let next = promotions(&manager).first().map(|(at, ..)| *at);
    let later = refused.zip(next).map(|(refused, next)| next - refused);
    assert!(later >= Some(seconds(0.15)), "{later:?}");
}

#[test]
fn a_process_may_end_at_any_time() {
    for tenth in 0..120u32 {
        let at = Duration::from_millis(100) * tenth;
        let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 16, 1.0)]);
        machine.schedule(at, |machine| machine.end_program(FIRST_PROCESS));
        let long = machine.add_program(program_of_parts(&[base_page_part(0, 8, 1.0)]));
        machine.schedule(seconds(20.0), move |machine| machine.end_program(long));
        let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
        assert_eq!(run_manager_until(&mut manager, seconds(100.0)), LoopWakeReason::Stop);
        assert_eq!(manager.machine().now(), seconds(20.0));
        let promoted = promotions(&manager);
        let in_time = |(when, p, _): &(Duration, _, _)| *p != FIRST_PROCESS || *when < at;
        assert!(promoted.iter().all(in_time));
        assert_eq!(count_promotions_of(&manager, long), 8);
    }
}

#[test]
fn without_sight_of_memory_nothing_is_promoted() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 8, 1.0)]);
    machine.memory_unreadable = true;
    machine.schedule(seconds(30.0), |machine| machine.memory_unreadable = false);
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
    run_manager_until(&mut manager, seconds(30.0));
    assert_eq!(promotions(&manager), []);
    let is_trouble = |entry: &JournalEntry| matches!(entry.event, Event::Trouble { .. });
    assert!(manager.journal().entries().any(is_trouble));
    assert_eq!(manager.memory().held.as_ref(), Some(&PromotionBlockReason::Unknown));
    run_manager_until(&mut manager, seconds(60.0));
    assert_eq!(promotions(&manager).len(), 8);
}

#[test]
fn promotions_and_recovery_wait_for_helpers() {
    let parts = [base_page_part(0, 8, 1.0), bloated_part(300, 256, 1.0)];
    let machine = machine_running_parts(16 * GIB, &parts);
    let settings = settings_with_max_promotions(64);
    let mut dry = manager_of(machine.clone(), "hawkeye-g", settings);
    run_manager_until(&mut dry, seconds(20.0));
    let first = first_promotion_time(&dry);
    let mut promoting = machine.clone();
    promoting.without_helpers = true;
    promoting.schedule(first + seconds(0.35), |machine| machine.without_helpers = false);
    let manager = run_manager_of(promoting, "hawkeye-g", settings, first + seconds(2.0));
    assert_eq!(promotions(&manager).len(), 8);

    let mut short = machine;
    (short.without_helpers, short.other_bytes) = (true, 15 * GIB);
    short.schedule(seconds(29.0), |machine| machine.without_helpers = false);
    let manager = run_manager_of(short, "none", frequent_sampling_settings(), seconds(40.0));
    assert_eq!(recoveries(&manager).len(), 256);
}

#[test]
fn a_process_that_cannot_be_sampled_for_a_while_is_promoted_later() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 8, 1.0)]);
    let unreadable = |_| MachineError::Other("it cannot be sampled".to_owned());
    machine.sample_errors = vec![unreadable as fn(_) -> _; 3].into();
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(60.0));
    assert_eq!(promotions(&manager).len(), 8);
}

#[test]
fn memory_freed_since_the_window_is_not_refilled() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 64, 1.0)]);
    // Freed just after the first promotion, with most of the batch still to come.
    machine.promotion_answers = [(seconds(0.05), None)].into();
    let settings = settings_with_max_promotions(64);
    let mut dry = manager_of(machine.clone(), "hawkeye-g", settings);
    run_manager_until(&mut dry, seconds(20.0));
    let first = first_promotion_time(&dry);
    let free = |machine: &mut ScriptedMachine| machine.set_used_pages(FIRST_PROCESS, 0, 10);
    machine.schedule(first + seconds(0.04), free);
    let manager = run_manager_of(machine, "hawkeye-g", settings, first + seconds(2.0));
    let totals = manager.journal().totals();
    assert!(totals.freed > 50, "{totals:?}");
    assert!(rss_bytes_of(&manager, FIRST_PROCESS) < 4 * MIB);
}
