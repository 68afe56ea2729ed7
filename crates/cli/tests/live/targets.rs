//! Targets that exit, exec, fork and start threads while they are managed.

use crate::common::{figure, machine, or_skip, time_limit_factor};
use hawkeye_test_support::this_test;

const RESTLESS: &str = "--period 0.2 --window 0.02 --cpu 100 --bloat-threshold 16";

#[test]
fn targets_that_start_threads_fork_or_replace_themselves_all_the_time() {
    let machine = or_skip!(machine(this_test!()));
    let seconds = 6 * time_limit_factor();
    for (workload, least) in [
        (format!("thread-storm --threads 8 --mib 64 --seconds {seconds}"), 2),
        (format!("fork-storm --children 4 --mib 64 --seconds {seconds}"), 1),
        ("exec-self --ms 400 --times 8 --mib 64 --seconds 2".to_owned(), 1),
    ] {
        let (code, summary) = machine.run_workload(RESTLESS, &workload);
        assert_eq!(code, 0, "{summary}");
        assert!(figure(&summary, "samples") >= least, "{summary}");
    }
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
