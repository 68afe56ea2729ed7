//! Targets that exit, exec, fork and start threads while they are managed.

use crate::common::{figure, machine};
use hawkeye_test_support::this_test;

/// Samples and promotes as often as it can.
const RESTLESS: &str = "--period 0.2 --window 0.02 --cpu 100 --bloat-threshold 16";

#[test]
fn a_target_that_starts_and_ends_threads_all_the_time() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let (code, summary) =
        machine.run_workload(RESTLESS, "thread-storm --threads 8 --mib 64 --seconds 6");
    assert_eq!(code, 0, "{summary}");
    assert!(figure(&summary, "samples") > 1, "{summary}");
}

#[test]
fn a_target_that_forks_all_the_time() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let (code, summary) =
        machine.run_workload(RESTLESS, "fork-storm --children 4 --mib 64 --seconds 6");
    assert_eq!(code, 0, "{summary}");
    assert!(figure(&summary, "samples") > 0, "{summary}");
}

#[test]
fn a_target_that_replaces_itself() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let (code, summary) = machine.run_workload(
        RESTLESS,
        "exec-self --ms 400 --times 8 --mib 64 --seconds 2",
    );
    assert_eq!(code, 0, "{summary}");
    assert!(figure(&summary, "samples") > 0, "{summary}");
}

#[test]
fn targets_that_end_in_the_middle_of_it() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    for ms in [1, 20, 90, 260, 333] {
        let (code, _) = machine.run_workload(
            RESTLESS,
            &format!("exit-after --ms {ms} --mib 32 --status 5"),
        );
        assert_eq!(code, 5, "after {ms} ms");
    }
}
