//! The rules that keep users' programs safe. `torture` tests rule 1, and the probe's own tests rule
//! 5.

use crate::common::{
    AttachedManager, DEADLINE, TestMachine, WORKLOADS, assert_unharmed, figure, machine,
    machine_at_speed, memory, memory_cgroup, or_skip, remaps, signal, started_by,
    time_limit_factor, until, workload,
};
use hawkeye_live_test_support::settings;
use hawkeye_policy::HUGE_PAGE_BYTES;
use hawkeye_test_support::this_test;
use hawkeye_workload::WorkloadProcess;
use std::path::Path;
use std::time::Duration;

const NAMES: [&str; 4] = [
    "khugepaged/max_ptes_none",
    "khugepaged/pages_to_scan",
    "khugepaged/alloc_sleep_millisecs",
    "khugepaged/scan_sleep_millisecs",
];
/// khugepaged's default settings, with which each test starts.
const STARTED: &str = "511 4096 60000 10000";
/// khugepaged sleeps for a day after each page.
const CHANGED: &str = "511 1 86400000 86400000";

fn setting() -> String {
    NAMES.map(settings::read).join(" ")
}

fn managed(machine: &TestMachine) -> (WorkloadProcess, AttachedManager) {
    let (program, pid) = workload("burner --mib 4");
    let attached = machine.attach("", pid);
    let saved = machine.state.join("settings.json");
    assert!(until(DEADLINE, || saved.exists() && setting() == CHANGED));
    (program, attached)
}

/// Makes a manager change settings and kills it: they stay changed.
fn kill_a_manager(machine: &TestMachine) {
    let (_program, mut attached) = managed(machine);
    signal(attached.child.id(), libc::SIGKILL);
    let _ = attached.child.wait();
    assert_eq!(setting(), CHANGED);
}

#[test]
fn settings_are_restored_at_the_end() {
    let machine = or_skip!(machine(this_test!()));
    // A terminal sends SIGQUIT at Ctrl-\, and SIGHUP when it is closed.
    for number in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
        let (_program, attached) = managed(&machine);
        attached.stop_by(number);
        assert_eq!(setting(), STARTED);
        assert!(!machine.state.join("settings.json").exists());
    }
}

#[test]
fn after_kill_9_the_next_start_restores_settings() {
    let machine = or_skip!(machine(this_test!()));
    kill_a_manager(&machine);
    machine.output("run -- true");
    assert_eq!(setting(), STARTED);
}

#[test]
fn after_kill_9_restore_restores_settings_and_reports_them() {
    let machine = or_skip!(machine(this_test!()));
    kill_a_manager(&machine);
    let said = machine.output("restore").out;
    let file = settings::file(NAMES[1]).display().to_string();
    assert!(said.contains(&file), "{said}");
    assert_eq!(setting(), STARTED);
    let again = machine.output("restore").out;
    assert!(again.contains("Nothing to restore"), "{again}");
}

#[test]
fn nothing_is_promoted_above_the_high_watermark() {
    let machine = or_skip!(machine(this_test!()));
    let options = "--policy linux --rate 1000 --period 1 --window 0.1 --cpu 100";
    let (mut program, pid) = workload("burner --mib 64 --pages base");
    let held = machine.attach(&format!("{options} --watermarks 0.2,0.1"), pid);
    std::thread::sleep(Duration::from_secs(4) * time_limit_factor());
    let summary = held.interrupt();
    assert_eq!(summary["promoted"], 0);
    assert!(figure(&summary, "samples") > 0, "{summary}");
    let notes = summary["notes"].to_string();
    assert!(notes.contains("high watermark"), "{summary}");
    assert_eq!(memory(&mut program).1, 0);
    // Without the watermark the same process is promoted: nothing else holds promotion.
    let free = machine.attach(&format!("{options} --watermarks 99,98"), pid);
    let promoted = until(DEADLINE, || memory(&mut program).1 >= 64 << 20);
    let summary = free.interrupt();
    // On 6.1 also memory beside the 64 MiB.
    assert!(promoted && figure(&summary, "promoted") >= 32, "{summary}");
}

