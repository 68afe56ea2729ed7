//! Shared memory as the user sees it: promoted once for all its processes, never where its file has
//! holes, and named where it cannot become huge.

use crate::common::{
    AttachedManager, DEADLINE, TestMachine, WORKLOADS, assert_unharmed, figure, is_emulated,
    machine, machine_with, or_skip, started_by, until, workload,
};
use crate::daemon::{CONFIG, NAME, RunningDaemon};
use hawkeye_live_test_support::settings::{self, Changed};
use hawkeye_live_test_support::test_machine::at_speed;
use hawkeye_live_test_support::workloads::{children, rollup_kib};
use hawkeye_test_support::this_test;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

const MIB: u64 = 32;
const REGIONS: u64 = MIB / 2;
/// The kernel may refuse some regions for longer than a test waits (EAGAIN).
const MOST_KIB: u64 = (MIB << 10) / 2;
pub const CAPABILITY: &str = "shared memory";

pub fn huge_kib(pid: u32) -> u64 {
    rollup_kib(pid, "ShmemPmdMapped") + rollup_kib(pid, "FilePmdMapped")
}

pub fn attach(machine: &TestMachine, options: &str, pids: &[u32]) -> AttachedManager {
    machine.attach_all(&format!("{options} --cpu 100 --period 1 --window 0.3"), pids)
}

/// The addresses of the workload's file, as `/proc/PID/maps` has them.
fn file_addresses(pid: u32) -> String {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the mappings can be read");
    let line = maps.lines().find(|line| line.contains("/memfd:workload"));
    line.and_then(|line| line.split(' ').next()).expect("the file is mapped").to_owned()
}

/// Memory of the workload's file, in KiB.
fn file_kib(pid: u32) -> u64 {
    let address = file_addresses(pid);
    // The kernel omits leading zeros in this folder, too.
    let file = fs::metadata(format!("/proc/{pid}/map_files/{address}"));
    file.expect("the file exists").blocks() / 2
}

#[test]
fn a_file_of_two_processes_is_promoted_once_and_huge_in_both() {
    let machine = or_skip!(machine_with(this_test!(), CAPABILITY));
    // On 6.1 each process needs a call of its own.
    let kernel =
        fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel has a release");
    let calls = if kernel.starts_with("6.1.") { 2 } else { 1 };
    for policy in ["hawkeye", "hawkeye-g"] {
        let (mut program, pid) = workload(&format!("shared-file --mib {MIB} --workers 1"));
        let worker = children(pid)[0];
        assert!(until(DEADLINE, || rollup_kib(worker, "Rss") >= MIB << 10));
        let options = format!("--shared-memory --policy {policy}");
        let manager = attach(&machine, &options, &[pid, worker]);
        let huge = || huge_kib(pid) >= MOST_KIB && huge_kib(worker) >= MOST_KIB;
        let became_huge = until(DEADLINE, huge);
        let found = (huge_kib(pid), huge_kib(worker));
        let summary = manager.interrupt();
        assert!(became_huge, "{policy}: {found:?}: {summary}");
        // Once for both. The result of the last one may come after the interrupt.
        let promoted = summary["promoted"].as_u64().expect("a number");
        assert!((1..=calls * REGIONS).contains(&promoted), "{policy}: {summary}");
        assert_eq!(file_kib(pid), MIB << 10);
        assert_unharmed(&mut program);
    }
}

#[test]
fn a_file_of_one_process_is_promoted_by_its_page_walks() {
    let machine = or_skip!(machine_with(this_test!(), CAPABILITY));
    let (mut program, pid) = workload(&format!("shared-file --mib {MIB} --workers 0"));
    // On an emulated processor page walks are so cheap that no promotion pays.
    let policy = if is_emulated() { "--policy hawkeye-g" } else { "" };
    let manager = attach(&machine, &format!("--shared-memory {policy}"), &[pid]);
    let became_huge = until(DEADLINE, || huge_kib(pid) >= MOST_KIB);
    let found = huge_kib(pid);
    let summary = manager.interrupt();
    assert!(became_huge, "{found} KiB: {summary}");
    assert_unharmed(&mut program);
}

