//! A manager that cannot open another file keeps its processes. The test is a separate program
//! because the limit applies to a whole process.

mod common;

use common::{machine, start, workloads};
use hawkeye_manager::Machine;
use hawkeye_policy::{ProcessRules, ProcessSelection, RuleAction};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::time::{Duration, Instant};

fn limit_open_files(soft: Option<u64>) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft.unwrap_or(hard), hard).unwrap();
}

#[test]
fn managed_processes_stay_when_no_file_can_be_opened() {
    let workload = start(80);
    let usual = RuleAction::Include(ProcessRules::default());
    let (mut machine, _bell) = machine(workloads(usual));
    let mut managed = || {
        // New rules make the manager sweep again.
        machine.set_rules(workloads(usual), ProcessSelection::default());
        let processes = machine
            .processes(Duration::from_secs(3600))
            .done()
            .expect("all have joined");
        processes.iter().any(|p| p.pid == workload.pid())
    };
    // A process joins only when it is one second old.
    let begun = Instant::now();
    while !managed() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
    limit_open_files(Some(3));
    let kept = managed();
    limit_open_files(None);
    assert!(kept);
    assert!(managed());
}
