//! `hawkeye advise`: it distinguishes programs that gain from programs that don't, and changes
//! nothing.

use crate::common::{
    CommandOutput, TestMachine, WORKLOADS, assert_unharmed, machine, machine_at_speed, memory,
    or_skip, read_json, without_huge_pages, workload, workload_without_thp,
};
use hawkeye_linux::test_costs;
use hawkeye_live_test_support::settings;
use hawkeye_policy::walk_rate::WalkCosts;
use hawkeye_test_support::this_test;
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

fn advise(machine: &TestMachine, pid: u32) -> Value {
    let words = format!("advise --seconds 2 --json {pid}");
    machine.output(&words).assert_success().json()
}

fn findings<'a>(advice: &'a Value, kind: &str) -> Vec<&'a Value> {
    let all = advice["findings"].as_array().expect("findings").iter();
    all.filter(|finding| finding["finding"] == kind).collect()
}

fn commands(advice: &Value) -> Vec<&str> {
    let remedies = advice["remedies"].as_array().expect("remedies");
    let commands = remedies.iter().map(|remedy| remedy["command"].as_str());
    commands.flatten().collect()
}

#[test]
fn advice_for_a_random_reader_shows_its_gain_and_remedies() {
    let machine = or_skip!(machine(this_test!()));
    let (_program, pid) = workload("random --mib 512 --quiet");
    // While another guest slows the host down, the reader has fewer walks per second.
    let mut advice = Value::Null;
    let shows_gain = (0..3).any(|_| {
        advice = advise(&machine, pid);
        let saved = findings(&advice, "would-save");
        saved.first().and_then(|saved| saved["percent"].as_f64()) > Some(5.0)
    });
    assert!(shows_gain, "{advice:#}");
    assert_eq!(advice["verdict"], "gains", "{advice:#}");
    // Its walks are spread evenly over a single mapping.
    let share = findings(&advice, "at")[0]["share_percent"].as_f64();
    assert!(share > Some(90.0), "{advice:#}");
    let attach = format!("hawkeye attach {pid}");
    assert!(commands(&advice).contains(&attach.as_str()), "{advice:#}");
}

#[test]
fn no_gain_is_claimed_for_a_sequential_reader_or_an_idle_program() {
    let machine = or_skip!(machine(this_test!()));
    let (_reader, reader) = workload("sequential --mib 512 --quiet");
    let (_idle, idle) = workload("burner --mib 64");
    // The size of the gain depends on the machine.
    let little: &[&str] = &["gains-nothing", "may-gain"];
    for (pid, verdicts) in [(reader, little), (idle, &["unknown"][..])] {
        let advice = advise(&machine, pid);
        let verdict = advice["verdict"].as_str().unwrap_or_default();
        assert!(verdicts.contains(&verdict), "{advice:#}");
        assert!(commands(&advice).is_empty(), "{advice:#}");
    }
}

