//! Memory that processes share: which pages are counted as shared, and what may be promoted.

use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::promote::target_call::CallHelperPool;
use hawkeye_linux::sample::page_table_reader::PageTableReader;
use hawkeye_linux::sample::pagemap;
use hawkeye_linux::sample::process_meter::ProcessMeter;
use hawkeye_linux::sample::sampler::SamplerBackend;
use hawkeye_linux::{LinuxError, LinuxMachine};
use hawkeye_live_test_support::manager_in_test::{
    kernel_backend, machine_of, promotion_result, read_regions, sampled,
};
use hawkeye_live_test_support::or_skip;
use hawkeye_live_test_support::test_machine::machine;
use hawkeye_live_test_support::time_limits::{DEADLINE, until};
use hawkeye_live_test_support::workloads::{children, rollup_kib, started, workload};
use hawkeye_manager::{MachineError, PromotionResult};
use hawkeye_policy::walk_rate::{WalkCostAtInterval, WalkCosts, WalkCostsAtFootprint};
use hawkeye_policy::{Errno, RegionSample};
use hawkeye_test_support::test_skips::TestName;
use hawkeye_test_support::this_test;
use hawkeye_workload::WorkloadRequest;
use std::time::Duration;

/// Walk costs of a machine with very expensive walks, on which every promotion pays.
fn expensive_walk_costs() -> WalkCosts {
    let at = |walk_ns| vec![WalkCostAtInterval { apart_ns: 100.0, walk_ns, error_ns: 0.0 }];
    WalkCosts {
        by_footprint: vec![WalkCostsAtFootprint {
            footprint_bytes: 64 << 20,
            independent_ns: 200.0,
            dependent_ns: 400.0,
        }],
        by_distance: at(400.0),
        streamed: at(50.0),
        strided: at(100.0),
        ..WalkCosts::typical()
    }
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
        promotion_result(machine, process, r.region, r.present)
    };
    let done = promote(&mut machine, &alone[0]);
    assert!(matches!(done, Ok(PromotionResult::Done { .. })), "{done:?}");
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
    let mut promoted = 0;
    for r in &again[1..] {
        assert_eq!((r.present, r.maybe_shared), (512, 512));
        match promote(&mut machine, r) {
            Ok(PromotionResult::Done { .. }) => promoted += 1,
            // Before Linux 6.18 no region is collapsed in which no page is writable.
            Err(MachineError::Refused { errno: Errno::EINVAL, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(promoted == 0 || promoted == 15, "{promoted}");
    assert_eq!(rollup_kib(pid, "AnonHugePages"), (1 + promoted) * 2048);
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
        let mut counted = None;
        // On a busy host an answer may take longer than the loop waits.
        until(DEADLINE, || {
            calls.take_late_calls();
            counted = match calls.find_shared_pages_of_region(process, region) {
                Err(LinuxError::NotAnswering(_)) => None,
                pages => Some(pages.expect("the shared pages can be counted").count()),
            };
            counted.is_some()
        });
        assert_eq!(counted, Some(shared));
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
