//! Memory filled before it is touched: what it is filled for, what not, and that nothing is harmed.

use crate::common::machine;
use std::path::Path;

const OPTIONS: &str = "--fault-ahead on --policy none --cpu 50";
const MIB: u64 = 1 << 20;

fn use_zero_page() -> String {
    let file = "/sys/kernel/mm/transparent_hugepage/use_zero_page";
    std::fs::read_to_string(Path::new(file)).expect("reads")
}

#[test]
fn a_stream_is_filled_ahead_and_settings_are_put_back() {
    let Some(machine) = machine("a_stream_is_filled_ahead_and_settings_are_put_back") else {
        return;
    };
    let before = use_zero_page();
    for order in ["ascending", "descending"] {
        let workload = format!("touch --mib 1024 --now --work-us 1000 --order {order}");
        let (code, summary) = machine.run_workload(OPTIONS, &workload);
        assert_eq!(code, 0);
        let filled = summary["filled_ahead_bytes"].as_u64();
        assert!(filled >= Some(512 * MIB), "{order}: {summary}");
        assert!(filled <= Some(1024 * MIB), "{order}: {summary}");
    }
    assert_eq!(use_zero_page(), before);
}

#[test]
fn huge_faults_are_filled_ahead_of_too_and_switched_off_again() {
    let Some(machine) = machine("huge_faults_are_filled_ahead_of_too_and_switched_off_again")
    else {
        return;
    };
    let enabled = || {
        let file = "/sys/kernel/mm/transparent_hugepage/enabled";
        std::fs::read_to_string(Path::new(file)).expect("reads")
    };
    let before = enabled();
    let options = format!("{OPTIONS} --huge-faults");
    let workload = "touch --mib 1024 --now --work-us 1000 --threads 2";
    let (code, summary) = machine.run_workload(&options, workload);
    assert_eq!(code, 0);
    assert!(
        summary["filled_ahead_bytes"].as_u64() >= Some(256 * MIB),
        "{summary}"
    );
    assert_eq!(enabled(), before);
}

#[test]
fn who_touches_here_and_there_is_hardly_filled_for() {
    let Some(machine) = machine("who_touches_here_and_there_is_hardly_filled_for") else {
        return;
    };
    for (options, workload) in [
        ("", "touch --mib 1024 --now --order random"),
        (
            "",
            "touch --mib 4096 --now --pages-per-region 1 --work-us 500",
        ),
        (
            " --huge-faults",
            "touch --mib 4096 --now --pages-per-region 1 --work-us 500",
        ),
    ] {
        let (code, summary) = machine.run_workload(&format!("{OPTIONS}{options}"), workload);
        assert_eq!(code, 0);
        let filled = summary["filled_ahead_bytes"].as_u64();
        assert!(filled <= Some(64 * MIB), "{workload}: {summary}");
    }
}

#[test]
fn a_warm_start_fills_what_was_asked_for() {
    let Some(machine) = machine("a_warm_start_fills_what_was_asked_for") else {
        return;
    };
    let options = format!("{OPTIONS} --warm 512MiB");
    let workload = "touch --mib 2048 --now --pages-per-region 1 --work-us 2000";
    let (code, summary) = machine.run_workload(&options, workload);
    assert_eq!(code, 0);
    let filled = summary["filled_ahead_bytes"].as_u64();
    // What its program came to first is not filled, but counts.
    assert!(
        filled >= Some(256 * MIB) && filled <= Some(514 * MIB),
        "{summary}"
    );
}

#[test]
fn no_byte_changes_while_memory_is_filled_ahead_of_torture() {
    let Some(machine) = machine("no_byte_changes_while_memory_is_filled_ahead_of_torture") else {
        return;
    };
    for workload in [
        "torture --mib 512 --threads 4 --seconds 20",
        "fork-storm --children 4 --mib 256 --seconds 5",
        "exec-self --ms 200 --times 10 --mib 256 --seconds 2",
    ] {
        let options = format!("{OPTIONS} --huge-faults --warm 1GiB");
        let (code, summary) = machine.run_workload(&options, workload);
        assert_eq!(code, 0, "{workload}: {summary}");
    }
}