#[test]
fn advice_changes_nothing() {
    let machine = or_skip!(machine(this_test!()));
    let switches = ["enabled", "defrag", "use_zero_page", "shmem_enabled"];
    let khugepaged = ["max_ptes_none", "pages_to_scan", "scan_sleep_millisecs"];
    let read = || -> Vec<String> {
        let khugepaged = khugepaged.iter().map(|name| format!("khugepaged/{name}"));
        let names = switches.iter().map(|name| (*name).to_owned());
        let all = names.chain(khugepaged).chain(settings::sizes());
        all.map(|name| settings::read(&name)).collect()
    };
    // Huge pages and base pages, some of them zero-filled.
    let (mut program, pid) = workload("bloat --mib 64 --pages huge");
    // The program's threads have mappings of their own, which come and go.
    let advised = || {
        let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).expect("the file can be read");
        let flags = smaps.lines().filter(|line| line.starts_with("VmFlags"));
        flags.filter(|flags| flags.contains(" hg")).count()
    };
    let (rss_bytes, huge_bytes) = memory(&mut program);
    let before = (read(), advised());
    assert!(before.1 > 0 && huge_bytes > 0);
    let advice = advise(&machine, pid);
    let wasted = findings(&advice, "wastes")[0]["zero_percent"].as_f64();
    assert!(wasted > Some(10.0), "{advice:#}");
    assert_eq!((read(), advised()), before);
    let (rss_after, huge_after) = memory(&mut program);
    assert_eq!(huge_after, huge_bytes);
    assert!(rss_after.abs_diff(rss_bytes) < 1 << 20, "{rss_after} bytes");
    assert_unharmed(&mut program);
    let left = fs::read_dir(&machine.state).expect("the folder can be read").flatten();
    let left: Vec<OsString> = left.map(|entry| entry.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// What a start that measures page walks itself stores about them, and what it prints.
fn measured(machine: &TestMachine, without_thp: bool) -> (Option<Value>, String) {
    let (_program, pid) = workload("burner --mib 4");
    let mut command = machine.hawkeye(&format!("advise --seconds 1 --json {pid}"));
    command.env_remove(test_costs::VARIABLE);
    if without_thp {
        without_huge_pages(&mut command);
    }
    let said = CommandOutput::of(&mut command).assert_success().err;
    (read_json(&machine.state.join("walk-costs.json")), said)
}

#[test]
fn page_walks_are_measured_once_after_the_program_starts_and_a_damaged_file_is_replaced() {
    let machine = or_skip!(machine_at_speed(this_test!()));
    let file = machine.state.join("walk-costs.json");
    // As another version or a damaged disk would leave it.
    let mut damaged = serde_json::to_value(WalkCosts::typical()).expect("costs serialize");
    damaged["by_footprint"] = Value::Array(Vec::new());
    fs::write(&file, damaged.to_string()).expect("the file can be written");
    start_a_program_before_page_walks_are_measured(&machine, &file);
    let first = read_json(&file).expect("costs are stored");
    let costs: WalkCosts = serde_json::from_value(first.clone()).expect("the costs can be parsed");
    assert!(costs.is_sound(), "{first}");
    let (again, said) = measured(&machine, false);
    assert_eq!(again, Some(first), "{said}");
}

/// Starts a program that fails if the costs of page walks are measured before it starts, or not
/// while it runs.
fn start_a_program_before_page_walks_are_measured(machine: &TestMachine, costs: &Path) {
    let mut command = machine.hawkeye("run -- sh -c");
    let waits = "[ -e $COSTS ] && exit 3; $PROGRAM & for i in $(seq 11000); do [ -e $COSTS ] && break; sleep 0.05; done; kill $!; [ -e $COSTS ]";
    command.arg(waits);
    command.env("COSTS", costs);
    let program = format!("{WORKLOADS} workload random --mib 256 --quiet --seconds 600");
    command.env("PROGRAM", program);
    command.env_remove(test_costs::VARIABLE);
    CommandOutput::of(&mut command).assert_success();
}

#[test]
fn page_walks_are_not_measured_where_huge_pages_are_disabled() {
    let machine = or_skip!(machine(this_test!()));
    let (kept, said) = measured(&machine, true);
    assert_eq!(kept, None, "{said}");
    assert!(said.contains("no huge pages are available"), "{said}");
}

#[test]
fn invalid_test_costs_are_refused() {
    let machine = or_skip!(machine(this_test!()));
    let (_program, pid) = workload("burner --mib 4");
    let file = machine.state.join("bad.json");
    for text in ["", "{\"promotion_us\": 0}", "{\"speed\": 1}"] {
        fs::write(&file, text).expect("the file can be written");
        for words in [format!("advise {pid}"), "run -- true".into()] {
            let mut command = machine.hawkeye(&words);
            command.env(test_costs::VARIABLE, &file);
            CommandOutput::of(&mut command).assert_refused(1, "bad.json");
        }
    }
}

#[test]
fn no_manager_is_proposed_for_a_process_with_huge_pages_disabled() {
    let machine = or_skip!(machine(this_test!()));
    let (_program, pid) = workload_without_thp("random --mib 256 --quiet");
    let advice = advise(&machine, pid);
    assert_eq!(findings(&advice, "thp-disabled").len(), 1, "{advice:#}");
    // It is measured nevertheless.
    assert_eq!(advice["verdict"], "gains", "{advice:#}");
    let attach = format!("hawkeye attach {pid}");
    assert!(!commands(&advice).contains(&attach.as_str()), "{advice:#}");
}
