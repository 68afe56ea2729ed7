//! Growth that recovery cannot keep pace with is slowed, for a bounded time.

use hawkeye_manager::{Event, Machine};
use hawkeye_policy::ProcessId;
use hawkeye_test_support::builders::*;
use hawkeye_test_support::scripted_machine::ScriptedMachine;
use std::time::Duration;

const BOX: &str = "/box";

/// A cgroup with a limit of 2 GiB. At 20 s it begins to fill with bloat, 120 MiB each 30 ms.
fn growing_machine() -> ScriptedMachine {
    let mut machine = ScriptedMachine::new(64 * GIB);
    machine.groups.insert(BOX, 2 * GIB);
    machine.add_program(program_in_group(BOX, &[bloated_part(0, 400, 1.0)]));
    for step in 0..9u32 {
        let program = program_in_group(BOX, &[bloated_part(0, 60, 1.0)]);
        machine.add_program_at(seconds(20.0 + 0.03 * f64::from(step)), program);
    }
    machine
}

/// Starts and ends of throttling.
fn spans(manager: &ScriptedManager) -> Vec<(Duration, Duration)> {
    let mut spans = Vec::new();
    let mut began = None;
    for entry in manager.journal().entries() {
        match &entry.event {
            Event::GrowthThrottled { cgroup, .. } => {
                assert_eq!((cgroup.as_str(), began), (BOX, None));
                began = Some(entry.at);
            }
            Event::GrowthReleased { .. } => {
                spans.push((began.take().expect("it began"), entry.at));
            }
            _ => {}
        }
    }
    assert_eq!(began, None, "it ends");
    spans
}

fn refusals(manager: &ScriptedManager) -> usize {
    let entries = manager.journal().entries();
    entries.filter(|entry| matches!(entry.event, Event::GrowthNotThrottled { .. })).count()
}

#[test]
fn growth_is_slowed_until_recovery_has_caught_up() {
    let settings = frequent_sampling_settings();
    let manager = run_manager_of(growing_machine(), "guard", settings, seconds(60.0));
    let spans = spans(&manager);
    assert!(!spans.is_empty());
    assert!(spans[0].0 >= seconds(20.0) && spans[0].0 < seconds(20.4), "{spans:?}");
    let slowed: Duration = spans.iter().map(|(began, ended)| *ended - *began).sum();
    assert!(slowed < seconds(10.0), "{spans:?}");
    // Between these times it is checked at least ten times a second, but not all the time.
    let (began, ended) = spans[0];
    let checks = manager.machine().call_times("throttle").filter(|at| (began..=ended).contains(at));
    let checks = checks.count() as f64;
    assert!(checks <= 3.0 + 10.0 * (ended - began).as_secs_f64(), "{checks}");
    assert!(manager.machine().memory_use(Some(BOX)).used_percent() < 70.0);
}

/// While the list of huge pages is being made, there is nothing to search.
#[test]
fn it_goes_on_while_huge_pages_are_listed() {
    let mut machine = ScriptedMachine::new(64 * GIB);
    machine.call_duration = seconds(0.05);
    machine.groups.insert(BOX, 2 * GIB);
    machine.add_program(program_in_group(BOX, &[base_page_part(0, 400, 1.0)]));
    for step in 0..9u32 {
        let program = program_in_group(BOX, &[bloated_part(0, 60, 1.0)]);
        machine.add_program_at(seconds(20.0 + 0.03 * f64::from(step)), program);
    }
    let settings = frequent_sampling_settings();
    let manager = run_manager_of(machine, "guard", settings, seconds(60.0));
    let first = spans(&manager)[0];
    let recovered = recoveries(&manager);
    let within = recovered.iter().filter(|(at, ..)| (first.0..=first.1).contains(at));
    assert!(within.count() > 0, "{first:?}");
}

#[test]
fn it_ends_by_a_pause_and_is_not_used_where_management_only_measures() {
    let settings = frequent_sampling_settings();
    let mut manager = manager_of(growing_machine(), "guard", settings);
    while manager.machine().throttled.is_empty() {
        assert!(manager.machine().now() < seconds(30.0));
        manager.run_due_work_and_wait();
    }
    manager.pause();
    let paused_at = manager.machine().now();
    run_manager_until(&mut manager, seconds(60.0));
    let ended = spans(&manager);
    assert_eq!(ended.len(), 1);
    assert!(ended[0].1 <= paused_at + seconds(0.1), "{ended:?}, {paused_at:?}");

    let mut settings = frequent_sampling_settings();
    settings.measure_only = true;
    let manager = run_manager_of(growing_machine(), "guard", settings, seconds(60.0));
    assert_eq!((spans(&manager).len(), refusals(&manager)), (0, 0));
}

#[test]
fn a_refusal_is_not_asked_for_again_at_once() {
    let mut machine = growing_machine();
    machine.throttle_refusal = Some("it may swap".to_owned());
    let settings = frequent_sampling_settings();
    let manager = run_manager_of(machine, "guard", settings, seconds(29.0));
    assert_eq!((spans(&manager).len(), refusals(&manager)), (0, 1));
}

#[test]
fn ordinary_growth_is_not_slowed() {
    let mut machine = ScriptedMachine::new(64 * GIB);
    machine.groups.insert(BOX, 2 * GIB);
    let mut last = ProcessId { pid: 0, start_ticks: 0 };
    for step in 0..120u32 {
        let program = program_in_group(BOX, &[bloated_part(0, 8, 1.0)]);
        last = machine.add_program_at(seconds(f64::from(step)), program);
    }
    let settings = frequent_sampling_settings();
    let manager = run_manager_of(machine, "guard", settings, seconds(130.0));
    assert!(manager.machine().program(last).is_some());
    assert!(!recoveries(&manager).is_empty());
    assert_eq!((spans(&manager).len(), refusals(&manager)), (0, 0));
}
