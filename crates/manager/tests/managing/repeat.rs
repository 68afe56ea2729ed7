//! Repeated runs, and runs to the end.

use hawkeye_manager::{JournalEntry, LoopWakeReason, Machine};
use hawkeye_policy::policies;
use hawkeye_test_support::builders::*;

fn busy() -> ScriptedMachine {
    let parts =
        [bloated_part(0, 100, 20.0), base_page_part(200, 100, 5.0), base_page_part(400, 50, 75.0)];
    let mut machine = machine_running_parts(GIB, &parts);
    let second = program_of_parts(&[base_page_part(0, 40, 1.0), base_page_part(100, 40, 0.2)]);
    let second = machine.add_program_at(seconds(17.0), second);
    machine.schedule(seconds(25.0), |machine| machine.other_bytes = 250 * MIB);
    machine.schedule(seconds(33.3), move |machine| machine.set_used_pages(second, 1, 300));
    machine.schedule(seconds(45.0), |machine| machine.other_bytes = 0);
    machine.schedule(seconds(70.0), move |machine| machine.end_program(second));
    machine.schedule(seconds(90.0), |machine| machine.end_program(FIRST_PROCESS));
    machine
}

fn entries(policy: &str) -> Vec<JournalEntry> {
    let mut manager = manager_of(busy(), policy, frequent_sampling_settings());
    assert_eq!(run_manager_until(&mut manager, seconds(1000.0)), LoopWakeReason::Stop);
    assert_eq!(manager.machine().now(), seconds(90.0));
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
        let mut manager =
            manager_of(ScriptedMachine::new(GIB), policy, frequent_sampling_settings());
        assert_eq!(run_manager_until(&mut manager, seconds(10.0)), LoopWakeReason::Stop);
        assert_eq!(manager.machine().now(), seconds(0.0));
    }
}
