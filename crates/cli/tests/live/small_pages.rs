//! Pages between 4 KiB and 2 MiB: given with consent only, counted, switched off at the end, and
//! what is learned about them.

use crate::common::{
    DEADLINE, StartedProcess, TestMachine, WORKLOADS, at_speed, figure, is_emulated, machine,
    or_skip, read_json, signal, until,
};
use hawkeye_linux::page_sizes::read_mapped_page_sizes;
use hawkeye_linux::processes::process::with_cpu_time;
use hawkeye_live_test_support::settings;
use hawkeye_live_test_support::workloads::children;
use hawkeye_policy::PageOrder;
use hawkeye_test_support::test_skips::TestName;
use hawkeye_test_support::this_test;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Blocks of 128 KiB in mappings of their own, each used as a whole; 300 are replaced per second.
const BLOCKS: &str = "blocks --mib 192 --guards --renew-per-s 300 --pages default --report-ms 1000";
const SOON: &str = "--profile balanced --period 1 --window 0.2 --cpu 100";

fn machine_with_sizes(test: TestName) -> Option<TestMachine> {
    let machine = machine(test)?;
    let small: Vec<String> = small();
    if small.is_empty() {
        test.skip("this kernel has no sizes between 4 KiB and 2 MiB");
        return None;
    }
    if small.iter().any(|name| settings::read(name) != "never") {
        test.skip("page sizes are switched on here already");
        return None;
    }
    Some(machine)
}

fn small() -> Vec<String> {
    let mut sizes = settings::sizes();
    sizes.retain(|name| !name.contains("2048kB"));
    sizes
}

fn set_to(word: &str) -> usize {
    let names = small().into_iter();
    names.filter(|name| settings::read(name) == word).count()
}

fn small_pages(summary: &Value) -> u64 {
    let sizes = summary["page_sizes"]["sizes"].as_array();
    let small = sizes.expect("the summary lists page sizes").iter();
    let small = small.filter(|size| figure(size, "page_bytes") < 2 << 20);
    small.map(|size| figure(size, "pages")).sum()
}

/// Whether a process has far more small pages than the tests require of a summary.
fn has_small_pages(pid: u32) -> bool {
    let small = 1..PageOrder::HUGE.log2_pages();
    read_mapped_page_sizes(pid).is_ok_and(|found| {
        let pages = found.pages.iter().filter(|(order, _)| small.contains(&order.log2_pages()));
        pages.map(|(_, pages)| pages).sum::<u64>() > 500
    })
}

/// The same until the manager must have counted them. It counts every second, or after 200 times
/// the CPU time of a count, and takes each count a second later. It learns nothing from a program
/// that it managed for less than 3 s.
fn has_counted_small_pages() -> impl FnMut(u32) -> bool {
    let mut counted_at = None;
    move |pid| {
        let (has_them, cost) = with_cpu_time(|| has_small_pages(pid));
        let counted = Duration::from_secs(4).max(Duration::from_secs(2) + cost * 250);
        has_them && Instant::now() >= *counted_at.get_or_insert_with(|| Instant::now() + counted)
    }
}

fn start(machine: &TestMachine, options: &str, blocks: &str, seconds: u32) -> StartedProcess {
    let words =
        format!("run {SOON} {options} -- {WORKLOADS} workload {blocks} --seconds {seconds}");
    StartedProcess::quietly(&mut machine.hawkeye(&words))
}

#[test]
fn with_consent_small_pages_are_given_and_counted_and_switches_are_restored() {
    if !at_speed(this_test!()) {
        return;
    }
    let machine = or_skip!(machine_with_sizes(this_test!()));
    let options = format!("{SOON} --small-pages all");
    let (code, summary) = machine.run_workload_until(&options, BLOCKS, has_counted_small_pages());
    // Wrong contents would change the exit code.
    assert_eq!(code, 0, "{summary}");
    assert!(small_pages(&summary) > 100, "{summary}");
    assert_eq!(set_to("never"), small().len());
    assert!(!machine.state.join("settings.json").exists());
}

