//! Limits that were once broken.

use hawkeye_manager::{Machine, Settings};
use hawkeye_policy::PromotionBlockReason;
use hawkeye_test_support::builders::*;
use hawkeye_test_support::machine::ScriptedChange;
use std::time::Duration;

/// Rule 3. Memory is read once a second, and in a second hundreds of regions are promoted.
#[test]
fn promotion_does_not_take_memory_over_the_high_watermark() {
    let mut machine = machine(GIB);
    let mut sparse = base(0, 400, 1.0);
    sparse.used_pages = 60;
    machine.start(program(&[sparse]));
    machine.schedule(s(0.0), ScriptedChange::OtherMemory(600 * MIB));
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling());
    let mut most = 0;
    run_watching(&mut manager, s(30.0), |manager| {
        most = most.max(manager.machine().used_bytes());
    });
    assert!(!promoted(&manager).is_empty());
    assert!(most <= GIB * 85 / 100 + 2 * MIB, "{most} bytes in use");
}

/// `step` promotes only while nothing is recovered. A group that stays over its watermark is
/// recovered from anew at each look. Other groups get a batch when a window happens to end.
#[test]
fn a_full_group_does_not_hold_up_others() {
    let mut machine = machine(16 * GIB);
    machine.limit_group("/full", 100 * MIB);
    machine.start(in_group("/full", &[base(0, 45, 1.0)]));
    let other = machine.start(program(&[base(0, 32, 1.0)]));
    let manager = managed(machine, "hawkeye-g", with_promotion_rate(1.0), s(60.0));
    assert_eq!(huge(&manager, other), 64 * MIB);
}

/// A process that is missing from an observation counts as gone, even if it only could not be read.
#[test]
fn recovered_regions_are_remembered_over_a_failed_sample() {
    let mut machine = running(4 * GIB, &[bloated(0, 64, 1.0)]);
    machine.schedule(s(12.0), ScriptedChange::OtherMemory(7 * GIB / 2));
    machine.schedule(s(40.0), ScriptedChange::OtherMemory(0));
    machine.schedule(s(60.0), ScriptedChange::FailSamples(u32::MAX));
    machine.schedule(s(70.0), ScriptedChange::FailSamples(0));
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling());
    run(&mut manager, s(60.0));
    assert_eq!(recovered(&manager).len(), 64);
    run(&mut manager, s(100.0));
    assert_eq!(promoted(&manager), []);
}

/// One minute's worth may be used at once, and the inflow meanwhile comes on top.
#[test]
fn the_cpu_budget_holds_over_the_first_minute() {
    let machine = running(16 * GIB, &[base(0, 400, 1.0)]);
    let manager = managed(machine, "hawkeye-g", with_cpu_percent(0.1), s(60.0));
    let used = manager.machine().management_costs().cpu;
    assert!(used <= Duration::from_millis(60 + 6), "{used:?} of 60 ms");
}

#[test]
fn a_hold_for_want_of_sight_is_shown() {
    let mut machine = running(16 * GIB, &[base(0, 8, 1.0)]);
    machine.schedule(s(3.5), ScriptedChange::FailMemory(u32::MAX));
    let manager = managed(machine, "hawkeye-g", frequent_sampling(), s(10.0));
    assert_eq!(
        manager.promotion_held_by(),
        Some(&PromotionBlockReason::Unknown)
    );
}

/// While promotion is held, each batch takes every proposal from the policy and drops it. The
/// policy then has nothing to propose until the next window.
#[test]
fn promotion_goes_on_soon_after_a_short_hold() {
    let mut machine = running(16 * GIB, &[base(0, 32, 1.0)]);
    let mut dry = manager_of(machine.clone(), "hawkeye-g", Settings::default());
    run(&mut dry, s(60.0));
    let first = first_promotion(&dry);
    machine.schedule(first.saturating_sub(s(1.5)), ScriptedChange::Pressure(50.0));
    machine.schedule(first + s(1.5), ScriptedChange::Pressure(0.0));
    let manager = managed(machine, "hawkeye-g", Settings::default(), first + s(6.0));
    assert_eq!(promoted(&manager).len(), 32);
}

/// Memory is read again only after a batch of 50 ms, in which some 95 huge pages are split.
#[test]
fn recovery_stops_just_under_the_low_watermark() {
    let mut machine = machine(16 * GIB);
    machine.limit_group("/full", 290 * MIB);
    // 256 of 290 MiB are in use.
    machine.start(in_group("/full", &[bloated(0, 128, 1.0)]));
    let manager = managed(machine, "hawkeye-g", frequent_sampling(), s(60.0));
    let percent = manager.machine().group_used_bytes("/full") * 100 / (290 * MIB);
    assert!((68..70).contains(&percent), "{percent} %");
}
