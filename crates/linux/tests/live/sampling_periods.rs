//! How often a large process is sampled.

use hawkeye_bench::live::manage_processes_until;
use hawkeye_live_test_support::manager_in_test::kernel_backend;
use hawkeye_live_test_support::or_skip;
use hawkeye_live_test_support::test_machine::machine_at_speed;
use hawkeye_live_test_support::time_limits::DEADLINE;
use hawkeye_live_test_support::workloads::workload;
use hawkeye_manager::{Journal, Settings};
use hawkeye_policy::CpuBudget;
use hawkeye_test_support::this_test;
use hawkeye_workload::WorkloadRequest;
use std::time::Duration;

#[test]
fn a_large_process_is_sampled_completely_long_before_the_period_ends() {
    let _machine = or_skip!(machine_at_speed(this_test!()));
    // One window shows the page walks of 2.5 or 2.7 GiB at most.
    let (mut program, pid) = workload("random --mib 3584 --quiet --seconds 600");
    let settings = Settings {
        // Much longer than the deadline of the tests.
        period: Duration::from_secs(600),
        window: Duration::from_millis(500),
        cpu: CpuBudget::new(100.0).expect("in range"),
        max_promotions: Some(1),
        ..Settings::default()
    };
    let whole = |journal: &Journal| journal.totals().samples >= 2 && journal.totals().promoted == 1;
    let managed =
        manage_processes_until(kernel_backend(), &[pid], "hawkeye", settings, DEADLINE, whole);
    let journal = managed.expect("the process can be managed").journal;
    let events: Vec<String> = journal.entries().map(|entry| entry.event.to_string()).collect();
    assert!(whole(&journal), "{:?}, {events:?}", journal.totals());
    let _ = program.send_request(WorkloadRequest::Quit);
}