#[test]
fn a_full_cgroup_stops_promotion_and_is_recovered_while_the_machine_has_free_memory() {
    let machine = or_skip!(machine(this_test!()));
    let group = or_skip!(memory_cgroup(this_test!(), "hawkeye-live", 100 << 20));
    let words = "workload bloat --mib 96 --used 100 --pages huge";
    let (mut program, ready) =
        started_by(group.program_command_in_cgroup(Path::new(WORKLOADS), words));
    let options = "--policy hawkeye-g --period 1 --window 0.1 --cpu 100";
    let attached = machine.attach(options, ready.pid);
    if !remaps() {
        // The cgroup has no swap.
        std::thread::sleep(Duration::from_secs(5) * time_limit_factor());
        let summary = attached.interrupt();
        let notes = summary["notes"].to_string();
        assert!(notes.contains("no swap left"), "{summary}");
        for done in ["split", "promoted"] {
            assert_eq!(summary[done], 0, "{summary}");
        }
        assert_unharmed(&mut program);
        return;
    }
    // 70 MiB, and the program's own code, which is not charged to the group.
    let small = until(DEADLINE, || memory(&mut program).0 < 92 << 20);
    // Long enough for a window that shows what could be promoted.
    std::thread::sleep(Duration::from_secs(5) * time_limit_factor());
    let summary = attached.interrupt();
    assert!(small, "{summary}");
    assert!(figure(&summary, "samples") > 0, "{summary}");
    assert_eq!(summary["promoted"], 0);
    // Recovery ends at the low watermark: the rest of the group's limit may be used.
    assert!(memory(&mut program).0 > 50 << 20, "{summary}");
    assert_unharmed(&mut program);
}

#[test]
fn the_manager_does_less_to_stay_within_its_cpu_budget() {
    let machine = or_skip!(machine_at_speed(this_test!()));
    // Each promotion takes at least this much of the manager's CPU time. A budget of 0.5 % is 300
    // ms a minute, of which promotion leaves a third, as of what is added meanwhile. The promotion
    // that exceeds it is still carried out.
    machine.promotions_cost(20_000);
    let most = |wall_s: f64| ((0.3 + wall_s * 0.005) * 2.0 / 3.0 / 0.02) as u64 + 1;
    // More than two minutes allow.
    const MANY: u64 = 64;
    let options = "--policy linux --rate 100000 --period 1 --window 0.1";
    let promoted = |cpu: &str, at_most: Duration| {
        let (mut program, pid) = workload("burner --mib 256 --pages base");
        let attached = machine.attach(&format!("{options} --cpu {cpu}"), pid);
        let all = || memory(&mut program).1 >= MANY * HUGE_PAGE_BYTES;
        let many = until(at_most, all);
        let summary = attached.interrupt();
        assert!(figure(&summary, "promoted") > 0, "{summary}");
        (many, summary)
    };
    let (many, summary) = promoted("0.5", Duration::from_secs(10));
    let wall_s = summary["wall_s"].as_f64().expect("a number");
    assert!(most(wall_s) < MANY, "this machine is too slow: {wall_s} s");
    assert!(!many, "{summary}");
    assert!(figure(&summary, "promoted") <= most(wall_s), "{summary}");
    // With a larger budget it promotes more: only the budget limits it.
    let (many, summary) = promoted("100", DEADLINE);
    assert!(many, "{summary}");
}

#[test]
fn a_second_manager_refuses_and_names_the_first() {
    let machine = or_skip!(machine(this_test!()));
    let (program, attached) = managed(&machine);
    let first = format!("process {} (attach {})", attached.child.id(), program.pid());
    machine.output("run -- true").assert_refused(1, &first);
    attached.interrupt();
    machine.output("run -- true").assert_success();
}
