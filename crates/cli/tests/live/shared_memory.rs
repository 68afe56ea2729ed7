//! Memory that processes share stays shared: copy-on-write after a fork, and merged by KSM.

use crate::common::{AttachedManager, TestMachine, is_emulated, machine, or_skip, until, workload};
use hawkeye_live_test_support::ksm::KsmGuard;
use hawkeye_live_test_support::workloads::{children, rollup_kib};
use hawkeye_test_support::test_skips::TestName;
use hawkeye_test_support::this_test;
use hawkeye_workload::WorkloadProcess;
use std::fs;
use std::time::Duration;

fn sum_kib(family: &[u32], line: &str) -> u64 {
    family.iter().map(|pid| rollup_kib(*pid, line)).sum()
}

fn attach(machine: &TestMachine, policy: &str, family: &[u32]) -> AttachedManager {
    let options = format!("--policy {policy} --cpu 100 --period 1 --window 0.3");
    machine.attach_all(&options, family)
}

/// Eight workers read 512 MiB that they share, and each reads 16 MiB of its own. The limit is the
/// same under every policy (`shared_regions.rs`).
#[test]
fn forked_workers_stay_small() {
    let machine = or_skip!(machine(this_test!()));
    let (_program, pid) = workload("shared --mib 512 --workers 8 --private-mib 16");
    let mut family = children(pid);
    family.push(pid);
    assert_eq!(family.len(), 9);
    // Each worker has filled its own memory.
    let filled = || sum_kib(&family, "Private_Dirty") >= 8 * (16 << 10);
    assert!(until(Duration::from_secs(20), filled));
    let before = sum_kib(&family, "Pss");
    // On an emulated processor page walks are so cheap that no promotion pays, and all is slow.
    let is_emulated = is_emulated();
    let policy = if is_emulated { "hawkeye-g" } else { "hawkeye" };
    let least_kib = if is_emulated { 2 << 10 } else { 2 * (16 << 10) };
    let manager = attach(&machine, policy, &family);
    // The positive control: some of the workers' own memory becomes huge. How much of it pays
    // depends on their share of the processors.
    let huge = || sum_kib(&family, "AnonHugePages") >= least_kib;
    let promoted = until(Duration::from_secs(120), huge);
    let mut most = 0;
    until(Duration::from_secs(5), || {
        most = most.max(sum_kib(&family, "Pss"));
        false
    });
    manager.interrupt();
    let huge = sum_kib(&family, "AnonHugePages");
    assert!(promoted, "{huge} KiB are huge");
    let grew = most as f64 / before as f64;
    assert!(grew <= 1.02, "PSS grew from {before} to {most} KiB");
}

fn machine_with_ksm(test: TestName) -> Option<(TestMachine, KsmGuard)> {
    let machine = machine(test)?;
    let ksm = KsmGuard::start();
    if ksm.is_none() {
        test.skip("this kernel has no KSM");
    }
    Some((machine, ksm?))
}

/// Manages a process and a second one, until all memory of the second one is huge.
fn managed_beside_a_control(machine: &TestMachine, pid: u32) -> (WorkloadProcess, AttachedManager) {
    let (control, control_pid) = workload("random --mib 32 --pages base --quiet");
    let manager = attach(machine, "hawkeye-g", &[pid, control_pid]);
    let huge = || rollup_kib(control_pid, "AnonHugePages") >= 32 << 10;
    assert!(until(Duration::from_secs(120), huge));
    (control, manager)
}

/// 128 MiB in which every n-th page has one of 32 contents; all other pages are unique. Where all
/// are merged, no page is seen as touched, because the kernel does not clear the marks of merged
/// pages. With few, most of each region is touched and private: only the limit prevents promotion.
#[test]
fn merged_pages_stay_merged() {
    for every in [1, 8] {
        let (machine, ksm) = or_skip!(machine_with_ksm(this_test!()));
        merged_pages_stay_merged_where(&machine, every);
        drop(ksm);
    }
}

fn merged_pages_stay_merged_where(machine: &TestMachine, every: u64) {
    let alike = (128 << 8) / every;
    let words = format!(
        "shared --mib 128 --workers 0 --parent-mib 128 --mergeable {} --mergeable-every {every}",
        alike / 32
    );
    let (_program, pid) = workload(&words);
    // The kernel does not count one page of each content.
    let merged = || KsmGuard::pages_sharing() >= alike * 95 / 100;
    assert!(until(Duration::from_secs(60), merged));
    // Otherwise KSM at once merges again what a promotion has copied. Its own count does not fall
    // before its next scan, so merged pages are recognized by how often memory is mapped.
    fs::write(KsmGuard::path("run"), "0").expect("KSM can be stopped");
    let before = rollup_kib(pid, "Pss_Anon");
    let (_control, manager) = managed_beside_a_control(machine, pid);
    let mut most = 0;
    until(Duration::from_secs(5), || {
        most = most.max(rollup_kib(pid, "Pss_Anon"));
        false
    });
    manager.interrupt();
    let grew = most as f64 / before as f64;
    let said = format!("one of {every}: {most} KiB of its own, {before} before");
    assert!(grew <= 1.01, "{said}");
}

/// Nothing is merged, because no two pages are equal: only the permission to merge them prevents
/// promotion.
#[test]
fn mergeable_memory_is_left_alone_while_ksm_runs() {
    let (machine, _ksm) = or_skip!(machine_with_ksm(this_test!()));
    let words = "shared --mib 64 --workers 0 --mergeable 16384 --parent-mib 64";
    let (_program, pid) = workload(words);
    let (_control, manager) = managed_beside_a_control(&machine, pid);
    assert_eq!(rollup_kib(pid, "AnonHugePages"), 0);
    // Once KSM has stopped, the memory is like any other.
    fs::write(KsmGuard::path("run"), "0").expect("KSM can be stopped");
    let huge = || rollup_kib(pid, "AnonHugePages") > 0;
    assert!(until(Duration::from_secs(120), huge));
    manager.interrupt();
}