#[test]
fn without_consent_no_switch_is_changed() {
    let machine = or_skip!(machine_with_sizes(this_test!()));
    let mut child = start(&machine, "", BLOCKS, 6);
    let touched = until(Duration::from_secs(5), || set_to("never") < small().len());
    assert!(!touched);
    let _ = child.wait();
}

#[test]
fn small_pages_can_be_limited_to_advised_memory() {
    let machine = or_skip!(machine_with_sizes(this_test!()));
    let advised = BLOCKS.replace("default", "huge");
    let mut counted = has_counted_small_pages();
    let given = |pid| {
        assert_eq!(set_to("always"), 0);
        set_to("madvise") > 0 && counted(pid)
    };
    let options = format!("{SOON} --small-pages advised");
    let (code, summary) = machine.run_workload_until(&options, &advised, given);
    assert_eq!(code, 0, "{summary}");
    assert_eq!(set_to("never"), small().len());
    // On an emulated machine the last count may not have ended.
    let least = if is_emulated() { 1 } else { 101 };
    assert!(small_pages(&summary) >= least, "{summary}");
}

#[test]
fn after_kill_9_restore_switches_small_pages_off() {
    let machine = or_skip!(machine_with_sizes(this_test!()));
    let mut child = start(&machine, "--small-pages all", BLOCKS, 300);
    assert!(until(DEADLINE, || set_to("always") > 0));
    let started = children(child.id());
    signal(child.id(), libc::SIGKILL);
    let _ = child.wait();
    // The program would run on without its manager. Helpers end by themselves.
    started.iter().for_each(|pid| signal(*pid, libc::SIGKILL));
    assert!(set_to("always") > 0, "the killed manager has not restored it");
    machine.output("restore");
    assert_eq!(set_to("never"), small().len());
}

#[test]
fn while_memory_is_short_no_process_gets_small_pages() {
    let machine = or_skip!(machine_with_sizes(this_test!()));
    // More memory than this is always in use. The trial at the start is for advised memory only.
    let mut child = start(&machine, "--small-pages all --watermarks 1,0.5", BLOCKS, 8);
    let given = until(Duration::from_secs(7), || set_to("always") > 0);
    assert!(!given);
    let _ = child.wait();
}

#[test]
fn learned_page_sizes_are_used_at_the_next_start() {
    if !at_speed(this_test!()) {
        return;
    }
    let machine = or_skip!(machine_with_sizes(this_test!()));
    let learn = "--small-pages all --learn";
    let options = format!("{SOON} {learn}");
    let (_, first) = machine.run_workload_until(&options, BLOCKS, has_counted_small_pages());
    assert!(small_pages(&first) > 100, "{first}");
    let records = std::fs::read_dir(machine.state.join("learned")).expect("the folder can be read");
    let records: Vec<_> = records.flatten().map(|entry| entry.path()).collect();
    assert_eq!(records.len(), 1, "{records:?}");
    let record = read_json(&records[0]).expect("the file holds JSON");
    assert_eq!(record["starts"], 1, "{record}");
    assert!(record["fault_sizes_bytes"][0].is_u64(), "{record}");
    // This policy chooses nothing, so what is given now was learned.
    let none = "--profile guard --small-pages all";
    let options = format!("{none} --learn");
    let (_, second) = machine.run_workload_until(&options, BLOCKS, has_counted_small_pages());
    assert!(small_pages(&second) > 100, "{second}");
    let (_, without) = machine.run_workload(none, &format!("{BLOCKS} --seconds 8"));
    assert_eq!(small_pages(&without), 0, "{without}");
    // A damaged record is reported and ignored.
    std::fs::write(&records[0], "{").expect("the file can be written");
    let words = format!("run {none} --learn -- {WORKLOADS} workload exit-after --ms 1200");
    machine.output(&words).assert_refused(0, "is damaged");
}
