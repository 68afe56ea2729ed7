//! A manager that cannot open another file keeps its processes. The test is a separate program
//! because the limit applies to a whole process.

use hawkeye_live_test_support::machine_of_workloads::{
    machine, manages, start, wait_joined, workloads,
};
use hawkeye_policy::{ProcessSettings, RuleAction};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

fn limit_open_files(soft: Option<u64>) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft.unwrap_or(hard), hard).unwrap();
}

/// Runs this program as a workload if it is started as one.
#[ctor::ctor]
fn workloads_are_this_program() {
    hawkeye_live_test_support::workloads::run_as_workload_or_link(concat!(
        env!("CARGO_TARGET_TMPDIR"),
        "/out_of_descriptors/hawkeye-workload"
    ));
}

#[test]
fn managed_processes_stay_when_no_file_can_be_opened() {
    let workload = start(80);
    let usual = RuleAction::Include(ProcessSettings::default());
    let (mut machine, _waker) = machine(workloads(usual));
    wait_joined(&mut machine, usual, workload.pid());
    limit_open_files(Some(3));
    let kept = manages(&mut machine, usual, workload.pid());
    limit_open_files(None);
    assert!(kept);
    assert!(manages(&mut machine, usual, workload.pid()));
}
