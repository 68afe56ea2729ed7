//! Limits that were once broken.

use hawkeye_manager::{Machine, Settings};
use hawkeye_policy::PromotionBlockReason;
use hawkeye_test_support::builders::*;
use hawkeye_test_support::scripted_machine::ScriptedChange;
use std::time::Duration;

/// Rule 3. Memory is read once a second, and in a second hundreds of regions are promoted.
#[test]
fn promotion_does_not_take_memory_over_the_high_watermark() {
    let mut machine = machine_with_bytes(GIB);
    let mut sparse = base_page_part(0, 400, 1.0);
    sparse.used_pages = 60;
    machine.add_program(program_of_parts(&[sparse]));
    machine.schedule_change(seconds(0.0), ScriptedChange::OtherMemory(600 * MIB));
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
    let mut most = 0;
    run_manager_watching(&mut manager, seconds(30.0), |manager| {
        most = most.max(manager.machine().used_bytes());
    });
    assert!(!promotions(&manager).is_empty());
    assert!(most <= GIB * 85 / 100 + 2 * MIB, "{most} bytes in use");
}

/// `run_due_work_and_wait` promotes only while nothing is recovered. A group that stays over its
/// watermark is recovered from anew at each look. Other groups get a batch when a window happens to
/// end.
#[test]
fn a_full_group_does_not_hold_up_others() {
    let mut machine = machine_with_bytes(16 * GIB);
    machine.set_group_limit("/full", 100 * MIB);
    machine.add_program(program_in_group("/full", &[base_page_part(0, 45, 1.0)]));
    let other = machine.add_program(program_of_parts(&[base_page_part(0, 32, 1.0)]));
    let manager =
        run_manager_of(machine, "hawkeye-g", settings_with_promotion_rate(1.0), seconds(60.0));
    assert_eq!(huge_bytes_of(&manager, other), 64 * MIB);
}

/// A process that is missing from an observation counts as gone, even if it only could not be read.
#[test]
fn recovered_regions_are_remembered_over_a_failed_sample() {
    let mut machine = machine_running_parts(4 * GIB, &[bloated_part(0, 64, 1.0)]);
    machine.schedule_change(seconds(12.0), ScriptedChange::OtherMemory(7 * GIB / 2));
    machine.schedule_change(seconds(40.0), ScriptedChange::OtherMemory(0));
    machine.schedule_change(seconds(60.0), ScriptedChange::FailSamples(u32::MAX));
    machine.schedule_change(seconds(70.0), ScriptedChange::FailSamples(0));
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
    run_manager_until(&mut manager, seconds(60.0));
    assert_eq!(recoveries(&manager).len(), 64);
    run_manager_until(&mut manager, seconds(100.0));
    assert_eq!(promotions(&manager), []);
}

/// One minute's worth may be used at once, and the inflow meanwhile comes on top.
#[test]
fn the_cpu_budget_holds_over_the_first_minute() {
    let machine = machine_running_parts(16 * GIB, &[base_page_part(0, 400, 1.0)]);
    let manager =
        run_manager_of(machine, "hawkeye-g", settings_with_cpu_percent(0.1), seconds(60.0));
    let used = manager.machine().management_costs().cpu;
    assert!(used <= Duration::from_millis(60 + 6), "{used:?} of 60 ms");
}

#[test]
fn a_hold_for_want_of_sight_is_shown() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 8, 1.0)]);
    machine.schedule_change(seconds(3.5), ScriptedChange::FailMemory(u32::MAX));
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(10.0));
    assert_eq!(manager.memory().held.as_ref(), Some(&PromotionBlockReason::Unknown));
}

/// While promotion is held, each batch takes every proposal from the policy and drops it. The
/// policy then has nothing to propose until the next window.
#[test]
fn promotion_goes_on_soon_after_a_short_hold() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 32, 1.0)]);
    let mut dry = manager_of(machine.clone(), "hawkeye-g", Settings::default());
    run_manager_until(&mut dry, seconds(60.0));
    let first = first_promotion_time(&dry);
    machine.schedule_change(first.saturating_sub(seconds(1.5)), ScriptedChange::Pressure(50.0));
    machine.schedule_change(first + seconds(1.5), ScriptedChange::Pressure(0.0));
    let manager = run_manager_of(machine, "hawkeye-g", Settings::default(), first + seconds(6.0));
    assert_eq!(promotions(&manager).len(), 32);
}

/// Memory is read again only after a batch of 50 ms, in which some 95 huge pages are split.
#[test]
fn recovery_stops_just_under_the_low_watermark() {
    let mut machine = machine_with_bytes(16 * GIB);
    machine.set_group_limit("/full", 290 * MIB);
    // 256 of 290 MiB are in use.
    machine.add_program(program_in_group("/full", &[bloated_part(0, 128, 1.0)]));
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(60.0));
    let percent = manager.machine().group_used_bytes("/full") * 100 / (290 * MIB);
    assert!((68..70).contains(&percent), "{percent} %");
}
