//! Memory that processes share stays shared: copy-on-write after a fork, and merged by KSM.

use crate::common::{
    AttachedManager, TestMachine, kernel_backend, machine, machine_of, or_skip, read_regions,
    rollup_kib, sampled, started, until, workload,
};
use crate::ksm::KsmGuard;
use hawkeye_linux::LinuxMachine;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::promote::target_call::CallHelperPool;
use hawkeye_linux::sample::page_table_reader::PageTableReader;
use hawkeye_linux::sample::pagemap;
use hawkeye_linux::sample::process_meter::ProcessMeter;
use hawkeye_linux::sample::sampler::SamplerBackend;
use hawkeye_manager::{Machine as _, PromotionResult};
use hawkeye_policy::walk_rate::WalkCosts;
use hawkeye_policy::{PageOrder, RegionSample};
use hawkeye_test_support::test_skips::TestName;
use hawkeye_test_support::this_test;
use hawkeye_workload::{WorkloadProcess, WorkloadRequest};
use std::fs;
use std::time::Duration;

/// Walk costs of a machine with very expensive walks, on which every promotion pays.
fn expensive_walk_costs() -> WalkCosts {
    serde_json::from_str(
        r#"{
            "by_footprint": [{
                "footprint_bytes": 67108864, "independent_ns": 200.0,
                "dependent_ns": 400.0, "alone_ns": 400.0
            }],
            "by_distance": [{"apart_ns": 100.0, "walk_ns": 400.0}],
            "streamed": [{"apart_ns": 100.0, "walk_ns": 50.0}],
            "strided": [{"apart_ns": 100.0, "walk_ns": 100.0}],
            "scattered_error": 0.25,
            "data_independent_ns": 20.0,
            "data_dependent_ns": 50.0,
            "tlb_pages": 1536,
            "tlb_huge_pages": 1536
        }"#,
    )
    .expect("the costs can be parsed")
}

fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let listed = listed.unwrap_or_default();
    let pids = listed.split_whitespace().map(str::parse);
    pids.collect::<Result<_, _>>().expect("the pids are numbers")
}

fn sum_kib(family: &[u32], line: &str) -> u64 {
    family.iter().map(|pid| rollup_kib(*pid, line)).sum()
}

fn attach(machine: &TestMachine, policy: &str, family: &[u32]) -> AttachedManager {
    let options = format!("--policy {policy} --cpu 100 --period 1 --window 0.3");
    machine.attach_all(&options, family)
}

/// Eight workers read 512 MiB that they share, and each reads 16 MiB of its own.
#[test]
fn forked_workers_stay_small() {
    let machine = or_skip!(machine(this_test!()));
    for policy in ["hawkeye", "hawkeye-g", "ingens"] {
        forked_workers_stay_small_under(&machine, policy);
    }
}

