//! The rules that keep users' programs safe. Rule 1 is `torture`, rule 5 the probe's own tests.

use crate::common::{
    DEADLINE, Machine, figure, machine, machine_at_speed, memory, patience, remaps, signal, until,
    workload,
};
use crate::settings;
use hawkeye_bench::live::MemoryCgroup;
use hawkeye_policy::HUGE_PAGE_BYTES;
use hawkeye_test_support::this_test;
use std::path::Path;
use std::time::Duration;

const NAMES: [&str; 4] = [
    "khugepaged/max_ptes_none",
    "khugepaged/pages_to_scan",
    "khugepaged/alloc_sleep_millisecs",
    "khugepaged/scan_sleep_millisecs",
];
/// What kernels start with, and so does each test.
const STARTED: &str = "511 4096 60000 10000";
/// Asleep for a day after each page.
const CHANGED: &str = "511 1 86400000 86400000";

/// khugepaged's settings.
fn setting() -> String {
    NAMES.map(settings::read).join(" ")
}

fn wait_for_change(machine: &Machine) {
    let saved = machine.state.join("settings.json");
    assert!(until(DEADLINE, || saved.exists() && setting() == CHANGED));
}

#[test]
fn settings_are_put_back_at_the_end() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let (_program, pid) = workload("burner --mib 4");
    let attached = machine.attach("", pid);
    wait_for_change(&machine);
    attached.interrupt();
    assert_eq!(setting(), STARTED);
    assert!(!machine.state.join("settings.json").exists());
}

#[test]
fn after_kill_9_the_next_start_puts_settings_back() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let (_program, pid) = workload("burner --mib 4");
    let mut attached = machine.attach("", pid);
    wait_for_change(&machine);
    signal(attached.child.id(), libc::SIGKILL);
    let _ = attached.child.wait();
    assert_eq!(setting(), CHANGED, "nobody could put it back");
    machine.output("run -- true");
    assert_eq!(setting(), STARTED);
}

#[test]
fn after_kill_9_restore_puts_settings_back_and_says_so() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let (_program, pid) = workload("burner --mib 4");
    let mut attached = machine.attach("", pid);
    wait_for_change(&machine);
    signal(attached.child.id(), libc::SIGKILL);
    let _ = attached.child.wait();
    let output = machine.output("restore");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains(&settings::file(NAMES[1]).display().to_string()),
        "{said}"
    );
    assert_eq!(setting(), STARTED);
    let again = machine.output("restore");
    assert!(String::from_utf8_lossy(&again.stdout).contains("Nothing to restore"));
}

#[test]
fn nothing_is_promoted_above_the_high_watermark() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let options = "--policy linux --rate 1000 --period 1 --window 0.1 --cpu 100";
    let (mut program, pid) = workload("burner --mib 64 --pages base");
    let held = machine.attach(&format!("{options} --watermarks 0.2,0.1"), pid);
    std::thread::sleep(Duration::from_secs(4) * patience());
    let summary = held.interrupt();
    assert_eq!(summary["promoted"], 0);
    assert!(figure(&summary, "samples") > 0, "{summary}");
    assert!(
        summary["notes"].to_string().contains("high watermark"),
        "{summary}"
    );
    assert_eq!(memory(&mut program).1, 0);
    // It is the watermark alone that holds promotion.
    let free = machine.attach(&format!("{options} --watermarks 99,98"), pid);
    let promoted = until(DEADLINE, || memory(&mut program).1 == 64 << 20);
    let summary = free.interrupt();
    assert!(promoted && summary["promoted"] == 32, "{summary}");
}

#[test]
fn a_full_cgroup_holds_promotion_and_is_recovered_when_the_machine_has_room() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let Ok(group) = MemoryCgroup::new("hawkeye-live", 100 << 20) else {
        this_test!().skip("no cgroup can be made here");
        return;
    };
    let words = "workload bloat --mib 96 --used 100 --pages huge";
    let command = group.command(Path::new(crate::common::WORKLOADS), words);
    let mut program = hawkeye_workload::Workload::spawn_command(command).expect("starts");
    let pid = program.wait_ready().expect("gets ready").pid;
    let attached = machine.attach("--policy hawkeye-g --period 1 --window 0.1 --cpu 100", pid);
    if !remaps() {
        // Its cgroup has no swap.
        std::thread::sleep(Duration::from_secs(5) * patience());
        let summary = attached.interrupt();
        assert!(
            summary["notes"].to_string().contains("no swap left"),
            "{summary}"
        );
        assert_eq!(
            (&summary["split"], &summary["promoted"]),
            (&0.into(), &0.into())
        );
        crate::common::assert_unharmed(&mut program);
        return;
    }
    // 70 MiB, and the program's own code, of which none is the group's.
    let small = until(DEADLINE, || memory(&mut program).0 < 92 << 20);
    // Until a window has shown what could be promoted.
    std::thread::sleep(Duration::from_secs(5) * patience());
    let summary = attached.interrupt();
    assert!(small, "{summary}");
    assert!(figure(&summary, "samples") > 0, "{summary}");
    assert_eq!(summary["promoted"], 0);
    // Only down to the low watermark: the rest of the group's limit is there to be used.
    assert!(memory(&mut program).0 > 50 << 20, "{summary}");
    crate::common::assert_unharmed(&mut program);
}

#[test]
fn the_cpu_budget_is_kept_by_doing_less() {
    let Some(machine) = machine_at_speed(this_test!()) else {
        return;
    };
    // Each takes at least as much of the manager's CPU. A minute's worth of 0.5 % is 300 ms, of
    // which promotion leaves a third, as of what is added meanwhile; the one that goes over it is carried out.
    machine.promotions_cost(20_000);
    let most = |wall_s: f64| ((0.3 + wall_s * 0.005) * 2.0 / 3.0 / 0.02) as u64 + 1;
    // More than in two minutes.
    const MANY: u64 = 64;
    let options = "--policy linux --rate 100000 --period 1 --window 0.1";
    let promoted = |cpu: &str| {
        let (mut program, pid) = workload("burner --mib 256 --pages base");
        let attached = machine.attach(&format!("{options} --cpu {cpu}"), pid);
        let many = until(Duration::from_secs(10), || {
            memory(&mut program).1 >= MANY * HUGE_PAGE_BYTES
        });
        let summary = attached.interrupt();
        assert!(figure(&summary, "promoted") > 0, "{summary}");
        (many, summary)
    };
    let (many, summary) = promoted("0.5");
    let wall_s = summary["wall_s"].as_f64().expect("a number");
    assert!(most(wall_s) < MANY, "this machine is too slow: {wall_s} s");
    assert!(!many, "{summary}");
    assert!(figure(&summary, "promoted") <= most(wall_s), "{summary}");
    // It is the budget alone that keeps it from more.
    let (many, summary) = promoted("100");
    assert!(many, "{summary}");
}

#[test]
fn a_second_manager_refuses_and_names_the_first() {
    let Some(machine) = machine(this_test!()) else {
        return;
    };
    let (_program, pid) = workload("burner --mib 4");
    let attached = machine.attach("", pid);
    wait_for_change(&machine);
    let output = machine.output("run -- true");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    let first = format!("process {} (attach {pid})", attached.child.id());
    assert!(said.contains(&first), "{said}");
    attached.interrupt();
    assert_eq!(machine.output("run -- true").status.code(), Some(0));
}
