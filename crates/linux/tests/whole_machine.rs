//! The whole machine as the scope: which processes join and leave, and what wakes the manager.

use hawkeye_linux::{LinuxMachine, ManagedProcessView};
use hawkeye_live_test_support::machine_of_workloads::{machine, start, wait_joined, workloads};
use hawkeye_manager::{
    LoopWakeReason, Machine, MachineError, PromotionResult, Sampling, SliceProgress,
};
use hawkeye_policy::{
    ProcessId, ProcessSample, ProcessSelectionSettings, ProcessSettings, Promotion, Reason,
    RuleAction, SettingsProfile,
};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A process joins when it is one second old. This is far longer.
const DEADLINE: Duration = Duration::from_secs(60);

fn sample(machine: &mut LinuxMachine, process: ProcessId) -> Result<ProcessSample, MachineError> {
    loop {
        let until = machine.now() + Duration::from_secs(1);
        match machine.sample(process, until)? {
            SliceProgress::Done(sample) => return Ok(sample),
            SliceProgress::Unfinished(wait) => sleep(wait),
        }
    }
}

fn managed_processes(machine: &mut LinuxMachine) -> Vec<ProcessId> {
    let listed = machine.admit_and_list_processes(machine.now() + DEADLINE);
    listed.into_done().expect("all have joined")
}

fn member(machine: &mut LinuxMachine, pid: u32) -> Option<ManagedProcessView> {
    let listed = managed_processes(machine);
    let mut views = machine.managed_processes().into_iter();
    let view = views.find(|m| m.process.pid == pid);
    assert_eq!(view.is_some(), listed.iter().any(|one| one.pid == pid));
    view
}

/// The process under these rules.
fn under(machine: &mut LinuxMachine, action: RuleAction, pid: u32) -> Option<ManagedProcessView> {
    machine.set_rules(workloads(action), ProcessSelectionSettings::default());
    member(machine, pid)
}

/// Runs this program as a workload if it is started as one.
#[ctor::ctor]
fn workloads_are_this_program() {
    hawkeye_live_test_support::workloads::run_as_workload_or_link(concat!(
        env!("CARGO_TARGET_TMPDIR"),
        "/whole_machine/hawkeye-workload"
    ));
}

#[test]
fn large_processes_join_and_leave_with_the_rules_that_hold() {
    let (large, small) = (start(80), start(8));
    let own = vec![1u8; 80 << 20];
    let usual = RuleAction::Include(ProcessSettings::default());
    let (mut machine, _waker) = machine(workloads(usual));
    wait_joined(&mut machine, usual, large.pid());
    let joined = member(&mut machine, large.pid()).expect("it is large");
    let executable = joined.identity.executable.as_deref();
    assert_eq!(executable, Some("hawkeye-workload"));
    assert_eq!(joined.terms.rule, Some(0));
    assert!(member(&mut machine, small.pid()).is_none());
    assert!(member(&mut machine, std::process::id()).is_none());
    drop(own);

    let heavy = ProcessSettings { weight: 3.0, ..ProcessSettings::default() };
    let same = under(&mut machine, RuleAction::Include(heavy), large.pid()).expect("it stays");
    assert_eq!(same.terms.weight, 3.0);
    let sampled = sample(&mut machine, same.process).unwrap();
    assert_eq!(sampled.terms, same.terms);
    let first = sampled.regions.first().expect("it has memory").region;

    let guarded = ProcessSettings::default().with_profile(SettingsProfile::Guard);
    machine.set_rules(workloads(RuleAction::Include(guarded)), ProcessSelectionSettings::default());
    let sampled = sample(&mut machine, same.process).unwrap();
    assert_eq!((sampled.terms.promotes, sampled.regions.len()), (false, 0));
    let reason = Reason::new("a test");
    let refused = machine.promote(&Promotion::to_huge_page(same.process, first, 512, None, reason));
    assert_eq!(refused, Ok(PromotionResult::NotCandidate));

    assert!(under(&mut machine, RuleAction::Exclude, large.pid()).is_none());
    assert!(under(&mut machine, usual, large.pid()).is_some(), "and back");

    let process = same.process;
    drop(large);
    assert!(sample(&mut machine, process).is_err());
    assert!(member(&mut machine, process.pid).is_none());
}