#[test]
fn a_recording_has_the_file_once_and_its_processes() {
    let machine = or_skip!(machine_with(this_test!(), CAPABILITY));
    let (mut program, pid) =
        workload(&format!("shared-file --mib {MIB} --workers 1 --private-mib 20"));
    let worker = children(pid)[0];
    assert!(until(DEADLINE, || rollup_kib(worker, "Rss") >= MIB << 10));
    let file = machine.state.join("shared.parquet");
    let recording = file.display();
    let options = format!("--shared-memory --policy hawkeye-g --record {recording}");
    let manager = attach(&machine, &options, &[pid, worker]);
    let became_huge = until(DEADLINE, || huge_kib(pid) >= MOST_KIB && huge_kib(worker) >= MOST_KIB);
    let summary = manager.interrupt();
    assert!(became_huge, "{summary}");
    let report = machine.report(&file);
    let (memory, shared) = (&report["memory"], &report["memory"]["shared"]);
    assert_eq!((&shared["files"], &shared["processes"]), (&json!(1), &json!(2)), "{memory:#}");
    // The last window may have found some regions between two accesses.
    let resident = figure(shared, "resident_bytes");
    assert!((MOST_KIB << 10..=MIB << 20).contains(&resident), "{memory:#}");
    let mut pids = [pid, worker];
    pids.sort_unstable();
    assert_eq!(memory["files"][0]["pids"], json!(pids), "{memory:#}");
    let address = file_addresses(pid);
    let mapped = fs::metadata(format!("/proc/{pid}/map_files/{address}"));
    let inode = mapped.expect("the file exists").ino();
    assert_eq!(figure(&memory["files"][0], "inode"), inode, "{memory:#}");
    let text = machine.output(&format!("report {recording}")).assert_success().out;
    assert!(text.contains("in 1 file of 2 processes"), "{text}");
    assert_unharmed(&mut program);
}

#[test]
fn a_recording_that_promotes_nothing_has_shared_memory_only_where_it_is_wanted() {
    let test = this_test!();
    // Elsewhere the start of the recorder uses up its CPU budget for minutes.
    if !at_speed(test) {
        return;
    }
    let machine = or_skip!(machine_with(test, CAPABILITY));
    let (mut program, pid) =
        workload(&format!("shared-file --mib {MIB} --workers 1 --private-mib 20"));
    let worker = children(pid)[0];
    assert!(until(DEADLINE, || rollup_kib(worker, "Rss") >= MIB << 10));
    let file = machine.state.join("shared.parquet");
    // Windows count where they have regions: without `--shared-memory`, those of the private
    // memory.
    let windows = |report: &Value| -> u64 {
        let processes = report["processes"].as_array().expect("processes").iter();
        processes.map(|process| figure(process, "windows")).sum()
    };
    let words = format!("{pid} {worker} --period 1 --window 0.3");
    for (options, files) in [("", 0), ("--shared-memory", 1)] {
        let words = format!("{words} {options}");
        let report = machine.record(&words, &file, |report| windows(report) >= 1);
        assert!(windows(&report) >= 1, "{options}: {report:#}");
        assert_eq!(report["memory"]["shared"]["files"], files, "{options}: {report:#}");
    }
    assert_unharmed(&mut program);
}

/// Repeats a command until its output contains all of these parts. Returns that output.
fn wait_for_output(machine: &TestMachine, words: &str, parts: &[&str]) -> String {
    let mut text = String::new();
    let has_all = until(DEADLINE, || {
        text = machine.output(words).assert_success().out;
        let line = text.replace('\n', " ");
        parts.iter().all(|part| line.contains(part))
    });
    assert!(has_all, "{parts:?}: {text}");
    text
}

