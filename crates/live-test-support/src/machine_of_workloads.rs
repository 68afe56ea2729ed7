//! Workloads, and a machine on which only they are managed. It does not use BPF, so it needs no
//! privilege.

use crate::workloads::started;
use hawkeye_linux::sample::sampler::SamplerBackend;
use hawkeye_linux::stop_signals::StopSignals;
use hawkeye_linux::{ChosenKernelMethods, LinuxMachine, ManagedTarget, RecoveryMethod, Waker};
use hawkeye_manager::Machine;
use hawkeye_policy::{
    ProcessSelectionSettings, Rule, RuleAction, RuleConditions, Rules, UnmatchedAction,
};
use hawkeye_workload::WorkloadProcess;
use std::time::{Duration, Instant};

/// An idle workload with this much memory.
///
/// # Panics
/// It does not get ready.
pub fn start(mib: u64) -> WorkloadProcess {
    started(&format!("crowd --processes 1 --per-s 0 --mib {mib}")).0
}

/// Rules that include only this test's workloads. Other processes of the machine are left alone.
pub fn workloads(action: RuleAction) -> Rules {
    let command = "hawkeye-workload".parse().expect("a valid command");
    let rule = Rule {
        name: "workloads".into(),
        conditions: RuleConditions { command: Some(command), ..RuleConditions::default() },
        action,
    };
    Rules::new(vec![rule], UnmatchedAction::Exclude)
}

/// Whether this process is managed now. New rules make the manager sweep again.
///
/// # Panics
/// Not all processes have joined after a minute.
pub fn manages(machine: &mut LinuxMachine, action: RuleAction, pid: u32) -> bool {
    machine.set_rules(workloads(action), ProcessSelectionSettings::default());
    let listed = machine.admit_and_list_processes(machine.now() + Duration::from_secs(60));
    let processes = listed.into_done().expect("all have joined");
    processes.iter().any(|process| process.pid == pid)
}

/// Waits until this process is managed: a process joins only when it is one second old.
///
/// # Panics
/// It is not managed after a minute.
pub fn wait_joined(machine: &mut LinuxMachine, action: RuleAction, pid: u32) {
    let begun = Instant::now();
    while !manages(machine, action, pid) {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The whole machine under these rules.
///
/// # Panics
/// The wake-up descriptor can't be created.
pub fn machine(rules: Rules) -> (LinuxMachine, Waker) {
    let (scope, waker) =
        ManagedTarget::whole_machine_with_waker(rules, ProcessSelectionSettings::default())
            .expect("the machine can be watched");
    let means = ChosenKernelMethods {
        sampler: SamplerBackend::Population,
        recovery: RecoveryMethod::None,
        first_touch_cost: Duration::ZERO,
    };
    let machine = LinuxMachine::new(means, scope, StopSignals::disabled());
    (machine, waker)
}
