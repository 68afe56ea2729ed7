use super::*;
use crate::processes::proc_scanner::ProgramIdentity;
use crate::promote::target_call::{CallHelperPool, TargetRequest};
use hawkeye_policy::{Rule, RuleAction, RuleConditions, UnmatchedAction};
use hawkeye_test_support::event_constructors::process_with_pid;
use std::process::Command;

const S: fn(u64) -> Duration = Duration::from_secs;
const MIB: u64 = 1 << 20;

fn selector() -> ProcessSelector {
    let rules = Rules::new(Vec::new(), UnmatchedAction::Include);
    ProcessSelector::new(rules, ProcessSelectionSettings::default()).expect("/proc can be opened")
}

fn test_entry(pid: u32, mib: u64) -> ScannedProcess {
    ScannedProcess {
        process: process_with_pid(pid),
        anonymous_bytes: mib * MIB,
        own_bytes: mib * MIB,
        family: 1,
        cpu: Duration::ZERO,
        program: ProgramIdentity::default(),
    }
}

fn joining_pids(
    selector: &mut ProcessSelector,
    large: &[ScannedProcess],
    now: Duration,
) -> Vec<u32> {
    let candidates = selector.collect_slot_candidates(large, |_| false, now);
    candidates.iter().map(|it| it.process.pid).collect()
}

fn full_scan(selector: &mut ProcessSelector, now: Duration) -> Option<Vec<ScannedProcess>> {
    match selector.scan_if_due(now, Instant::now() + S(60)) {
        SliceProgress::Done(large) => large,
        SliceProgress::Unfinished(_) => panic!("the scan took over a minute"),
    }
}

#[test]
fn scans_keep_to_the_configured_interval() {
    let mut selector = selector();
    assert!(full_scan(&mut selector, S(0)).is_some());
    assert!(full_scan(&mut selector, S(4)).is_none());
    selector.set_rules(Rules::default(), ProcessSelectionSettings::default());
    let again = full_scan(&mut selector, S(4));
    assert!(again.is_some(), "new rules make a scan due at once");
}

#[test]
fn a_process_that_is_too_young_is_looked_for_again_within_a_second() {
    let mut selector = selector();
    selector.scans.record_scan(S(0), Duration::ZERO, ProcessSelectionSettings::default());
    let mut child = Command::new("sleep").arg("600").spawn().expect("the program starts");
    let judged = selector.evaluate(child.id(), S(0));
    let scans_soon = selector.scans.is_due(S(1));
    child.kill().expect("the process can be killed");
    child.wait().expect("the process ends");
    // On a very slow machine it is old enough by then.
    let is_young = judged.expect("it was there").is_none();
    assert_eq!(scans_soon, is_young);
}

#[test]
fn the_manager_never_manages_itself() {
    let _memory = vec![1u8; 80 << 20];
    let found = full_scan(&mut selector(), S(0)).expect("the first scan is due at once");
    let own = std::process::id();
    assert!(found.iter().all(|seen| seen.process.pid != own));
}

#[test]
fn the_manager_never_manages_its_helpers() {
    let _memory = vec![1u8; 80 << 20];
    let mut calls = CallHelperPool::with_time_limit(S(60));
    let own = process_with_pid(std::process::id());
    // The helper has its name when it answers.
    let name = TargetRequest::for_reading_file("reading", "/proc/self/comm", 0, 16);
    calls.call_target(own, &name).expect("the helper answers");
    let helper = calls.idle_helper_pid().expect("the helper waits for another call");
    let found = full_scan(&mut selector(), S(0)).expect("the first scan is due at once");
    assert!(found.iter().all(|seen| seen.process.pid != helper));
}

#[test]
fn an_ended_process_is_reported_as_missing() {
    let judged = selector().evaluate(u32::MAX / 2, S(0));
    assert!(matches!(judged, Err(LinuxError::NoSuchProcess(_))));
}

#[test]
fn joining_takes_more_memory_than_staying() {
    let large = [test_entry(7, 100), test_entry(8, 40)];
    assert_eq!(joining_pids(&mut selector(), &large, S(0)), [7]);
    let staying = selector().collect_slot_candidates(&large, |_| true, S(0));
    assert_eq!(staying.len(), 2);
}

#[test]
fn an_idle_fork_with_little_of_its_own_does_not_join_and_a_busy_one_does() {
    let mut selector = selector();
    // No process has this number, so its age is that of the machine.
    let fork =
        |pid, cpu| ScannedProcess { own_bytes: MIB, family: 100, cpu, ..test_entry(pid, 100) };
    let forks = [fork(7, Duration::ZERO), fork(8, Duration::MAX)];
    assert_eq!(joining_pids(&mut selector, &forks, S(0)), [8]);
    let why = selector.without_slot.get(&7);
    assert!(matches!(why, Some(SlotRefusal::Shares(_))), "{why:?}");
}

#[test]
fn a_failing_process_is_retried_ever_less_often() {
    let mut selector = selector();
    let large = [test_entry(7, 100)];
    let mut now = S(0);
    for seconds in [30, 60, 120, 240, 480, 480] {
        assert_eq!(joining_pids(&mut selector, &large, now), [7]);
        selector.record_refusal(7, now, &LinuxError::NoSuchProcess(7));
        now += S(seconds);
        let just_before = now - Duration::from_nanos(1);
        assert!(joining_pids(&mut selector, &large, just_before).is_empty());
    }
    assert_eq!(joining_pids(&mut selector, &large, now), [7]);
}

#[test]
fn a_rule_is_named_by_its_index() {
    let rule = Rule {
        name: "caches".into(),
        conditions: RuleConditions::default(),
        action: RuleAction::Exclude,
    };
    let rules = Rules::new(vec![rule], UnmatchedAction::Include);
    let selector = ProcessSelector::new(rules, ProcessSelectionSettings::default())
        .expect("/proc can be opened");
    assert_eq!(selector.rule_name_at_index(0), Some("caches"));
    assert_eq!(selector.rule_name_at_index(1), None);
}

#[test]
fn an_excluded_process_is_judged_again_in_a_minute_or_under_new_rules() {
    let rules = Rules::new(Vec::new(), UnmatchedAction::Exclude);
    let mut selector = ProcessSelector::new(rules, ProcessSelectionSettings::default())
        .expect("/proc can be opened");
    let init = 1;
    let large = [test_entry(init, 100)];
    let judged = selector.evaluate(init, S(0));
    assert!(judged.is_ok_and(|included| included.is_none()));
    assert!(joining_pids(&mut selector, &large, S(59)).is_empty());
    assert_eq!(joining_pids(&mut selector, &large, S(60)), [init]);
    selector.set_rules(Rules::default(), ProcessSelectionSettings::default());
    assert_eq!(joining_pids(&mut selector, &large, S(1)), [init]);
}