#[test]
fn a_daemon_shows_shared_memory_once_and_why_names_its_file_and_its_processes() {
    let machine = or_skip!(machine_with(this_test!(), CAPABILITY));
    let name = machine.state.join(NAME);
    std::os::unix::fs::symlink(WORKLOADS, &name).expect("the link can be made");
    let words = format!("workload shared-file --mib {MIB} --workers 1 --private-mib 20");
    let mut command = Command::new(name);
    command.args(words.split(' '));
    let (mut program, ready) = started_by(command);
    let pid = ready.pid;
    let settings = "policy = \"hawkeye-g\"\nshared_memory = \"on\"\n";
    let daemon = RunningDaemon::start_by(&machine, &format!("{settings}{CONFIG}"));
    daemon.wait_for_status(DEADLINE, |status| status["shared_memory"]["processes"] == 2);
    let status = daemon.status();
    let shared = &status["shared_memory"];
    assert_eq!(shared["files"], 1, "{status:#}");
    assert!(figure(shared, "resident_bytes") <= MIB << 20, "{status:#}");
    for process in status["processes"].as_array().expect("processes") {
        assert!(figure(process, "shared_bytes") <= MIB << 20, "{process:#}");
    }
    let address = file_addresses(pid);
    let start = address.split('-').next().expect("an address");
    let words = format!("why {pid} 0x{start}");
    // A window may find none of it in the page tables of a process, between two accesses.
    let mut answer = Value::Null;
    let is_explained = until(DEADLINE, || {
        answer = daemon.json(&words);
        let shared = &answer["shared_memory"];
        let name = shared["file_name"].as_str().unwrap_or_default();
        shared["mapper_count"] == 2 && name.contains("/memfd:workload")
    });
    assert!(is_explained, "{answer:#}");
    let parts = ["It is shared memory: part 0,", "/memfd:workload", "its promotion is final"];
    wait_for_output(&machine, &words, &parts);
    let marked_name = format!("{NAME}*");
    let parts = ["shared memory ", "in 1 file of 2 processes", marked_name.as_str()];
    let text = wait_for_output(&machine, "top --once", &parts);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    daemon.end();
    assert_unharmed(&mut program);
}

#[test]
fn a_sparse_file_does_not_grow_and_shared_memory_is_left_alone_unless_wanted() {
    let machine = or_skip!(machine_with(this_test!(), CAPABILITY));
    let (mut sparse, sparse_pid) =
        workload(&format!("shared-file --mib {MIB} --workers 0 --pages 100"));
    let (_full, full_pid) = workload(&format!("shared-file --mib {MIB} --workers 0"));
    let before = file_kib(sparse_pid);
    // The control: private memory becomes huge, and later the full file.
    let (_private, private_pid) = workload("random --mib 32 --pages base --quiet");
    let manager = attach(&machine, "--policy hawkeye-g", &[sparse_pid, full_pid, private_pid]);
    assert!(until(DEADLINE, || rollup_kib(private_pid, "AnonHugePages") >= MOST_KIB));
    manager.interrupt();
    assert_eq!((huge_kib(sparse_pid), huge_kib(full_pid)), (0, 0));
    let options = "--shared-memory --policy hawkeye-g";
    let manager = attach(&machine, options, &[sparse_pid, full_pid]);
    let became_huge = until(DEADLINE, || huge_kib(full_pid) >= MOST_KIB);
    let summary = manager.interrupt();
    assert!(became_huge, "{summary}");
    let grown = file_kib(sparse_pid);
    assert!(grown * 100 <= before * 105, "the file grew from {before} to {grown} KiB");
    assert_unharmed(&mut sparse);
}

