//! `hawkeye attach`.

use crate::common::{machine, machine_at_speed, memory, until, workload, workload_without_thp};
use std::time::Duration;

#[test]
fn a_running_process_gets_its_hot_memory_huge_and_keeps_it() {
    let Some(machine) = machine_at_speed("a_running_process_gets_its_hot_memory_huge") else {
        return;
    };
    let (mut program, pid) = workload("hot-spot --mib 256 --hot-mib 64 --quiet --seconds 60");
    let attached = machine.attach("--window 0.02 --period 2 --cpu 50 --max-promotions 32", pid);
    let huge = |pid: u32| {
        let rollup =
            std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        rollup
            .lines()
            .find_map(|line| {
                line.strip_prefix("AnonHugePages:")?
                    .trim()
                    .strip_suffix(" kB")
            })
            .and_then(|kib| kib.parse::<u64>().ok())
            .unwrap_or(0)
    };
    assert!(
        until(Duration::from_secs(20), || huge(pid) >= 64 << 10),
        "{} KiB",
        huge(pid)
    );
    let summary = attached.interrupt();
    assert_eq!(summary["promoted"], 32);
    assert!(summary["exit_status"].is_null());
    assert_eq!(huge(pid), 64 << 10, "what is huge stays so");
    let _ = program.command(hawkeye_bench::workload::Request::Quit);
}

#[test]
fn a_large_process_is_looked_at_whole_long_before_the_period_is_over() {
    let Some(machine) = machine_at_speed("a_large_process_is_looked_at_whole_soon") else {
        return;
    };
    // One window shows the page walks of 2.5 or 2.7 GiB at the most.
    let (mut program, pid) = workload("random --mib 3584 --quiet --seconds 60");
    let attached = machine.attach("--period 60 --window 0.5 --cpu 50 --max-promotions 1", pid);
    std::thread::sleep(Duration::from_secs(12));
    let summary = attached.interrupt();
    let samples = summary["samples"].as_u64();
    assert!(samples.is_some_and(|samples| samples >= 2), "{summary}");
    let _ = program.command(hawkeye_bench::workload::Request::Quit);
}

#[test]
fn it_ends_when_the_process_ends() {
    let Some(machine) = machine("it_ends_when_the_process_ends") else {
        return;
    };
    let (program, pid) = workload("exit-after --ms 2500");
    let mut attached = machine.attach("", pid);
    // Its parent has to take note of its end for it to be gone.
    assert!(program.finish().is_ok_and(|status| status.success()));
    let summary = attached.finish();
    assert_eq!(summary["subject"], format!("process {pid}"));
}

#[test]
fn a_process_told_to_do_without_huge_pages_is_left_alone_and_that_is_said() {
    let Some(machine) = machine("a_process_told_to_do_without_is_left_alone") else {
        return;
    };
    let (mut program, pid) = workload_without_thp("burner --mib 64");
    let attached = machine.attach("--policy linux --rate 100 --period 1 --window 0.1", pid);
    std::thread::sleep(Duration::from_secs(3));
    let summary = attached.interrupt();
    assert_eq!(summary["promoted"], 0);
    assert!(
        summary["errors"]
            .as_object()
            .is_some_and(serde_json::Map::is_empty),
        "{summary}"
    );
    assert!(
        summary["notes"].to_string().contains("PR_SET_THP_DISABLE"),
        "{summary}"
    );
    assert_eq!(memory(&mut program).1, 0);
}
