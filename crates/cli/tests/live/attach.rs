//! `hawkeye attach`.

use crate::common::{
    DEADLINE, figure, huge_bytes, machine, machine_at_speed, memory, or_skip, until, workload,
    workload_without_thp,
};
use hawkeye_test_support::this_test;
use hawkeye_workload::WorkloadRequest;

#[test]
fn hot_memory_of_a_running_process_becomes_huge_and_stays_huge() {
    let machine = or_skip!(machine_at_speed(this_test!()));
    let (mut program, pid) = workload("hot-spot --mib 256 --hot-mib 64 --quiet --seconds 600");
    let options = "--window 0.02 --period 2 --cpu 100 --max-promotions 32";
    let attached = machine.attach(options, pid);
    let hot = until(DEADLINE, || huge_bytes(pid) >= 64 << 20);
    let summary = attached.interrupt();
    assert!(hot, "{} bytes are huge: {summary}", huge_bytes(pid));
    assert_eq!(summary["promoted"], 32);
    assert!(summary["exit_status"].is_null());
    assert_eq!(huge_bytes(pid), 64 << 20, "huge memory stays huge");
    let _ = program.send_request(WorkloadRequest::Quit);
}

#[test]
fn attach_ends_when_the_process_ends() {
    let machine = or_skip!(machine(this_test!()));
    let (program, pid) = workload("exit-after --ms 2500");
    let mut attached = machine.attach("", pid);
    // The process is not gone before its parent has waited for it.
    assert!(program.close_input_and_wait().is_ok_and(|status| status.success()));
    let summary = attached.finish();
    assert_eq!(summary["subject"], format!("process {pid}"));
}

#[test]
fn nothing_of_a_process_with_huge_pages_disabled_is_promoted_and_it_is_noted() {
    let machine = or_skip!(machine(this_test!()));
    let (mut program, pid) = workload_without_thp("burner --mib 64 --pages base");
    let (_other, other) = workload("burner --mib 64 --pages base");
    let options = "--policy linux --rate 1000 --period 1 --window 0.1 --cpu 100";
    let attached = machine.attach_all(options, &[pid, other]);
    let promoted = until(DEADLINE, || huge_bytes(other) == 64 << 20);
    let summary = attached.interrupt();
    assert!(promoted, "all of the other process is promoted: {summary}");
    // All of these are in the other process, where the heap may add one.
    assert!(figure(&summary, "promoted") >= 32, "{summary}");
    let errors = summary["errors"].as_object();
    assert!(errors.is_some_and(serde_json::Map::is_empty), "{summary}");
    let notes = summary["notes"].to_string();
    assert!(notes.contains("PR_SET_THP_DISABLE"), "{summary}");
    assert_eq!(memory(&mut program).1, 0);
}
