//! Workloads, and a machine on which only they are managed. It does not use BPF, so it needs no
//! privilege.

use hawkeye_linux::sample::sampler::Seeing;
use hawkeye_linux::stop::StopSignals;
use hawkeye_linux::{Bell, LinuxMachine, Means, RecoveryMethod, Scope};
use hawkeye_policy::{Action, Conditions, Rule, Rules, Selection, Unmatched};
use hawkeye_workload::Workload;
use std::time::Duration;

/// This test program, under the name of a workload.
const WORKLOADS: &str = concat!(
    env!("CARGO_TARGET_TMPDIR"),
    "/",
    env!("CARGO_CRATE_NAME"),
    "/hawkeye-workload"
);

#[ctor::ctor]
fn workloads_are_this_program() {
    hawkeye_workload::test_program::be_a_workload_too(WORKLOADS);
}

pub fn start(mib: u64) -> Workload {
    let words = format!("workload crowd --processes 1 --per-s 0 --mib {mib}");
    let mut workload = Workload::spawn(WORKLOADS, words.split_whitespace()).unwrap();
    workload.wait_ready().unwrap();
    workload
}

/// Rules that include only this test's workloads. Other processes of the machine are left alone.
pub fn workloads(action: Action) -> Rules {
    let command = "hawkeye-workload".parse().unwrap();
    let rule = Rule {
        name: "workloads".into(),
        conditions: Conditions {
            command: Some(command),
            ..Conditions::default()
        },
        action,
    };
    Rules::new(vec![rule], Unmatched::Exclude)
}

pub fn machine(rules: Rules) -> (LinuxMachine, Bell) {
    let (scope, bell) = Scope::machine(rules, Selection::default()).unwrap();
    let means = Means {
        sampler: Seeing::Population,
        recovery: RecoveryMethod::None,
        first_touch_cost: Duration::ZERO,
    };
    let machine = LinuxMachine::new(means, scope, StopSignals::left_alone());
    (machine, bell)
}
