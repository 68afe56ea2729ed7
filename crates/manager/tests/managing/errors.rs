//! Failures of calls, and how the manager handles them.

use hawkeye_manager::{Event, JournalEntry, LoopWakeReason, Machine};
use hawkeye_policy::{Errno, PromotionBlockReason};
use hawkeye_test_support::builders::*;
use hawkeye_test_support::scripted_machine::{ProgramSpec, ScriptedChange};
use std::time::Duration;

#[test]
fn refused_candidates_come_back_after_a_cool_down() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 8, 1.0)]);
    machine.fail_next_promotions(3, Errno::EAGAIN);
    let manager =
        run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(120.0));
    let refused = refused_promotions(&manager);
    let expected = (0..3).map(region_at_index);
    assert!(refused.iter().map(|(_, r)| *r).eq(expected));
    let promoted = promotions(&manager);
    assert_eq!(promoted.len(), 8);
    for (at, region) in refused {
        let again = promoted.iter().find(|(.., r)| *r == region);
        let later = again.map(|(again, ..)| *again - at);
        assert!(later >= Some(seconds(30.0)), "{at:?} {later:?}");
    }
}

#[test]
fn the_best_region_waits_for_memory_and_is_not_left_alone() {
    for (shortages, paused) in [(1, 0.1), (7, 0.7), (8, 0.9)] {
        let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 8, 1.0)]);
        machine.fail_next_promotions(shortages, Errno::ENOMEM);
        let manager =
            run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(120.0));
        let refused = refused_promotions(&manager);
        let promoted = promotions(&manager);
        assert_eq!(promoted.len(), 8);
        let (first, best) = refused[0];
        assert_eq!(refused.len(), shortages as usize);
        assert!(refused.iter().all(|(_, region)| *region == best));
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
    let (mut machine, short) = machine_with_program(
        16 * GIB,
        program_ending_at(seconds(31.0), &[base_page_part(0, 16, 1.0)]),
    );
    let long = machine.add_program(program_of_parts(&[base_page_part(0, 8, 1.0)]));
    // Seven pauses of 0.1 s, then each twice the last: this takes until after the first has ended.
    machine.fail_next_promotions(15, Errno::ENOMEM);
    let manager =
        run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(300.0));
    assert!(first_promotion_time(&manager) > seconds(31.0));
    assert_eq!(count_promotions_of(&manager, short), 0);
    assert_eq!(count_promotions_of(&manager, long), 8);
}

#[test]
fn a_slow_call_stops_the_batch_and_pauses() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 16, 1.0)]);
    machine.slow_next_promotions(2, seconds(0.05));
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(60.0));
    assert!(manager.machine().management_costs().longest_call > seconds(0.05));
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
    machine.slow_next_promotions(1, seconds(0.05));
    machine.fail_next_promotions(1, Errno::EAGAIN);
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(30.0));
    let refused = refused_promotions(&manager).first().map(|(at, _)| *at);
    let next = promotions(&manager).first().map(|(at, ..)| *at);
    let later = refused.zip(next).map(|(refused, next)| next - refused);
    assert!(later >= Some(seconds(0.15)), "{later:?}");
}

#[test]
fn a_process_may_end_at_any_time() {
    for tenth in 0..120u32 {
        let at = Duration::from_millis(100) * tenth;
        let (mut machine, short) =
            machine_with_program(16 * GIB, program_ending_at(at, &[base_page_part(0, 16, 1.0)]));
        let long = machine.add_program(program_of_parts(&[base_page_part(0, 8, 1.0)]));
        machine.schedule_change(seconds(20.0), ScriptedChange::Exit(long));
        let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
        assert_eq!(run_manager_until(&mut manager, seconds(100.0)), LoopWakeReason::Stop);
        assert_eq!(manager.machine().now(), seconds(20.0));
        let promoted = promotions(&manager);
        let in_time = |(when, p, _): &(Duration, _, _)| *p != short || *when < at;
        assert!(promoted.iter().all(in_time));
        assert_eq!(count_promotions_of(&manager, long), 8);
    }
}

#[test]
fn processes_that_arrive_later_are_managed_too() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 8, 1.0)]);
    let late = machine.add_program(ProgramSpec {
        arrives: seconds(31.7),
        ..program_of_parts(&[base_page_part(0, 8, 1.0)])
    });
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(80.0));
    let of_late = |(at, process, _): &(Duration, _, _)| *process != late || *at > seconds(31.7);
    assert!(promotions(&manager).iter().all(of_late));
    assert_eq!(huge_bytes_of(&manager, late), 16 * MIB);
}

#[test]
fn without_sight_of_memory_nothing_is_promoted() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 8, 1.0)]);
    machine.schedule_change(seconds(0.0), ScriptedChange::FailMemory(u32::MAX));
    machine.schedule_change(seconds(30.0), ScriptedChange::FailMemory(0));
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
    run_manager_until(&mut manager, seconds(30.0));
    assert_eq!(promotions(&manager), []);
    let is_trouble = |entry: &JournalEntry| matches!(entry.event, Event::Trouble { .. });
    assert!(manager.journal().entries().any(is_trouble));
    run_manager_until(&mut manager, seconds(60.0));
    assert_eq!(promotions(&manager).len(), 8);
}

#[test]
fn a_process_that_cannot_be_sampled_for_a_while_is_promoted_later() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 8, 1.0)]);
    machine.schedule_change(seconds(0.0), ScriptedChange::FailSamples(3));
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(60.0));
    assert_eq!(promotions(&manager).len(), 8);
}

#[test]
fn memory_freed_since_the_window_is_not_refilled() {
    let (mut machine, process) =
        machine_with_program(16 * GIB, program_of_parts(&[base_page_part(0, 64, 1.0)]));
    // Freed just after the first promotion, with most of the batch still to come.
    machine.slow_next_promotions(1, seconds(0.05));
    let settings = settings_with_max_promotions(64);
    let mut dry = manager_of(machine.clone(), "hawkeye-g", settings);
    run_manager_until(&mut dry, seconds(20.0));
    let first = first_promotion_time(&dry);
    machine.schedule_change(first + seconds(0.04), ScriptedChange::Use(process, 0, 10));
    let manager = run_manager_of(machine, "hawkeye-g", settings, first + seconds(2.0));
    let totals = manager.journal().totals();
    assert!(totals.freed > 50, "{totals:?}");
    assert!(rss_bytes_of(&manager, process) < 4 * MIB);
}

#[test]
fn where_no_huge_frame_is_free_promotion_is_refused_and_nothing_breaks() {
    // 161 MiB of 192: 84 %, just under the watermark. Only huge frames until memory is full.
    let mut machine = machine_running_parts(192 * MIB, &[base_page_part(0, 80, 1.0)]);
    machine.schedule_change(seconds(0.0), ScriptedChange::OtherMemory(MIB));
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(60.0));
    assert!(manager.machine().used_bytes() <= 192 * MIB);
    assert_eq!(promotions(&manager).len(), 80);
}

#[test]
fn above_the_watermark_the_manager_says_why_it_holds() {
    let machine = machine_running_parts(100 * MIB, &[base_page_part(0, 45, 1.0)]);
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(30.0));
    let held = manager.memory().held.as_ref();
    assert!(matches!(held, Some(PromotionBlockReason::AboveHigh { .. })), "{held:?}");
    assert_eq!(promotions(&manager), []);
}