fn forked_workers_stay_small_under(machine: &TestMachine, policy: &str) {
    let (_program, pid) = workload("shared --mib 512 --workers 8 --private-mib 16");
    let mut family = children(pid);
    family.push(pid);
    assert_eq!(family.len(), 9);
    // Each worker has filled its own memory.
    let filled = || sum_kib(&family, "Private_Dirty") >= 8 * (16 << 10);
    assert!(until(Duration::from_secs(20), filled));
    let before = sum_kib(&family, "Pss");
    let manager = attach(machine, policy, &family);
    // The positive control: the workers' own memory becomes huge.
    let huge = || sum_kib(&family, "AnonHugePages") >= 4 * (16 << 10);
    let promoted = until(Duration::from_secs(120), huge);
    let mut most = 0;
    until(Duration::from_secs(5), || {
        most = most.max(sum_kib(&family, "Pss"));
        false
    });
    manager.interrupt();
    let huge = sum_kib(&family, "AnonHugePages");
    assert!(promoted, "{policy}: {huge} KiB are huge");
    let grew = most as f64 / before as f64;
    let said = format!("{policy}: PSS grew from {before} to {most} KiB");
    assert!(grew <= 1.02, "{said}");
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

#[test]
fn a_region_is_promoted_only_while_no_other_process_shares_it() {
    let _machine = or_skip!(machine(this_test!()));
    let (mut program, ready) = started("shared --mib 32 --workers 1 --asleep --wait");
    let pid = ready.pid;
    let (mut machine, process) = machine_of(kernel_backend(), pid);
    let sample = |machine: &mut LinuxMachine| -> Vec<RegionSample> {
        let sampled = sampled(machine, process);
        let memory = ready.start..ready.start + ready.bytes;
        let inside = |r: &RegionSample| memory.contains(&r.region.start());
        sampled.regions.into_iter().filter(inside).collect()
    };
    let alone = sample(&mut machine);
    assert_eq!(alone.len(), 16);
    let full_and_alone = |r: &RegionSample| (r.present, r.maybe_shared) == (512, 0);
    assert!(alone.iter().all(full_and_alone));
    let promote = |machine: &mut LinuxMachine, r: &RegionSample| {
        machine.promote(process, r.region, PageOrder::HUGE, r.present)
    };
    let done = promote(&mut machine, &alone[0]);
    assert!(matches!(done, Ok(PromotionResult::Done(_))), "{done:?}");
    // The program forks between the sample and the promotion.
    program.send_request(WorkloadRequest::Go).expect("the workload can be started");
    assert!(until(Duration::from_secs(10), || children(pid).len() == 1));
    for r in &alone[1..] {
        let shared = promote(&mut machine, r);
        assert_eq!(shared, Ok(PromotionResult::Shared { pages: 512 }), "{r:?}");
    }
    let forked = sample(&mut machine);
    assert!(forked[1..].iter().all(|r| r.maybe_shared == 512));
    // Its child ends. The pages are still write-protected, and no other process maps them.
    program.send_request(WorkloadRequest::Stop).expect("the workload can be stopped");
    assert!(until(Duration::from_secs(10), || children(pid).is_empty()));
    let again = sample(&mut machine);
    for r in &again[1..] {
        assert_eq!((r.present, r.maybe_shared), (512, 512));
        let done = promote(&mut machine, r);
        assert!(matches!(done, Ok(PromotionResult::Done(_))), "{done:?}");
    }
    assert_eq!(rollup_kib(pid, "AnonHugePages"), 32 << 10);
}

#[test]
fn shared_pages_are_counted_exactly_by_both_samplers() {
    let _machine = or_skip!(machine(this_test!()));
    let (_program, pid) = workload("shared --mib 16 --workers 1 --asleep --private-mib 8");
    let child = children(pid)[0];
    assert!(until(Duration::from_secs(10), || { rollup_kib(child, "Private_Dirty") >= 8 << 10 }));
    let mut tables = PageTableReader::load_bpf_programs().expect("the BPF programs can be loaded");
    let (ranges, found) = read_regions(&mut tables, child);
    let full = |found: &[RegionSample]| {
        let full = found.iter().filter(|r| r.present == 512);
        full.map(|r| (r.region, r.maybe_shared)).collect::<Vec<_>>()
    };
    let by_tables = full(&found);
    let by_pagemap =
        full(&pagemap::read_population(child, &ranges).expect("the pagemap can be read"));
    assert_eq!(by_tables, by_pagemap);
    let count = |shared: u16| by_tables.iter().filter(|(_, n)| *n == shared).count();
    assert_eq!((count(512), count(0)), (8, 4), "{by_tables:?}");
    let process = ProcessHandle::open(child).expect("the process can be opened").id;
    let mut calls = CallHelperPool::default();
    for (region, shared) in by_tables {
        let pages = calls
            .find_shared_pages_of_region(process, region)
            .expect("the shared pages can be counted");
        assert_eq!(pages.count(), shared);
    }
}

/// Overhead of the workload's memory, in per cent: the median of several windows, with walk costs
/// that the test sets.
fn overhead_percent(pid: u32) -> f64 {
    let SamplerBackend::AccessBits(mut bits) = kernel_backend().sampler else {
        panic!("access bits can be seen");
    };
    bits.walk_costs = Some(expensive_walk_costs().into());
    let mut meter = ProcessMeter::open(bits, pid).expect("the process can be measured");
    let mut seen: Vec<f64> = (1..=5)
        .map(|_| {
            let measured = meter.measure_window_overhead().expect("the overhead can be estimated");
            measured.estimate.overhead.map_or(0.0, |it| it.percent)
        })
        .collect();
    seen.sort_by(f64::total_cmp);
    seen[2]
}

#[test]
fn a_fork_does_not_make_an_idle_program_seem_busy() {
    let name = this_test!();
    let _machine = or_skip!(machine(name).filter(|_| sees_access_bits(name)));
    // The program has written 1 GiB and reads 1 MiB of it, which any TLB holds. Every page is
    // marked accessed until the first sample.
    let words = "shared --mib 1024 --asleep --parent-mib 1";
    let alone = {
        let (_program, pid) = workload(&format!("{words} --workers 0"));
        overhead_percent(pid)
    };
    let (_program, pid) = workload(&format!("{words} --workers 1"));
    assert_eq!(children(pid).len(), 1);
    let forked = overhead_percent(pid);
    let grew = forked - alone;
    assert!(grew <= 1.0, "by {grew:.2} to {forked:.2} % by a fork");
}

fn sees_access_bits(name: TestName) -> bool {
    let sees = matches!(kernel_backend().sampler, SamplerBackend::AccessBits(_));
    if !sees {
        name.skip("access bits can't be seen here");
    }
    sees
}