/// Each call admits at least one process, even after its deadline, and reports that more are to
/// come.
#[test]
fn processes_that_join_together_join_over_several_calls() {
    let large = [start(80), start(80), start(80)];
    sleep(Duration::from_millis(1500));
    let (mut machine, _waker) = machine(workloads(RuleAction::Include(ProcessSettings::default())));
    let begun = Instant::now();
    let mut most_at_once = 0;
    let mut calls = 0;
    let all = loop {
        let before = machine.managed_processes().len();
        let now = machine.now();
        let listed = machine.admit_and_list_processes(now).into_done();
        most_at_once = most_at_once.max(machine.managed_processes().len() - before);
        calls += 1;
        if let Some(all) = listed {
            break all;
        }
        assert!(begun.elapsed() < DEADLINE);
    };
    for workload in &large {
        assert!(all.iter().any(|process| process.pid == workload.pid()));
    }
    assert_eq!(most_at_once, 1);
    assert!(calls > 3, "{calls}");
}

#[test]
fn at_most_max_processes_are_managed() {
    // A process that uses a whole core ranks as if it had 8 times its memory.
    let (larger, large) = (start(720), start(80));
    let usual = RuleAction::Include(ProcessSettings::default());
    let (mut machine, _waker) = machine(workloads(usual));
    for pid in [larger.pid(), large.pid()] {
        wait_joined(&mut machine, usual, pid);
    }
    machine.set_rules(workloads(RuleAction::Exclude), ProcessSelectionSettings::default());
    assert!(managed_processes(&mut machine).is_empty());
    let usual = ProcessSelectionSettings::default();
    let one =
        ProcessSelectionSettings::new(usual.min_bytes_to_join(), usual.scan_interval(), 1).unwrap();
    machine.set_rules(workloads(RuleAction::Include(ProcessSettings::default())), one);
    assert_eq!(managed_processes(&mut machine).len(), 1);
    let pids = [larger.pid(), large.pid()];
    let mut found = managed_processes(&mut machine).into_iter();
    assert!(found.all(|p| p.pid != pids[1]), "the largest come first");
}

#[test]
fn a_program_that_grows_is_found_long_before_the_next_regular_scan() {
    let usual = RuleAction::Include(ProcessSettings::default());
    let (mut machine, _waker) = machine(workloads(usual));
    let seldom = ProcessSelectionSettings::new(64 << 20, Duration::from_secs(3600), 1000).unwrap();
    machine.set_rules(workloads(usual), seldom);
    managed_processes(&mut machine);
    machine.read_memory_state().unwrap();
    let begun = Instant::now();
    let mut tries = 0;
    while begun.elapsed() < DEADLINE {
        // Other programs may free as much at the same time, which hides this growth. So another
        // program grows then, once the memory of this one is free again.
        let grown = start(256);
        tries += 1;
        for _ in 0..100 {
            machine.read_memory_state().unwrap();
            let managed = managed_processes(&mut machine);
            if managed.iter().any(|one| one.pid == grown.pid()) {
                return;
            }
            sleep(Duration::from_millis(100));
        }
        drop(grown);
        machine.read_memory_state().unwrap();
    }
    panic!("none of {tries} programs was found");
}

#[test]
fn a_waker_wakes_a_manager_without_processes() {
    let (mut machine, waker) = machine(workloads(RuleAction::Exclude));
    let soon = machine.now() + Duration::from_millis(10);
    assert_eq!(machine.wait_until(soon), LoopWakeReason::Deadline);
    waker.wake();
    let much_later = machine.now() + Duration::from_secs(600);
    assert_eq!(machine.wait_until(much_later), LoopWakeReason::Called);
    let other_thread = std::thread::spawn(move || waker.wake());
    assert_eq!(machine.wait_until(much_later), LoopWakeReason::Called);
    other_thread.join().unwrap();
}
