//! Rule 1: memory contents never change, whatever the manager does to the pages under them.

use hawkeye_bench::clear_refs;
use hawkeye_linux::processes::mappings::{ManagedMemory, collect_eligible_ranges_of};
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::promote::target_call::CallHelperPool;
use hawkeye_linux::sample::page_table_reader::{PageTableReader, WalkDetail};
use hawkeye_live_test_support::or_skip;
use hawkeye_live_test_support::test_machine::machine;
use hawkeye_live_test_support::time_limits::{DEADLINE, from_environment, time_limit_factor};
use hawkeye_live_test_support::workloads::workload;
use hawkeye_test_support::this_test;
use hawkeye_workload::{WorkloadEvent, WorkloadProcess};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[test]
fn no_byte_changes_while_regions_are_promoted_and_split_as_fast_as_possible() {
    let _machine = or_skip!(machine(this_test!()));
    // The test may be made longer.
    let seconds = from_environment("HAWKEYE_TORTURE_S", 20);
    let words = format!("torture --mib 2048 --threads 8 --seconds {seconds}");
    let (mut program, pid) = workload(&words);
    let process = [ProcessHandle::open(pid).expect("the process can be opened")];
    let (promoted, split, _) = torture(&mut program, &process, ManagedMemory::Private, seconds);
    let least = 100 / u64::from(time_limit_factor());
    let enough = promoted > least && split > least;
    assert!(enough, "{promoted} promoted, {split} split");
    assert!(program.close_input_and_wait().is_ok_and(|status| status.success()));
}

/// Until the workload ends, one thread promotes all memory of the processes that is not huge, and
/// another splits all that is, as fast as they can. With [`ManagedMemory::PrivateAndShared`], only
/// shared memory. Returns the number of promotions, of splits, and of the workload's forks.
pub fn torture(
    program: &mut WorkloadProcess,
    processes: &[ProcessHandle],
    memory: ManagedMemory,
    seconds: u64,
) -> (u64, u64, u64) {
    let over = AtomicBool::new(false);
    let [promoted, split] = [const { AtomicU64::new(0) }; 2];
    let end = std::thread::scope(|scope| {
        for (huge, done) in [(false, &promoted), (true, &split)] {
            let over = &over;
            scope.spawn(move || hammer(processes, memory, huge, done, over));
        }
        let end = loop {
            match program.next_event(Duration::from_secs(seconds + 60) * time_limit_factor()) {
                Ok(WorkloadEvent::Progress { .. }) => {}
                other => break other,
            }
        };
        over.store(true, Ordering::Relaxed);
        end
    });
    let (promoted, split) = (promoted.into_inner(), split.into_inner());
    let Ok(WorkloadEvent::Done(totals)) = end else {
        panic!("after {promoted} promotions and {split} splits: {end:?}");
    };
    eprintln!("{promoted} promoted, {split} split or advised to, {totals:?}");
    assert!(totals.verified_bytes > 0);
    (promoted, split, totals.forks)
}

fn hammer(
    processes: &[ProcessHandle],
    memory: ManagedMemory,
    huge: bool,
    done: &AtomicU64,
    over: &AtomicBool,
) {
    let is_shared = memory == ManagedMemory::PrivateAndShared;
    let mut tables = PageTableReader::load_bpf_programs().expect("the BPF programs can be loaded");
    let mut calls = CallHelperPool::with_time_limit(DEADLINE);
    let bind = |process: &ProcessHandle| tables.bind_to_process(process.id.pid);
    let targets: Vec<_> = processes.iter().map(|process| bind(process).ok()).collect();
    while !over.load(Ordering::Relaxed) {
        for (process, target) in processes.iter().zip(&targets) {
            let Some(target) = target else { continue };
            // The program may end at any time.
            let mappings = calls.list_mappings(process.id, target).unwrap_or_default();
            let eligible = collect_eligible_ranges_of(&mappings, memory);
            let mut found = Vec::new();
            let ranges = &eligible.ranges;
            let _ = tables.walk_ranges(target, ranges, WalkDetail::Regions, &mut found, |_| {});
            eligible.name_file_regions(&mut found);
            found.retain(|it| it.file.is_some() == is_shared && it.is_huge() == huge);
            for sample in &found {
                let result = match huge {
                    true => calls.split_huge_page(process, sample.region, None).map(drop),
                    false => calls.collapse(process, sample.region, || None).map(drop),
                };
                done.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
            }
            if !is_shared {
                let _ = clear_refs::clear_access_bits_of_process(process.id.pid);
            }
        }
    }
}
