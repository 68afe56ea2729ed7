//! Limits that were once broken.

use hawkeye_manager::Settings;
use hawkeye_test_support::builders::*;

/// Rule 3. Memory is read once a second, and in a second hundreds of regions are promoted.
#[test]
fn promotion_does_not_take_memory_over_the_high_watermark() {
    for policy in ["hawkeye-g", "ingens"] {
        let mut machine = machine_running_parts(GIB, &[base_page_part(0, 400, 1.0).using(60)]);
        machine.other_bytes = 600 * MIB;
        let mut manager = manager_of(machine, policy, frequent_sampling_settings());
        let mut most = 0;
        run_manager_watching(&mut manager, seconds(30.0), |manager| {
            most = most.max(used_bytes(manager));
        });
        assert!(!promotions(&manager).is_empty());
        assert!(most <= GIB * 85 / 100 + 2 * MIB, "{policy}: {most} bytes in use");
    }
}

/// `run_due_work_and_wait` promotes only while nothing is recovered. A group that stays over its
/// watermark is recovered from anew at each look. Other groups get a batch when a window happens to
/// end.
#[test]
fn a_full_group_does_not_hold_up_others() {
    let mut machine = ScriptedMachine::new(16 * GIB);
    machine.groups.insert("/full", 100 * MIB);
    machine.add_program(program_in_group("/full", &[base_page_part(0, 45, 1.0)]));
    let other = machine.add_program(program_of_parts(&[base_page_part(0, 32, 1.0)]));
    let manager =
        run_manager_of(machine, "hawkeye-g", settings_with_promotion_rate(1.0), seconds(60.0));
    assert_eq!(huge_bytes_of(&manager, other), 64 * MIB);
}

/// While promotion is held, each batch takes every proposal from the policy and drops it. The
/// policy then has nothing to propose until the next window.
#[test]
fn promotion_goes_on_soon_after_a_short_hold() {
    let mut machine = machine_running_parts(16 * GIB, &[base_page_part(0, 32, 1.0)]);
    let mut dry = manager_of(machine.clone(), "hawkeye-g", Settings::default());
    run_manager_until(&mut dry, seconds(60.0));
    let first = first_promotion_time(&dry);
    machine.schedule(first.saturating_sub(seconds(1.5)), |machine| machine.pressure_percent = 50.0);
    machine.schedule(first + seconds(1.5), |machine| machine.pressure_percent = 0.0);
    let manager = run_manager_of(machine, "hawkeye-g", Settings::default(), first + seconds(6.0));
    assert_eq!(promotions(&manager).len(), 32);
}
