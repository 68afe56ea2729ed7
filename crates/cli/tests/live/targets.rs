//! Targets that exit, exec, fork and start threads while they are managed.

use crate::common::{figure, machine, or_skip};
use hawkeye_test_support::test_skips::TestName;
use hawkeye_test_support::this_test;

/// Samples and promotes as often as possible.
const RESTLESS: &str = "--period 0.2 --window 0.02 --cpu 100 --bloat-threshold 16";

fn goes_on_and_is_sampled(test: TestName, workload: &str, least: u64) {
    let machine = or_skip!(machine(test));
    let (code, summary) = machine.run_workload(RESTLESS, workload);
    assert_eq!(code, 0, "{summary}");
    assert!(figure(&summary, "samples") >= least, "{summary}");
}

#[test]
fn a_target_that_starts_and_ends_threads_all_the_time() {
    let words = "thread-storm --threads 8 --mib 64 --seconds 6";
    goes_on_and_is_sampled(this_test!(), words, 2);
}

#[test]
fn a_target_that_forks_all_the_time() {
    let words = "fork-storm --children 4 --mib 64 --seconds 6";
    goes_on_and_is_sampled(this_test!(), words, 1);
}

#[test]
fn a_target_that_replaces_itself() {
    let words = "exec-self --ms 400 --times 8 --mib 64 --seconds 2";
    goes_on_and_is_sampled(this_test!(), words, 1);
}

#[test]
fn targets_that_end_while_they_are_managed() {
    let machine = or_skip!(machine(this_test!()));
    for ms in [1, 20, 90, 260, 333] {
        let words = format!("exit-after --ms {ms} --mib 32 --status 5");
        let (code, _) = machine.run_workload(RESTLESS, &words);
        assert_eq!(code, 5, "after {ms} ms");
    }
}