#[test]
fn base_pages_of_all_managed_processes_count() {
    let machine = or_skip!(machine_with(this_test!(), CAPABILITY));
    let (mut halves, pid) = workload(&format!("shared-file --mib {MIB} --workers 1 --halves"));
    let worker = children(pid)[0];
    assert!(until(DEADLINE, || rollup_kib(worker, "Rss") >= MIB << 9));
    let (_full, full_pid) = workload(&format!("shared-file --mib {MIB} --workers 0"));
    let options = "--shared-memory --policy hawkeye-g";
    let manager = attach(&machine, options, &[pid, full_pid]);
    let full_is_huge = until(DEADLINE, || huge_kib(full_pid) >= MOST_KIB);
    let summary = manager.interrupt();
    assert!(full_is_huge, "{summary}");
    assert_eq!(huge_kib(pid), 0, "a half of each region is no reason to add the other");
    let manager = attach(&machine, options, &[pid, worker]);
    let became_huge = until(DEADLINE, || huge_kib(pid) + huge_kib(worker) >= MOST_KIB);
    let summary = manager.interrupt();
    assert!(became_huge, "{summary}");
    assert_unharmed(&mut halves);
}

#[test]
fn advise_names_shared_memory_that_is_not_aligned() {
    let machine = or_skip!(machine(this_test!()));
    let (_program, pid) = workload(&format!("shared-file --mib {MIB} --workers 1 --misaligned"));
    let advice = machine.output(&format!("advise --seconds 1 --json {pid}"));
    let advice = advice.assert_success().json();
    let findings = advice["findings"].as_array().expect("findings").iter();
    let blocked: Vec<_> = findings.filter(|it| it["finding"] == "shared-blocked").collect();
    assert_eq!(blocked.len(), 1, "{advice:#}");
    assert_eq!(blocked[0]["mapped_bytes"].as_u64(), Some(MIB << 20), "{advice:#}");
    let because = blocked[0]["because"].as_str().unwrap_or_default();
    assert!(because.contains("not congruent modulo 2 MiB"), "{because}");
}

#[test]
fn the_list_of_a_machines_shared_memory_has_each_file_once() {
    let machine = or_skip!(machine(this_test!()));
    let (_program, pid) = workload(&format!("shared-file --mib {MIB} --workers 1 --misaligned"));
    let worker = children(pid)[0];
    assert!(until(DEADLINE, || rollup_kib(worker, "Rss") >= MIB << 10));
    let list = machine.output("advise --shared-memory --json").assert_success().json();
    let all = list["files"].as_array().expect("files").iter();
    let is_ours = |it: &&Value| [pid, worker].map(Some).contains(&number(it, "largest_pid"));
    let files: Vec<_> = all.filter(is_ours).collect();
    assert_eq!(files.len(), 1, "{list:#}");
    let figures = ["mapped_bytes", "resident_bytes", "processes", "blocked_mappings"];
    let found = figures.map(|name| files[0][name].as_u64());
    assert_eq!(found, [MIB << 20, MIB << 20, 2, 2].map(Some), "{list:#}");
    assert_eq!(files[0]["obstacle"], "misaligned", "{list:#}");
    let text = machine.output("advise --shared-memory").assert_success().out;
    let row = text.lines().find(|line| line.contains("memfd:workload"));
    // The text has the largest files only, and other programs may have larger ones.
    assert!(row.is_none_or(|row| row.contains("no: misaligned")), "{text}");
    machine.output("advise --shared-memory --all").assert_refused(2, "cannot be used with");
    machine.output("advise --shared-memory 1").assert_refused(2, "cannot be used with");
}

fn number(value: &Value, name: &str) -> Option<u32> {
    u32::try_from(value[name].as_u64()?).ok()
}

#[test]
fn the_setting_that_aligns_shared_memory_is_put_back() {
    let machine = or_skip!(machine(this_test!()));
    // Where it is `advise` already, the manager changes nothing that the test could wait for.
    let setting = settings::file("shmem_enabled");
    let _never = Changed::to([(setting, "never")]).expect("root can change the setting");
    let (_program, pid) = workload("burner --mib 16");
    let manager = attach(&machine, "--align-shared-memory", &[pid]);
    let was_set = until(DEADLINE, || settings::read("shmem_enabled") == "advise");
    manager.interrupt();
    assert!(was_set);
    assert_eq!(settings::read("shmem_enabled"), "never");
}
