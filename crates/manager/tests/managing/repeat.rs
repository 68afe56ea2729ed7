//! Repeated runs, and runs to the end.

use hawkeye_manager::{JournalEntry, LoopWakeReason, Machine};
use hawkeye_policy::{ProcessId, policies};
use hawkeye_test_support::builders::*;
use hawkeye_test_support::scripted_machine::{ProgramSpec, ScriptedChange, ScriptedMachine};

fn busy() -> (ScriptedMachine, ProcessId) {
    let mut machine = machine_with_bytes(GIB);
    let parts =
        [bloated_part(0, 100, 20.0), base_page_part(200, 100, 5.0), base_page_part(400, 50, 75.0)];
    let first = machine
        .add_program(ProgramSpec { ends_after: Some(300_000_000), ..program_of_parts(&parts) });
    let process = machine.add_program(ProgramSpec {
        arrives: seconds(17.0),
        ends_at: Some(seconds(70.0)),
        ..program_of_parts(&[base_page_part(0, 40, 1.0), base_page_part(100, 40, 0.2)])
    });
    machine.schedule_change(seconds(25.0), ScriptedChange::OtherMemory(250 * MIB));
    machine.schedule_change(seconds(45.0), ScriptedChange::OtherMemory(0));
    machine.schedule_change(seconds(33.3), ScriptedChange::Use(process, 1, 300));
    (machine, first)
}

fn entries(policy: &str) -> Vec<JournalEntry> {
    let (machine, first) = busy();
    let mut manager = manager_of(machine, policy, frequent_sampling_settings());
    assert_eq!(run_manager_until(&mut manager, seconds(1000.0)), LoopWakeReason::Stop);
    let done = manager.machine().accesses_done(first);
    assert_eq!(done.round(), 300_000_000.0);
    manager.journal().entries().cloned().collect()
}

#[test]
fn the_same_machine_gives_the_same_journal() {
    for policy in policies::policy_names() {
        assert_eq!(entries(policy), entries(policy), "{policy}");
    }
}

#[test]
fn with_nobody_to_manage_the_loop_ends() {
    for policy in policies::policy_names() {
        let mut manager = manager_of(machine_with_bytes(GIB), policy, frequent_sampling_settings());
        assert_eq!(run_manager_until(&mut manager, seconds(10.0)), LoopWakeReason::Stop);
        assert_eq!(manager.machine().now(), seconds(0.0));
    }
}

#[test]
fn promotions_let_a_program_finish_its_work_earlier() {
    let time = |policy| {
        let (machine, _) = machine_with_program(
            16 * GIB,
            ProgramSpec {
                ends_after: Some(500_000_000),
                ..program_of_parts(&[base_page_part(0, 256, 1.0)])
            },
        );
        let mut manager = manager_of(machine, policy, frequent_sampling_settings());
        assert_eq!(run_manager_until(&mut manager, seconds(1000.0)), LoopWakeReason::Stop);
        manager.machine().now().as_secs_f64()
    };
    // 500 million accesses of 302 ns each.
    let (none, hawkeye) = (time("none"), time("hawkeye-g"));
    assert!((none - 151.0).abs() < 1e-6, "{none}");
    assert!(hawkeye < 0.6 * none, "{hawkeye} of {none}");
}
