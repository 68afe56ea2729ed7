//! A manager that cannot open another file keeps its processes. The test is a separate program
//! because the limit applies to a whole process.

use hawkeye_linux::sample::sampler::Seeing;
use hawkeye_linux::stop::StopSignals;
use hawkeye_linux::{LinuxMachine, Means, RecoveryMethod, Scope};
use hawkeye_manager::Machine;
use hawkeye_policy::{Action, Conditions, Rule, Rules, Selection, Terms, Unmatched};
use hawkeye_workload::Workload;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::time::{Duration, Instant};

/// This test program, under the name of a workload.
const WORKLOADS: &str = concat!(
    env!("CARGO_TARGET_TMPDIR"),
    "/out-of-descriptors/hawkeye-workload"
);

#[ctor::ctor]
fn workloads_are_this_program() {
    hawkeye_workload::test_program::be_a_workload_too(WORKLOADS);
}

fn workloads_only() -> Rules {
    let rule = Rule {
        name: "workloads".into(),
        conditions: Conditions {
            command: Some("hawkeye-workload".parse().unwrap()),
            ..Conditions::default()
        },
        action: Action::Include(Terms::default()),
    };
    Rules::new(vec![rule], Unmatched::Exclude)
}

fn limit_open_files(soft: Option<u64>) {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft.unwrap_or(hard), hard).unwrap();
}

#[test]
fn managed_processes_stay_when_no_file_can_be_opened() {
    let words = "workload crowd --processes 1 --per-s 0 --mib 80".split(' ');
    let mut workload = Workload::spawn(WORKLOADS, words).unwrap();
    workload.wait_ready().unwrap();
    let selection = Selection::default();
    let (scope, _bell) = Scope::machine(workloads_only(), selection).unwrap();
    let means = Means {
        sampler: Seeing::Population,
        recovery: RecoveryMethod::None,
        first_touch_cost: Duration::ZERO,
    };
    let mut machine = LinuxMachine::new(means, scope, StopSignals::left_alone());
    let mut managed = || {
        // New rules make the manager sweep again.
        machine.set_rules(workloads_only(), selection);
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
