//! Effects of a machine's rules.

use hawkeye_policy::{ProcessSettings, RegionAddr};
use hawkeye_test_support::builders::*;

fn limited(regions: u32, rule: usize, limit_mib: u64) -> ScriptedProgram {
    let mut program = program_of_parts(&[base_page_part(0, regions, 1.0)]);
    program.terms = ProcessSettings {
        max_huge_bytes: Some(limit_mib * MIB),
        rule: Some(rule),
        ..ProcessSettings::default()
    };
    program
}

#[test]
fn processes_of_one_rule_share_a_limit_of_huge_memory() {
    let mut machine = machine_running(16 * GIB, limited(32, 0, 40));
    let second = machine.add_program(limited(32, 0, 40));
    let other = machine.add_program(limited(32, 1, 64));
    let free = machine.add_program(program_of_parts(&[base_page_part(0, 32, 1.0)]));
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
    let mut most = 0;
    run_manager_watching(&mut manager, seconds(60.0), |manager| {
        most = most.max(huge_bytes_of(manager, FIRST_PROCESS) + huge_bytes_of(manager, second));
    });
    assert_eq!(most, 40 * MIB);
    assert_eq!(huge_bytes_of(&manager, other), 64 * MIB);
    assert_eq!(huge_bytes_of(&manager, free), 64 * MIB);
}

/// Samples show such regions where recovery has split them.
#[test]
fn base_pages_of_a_process_that_is_not_promoted_are_no_candidates() {
    for policy in ["hawkeye", "hawkeye-g", "ingens", "linux"] {
        let mut program = program_of_parts(&[base_page_part(0, 32, 1.0)]);
        program.terms.promotes = false;
        let machine = machine_running(16 * GIB, program);
        let manager = run_manager_of(machine, policy, frequent_sampling_settings(), seconds(30.0));
        assert_eq!(manager.journal().totals().promoted, 0, "{policy}");
    }
}

/// Until there is room again, or the next sample.
#[test]
fn what_waits_in_a_process_at_its_limit_is_not_dropped() {
    let machine = machine_running(16 * GIB, limited(64, 0, 40));
    let manager = run_manager_of(machine, "hawkeye-g", frequent_sampling_settings(), seconds(30.0));
    assert_eq!(huge_bytes_of(&manager, FIRST_PROCESS), 40 * MIB);
    let policy = manager.policy();
    let waits =
        |region: &RegionAddr| policy.explain_waiting_region(FIRST_PROCESS, *region).is_some();
    assert_eq!(regions_at(0..64).into_iter().filter(waits).count(), 44);
}

#[test]
fn who_ends_leaves_room_for_the_others_of_its_rule() {
    let mut machine = machine_running(16 * GIB, limited(20, 0, 40));
    let second = machine.add_program(limited(20, 0, 40));
    machine.schedule(seconds(30.0), |machine| machine.end_program(FIRST_PROCESS));
    let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
    run_manager_until(&mut manager, seconds(29.0));
    let of = |process| huge_bytes_of(&manager, process);
    assert_eq!(of(FIRST_PROCESS) + of(second), 40 * MIB);
    run_manager_until(&mut manager, seconds(60.0));
    assert_eq!(huge_bytes_of(&manager, second), 40 * MIB);
}

/// A warm start begins before the first sample.
#[test]
fn prefault_keeps_to_the_limit_that_processes_of_a_rule_share() {
    let mut machine = machine_running(16 * GIB, limited(32, 0, 40));
    let second = machine.add_program(limited(32, 0, 40));
    let free = machine.add_program(program_of_parts(&[base_page_part(0, 32, 1.0)]));
    // Filled memory counts at once, and from the next measurement on only where it is huge.
    machine.schedule(seconds(1.5), move |machine| {
        machine.prefaulted_bytes.insert(second, 10 * MIB);
    });
    machine.schedule(seconds(5.5), move |machine| machine.set_regions(second, 0, 32 + 4));
    let mut manager = manager_of(machine, "none", frequent_sampling_settings());
    let rooms = |manager: &ScriptedManager| {
        [FIRST_PROCESS, second, free].map(|process| manager.machine().prefault_rooms[&process])
    };
    let mut seen = Vec::new();
    run_manager_watching(&mut manager, seconds(8.0), |manager| {
        let [first, other, unlimited] = rooms(manager);
        assert_eq!(first, other);
        assert!(unlimited > GIB, "{unlimited}");
        seen.push(first / MIB);
    });
    seen.dedup();
    assert_eq!(seen, [40, 30, 40, 32]);
}
