//! Rule 1: memory contents never change, whatever the manager does to the pages under them.

use hawkeye_bench::clear_refs;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_linux::promote::process_madvise;
use hawkeye_linux::sample::page_table_reader::{PageTableReader, WalkDetail};
use hawkeye_live_test_support::manager_in_test::eligible;
use hawkeye_live_test_support::or_skip;
use hawkeye_live_test_support::test_machine::machine;
use hawkeye_live_test_support::time_limits::{from_environment, time_limit_factor};
use hawkeye_live_test_support::workloads::workload;
use hawkeye_test_support::this_test;
use hawkeye_workload::WorkloadEvent;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Two threads promote all that is not huge and split all that is, as fast as they can.
#[test]
fn no_byte_changes_while_regions_are_promoted_and_split_as_fast_as_possible() {
    let _machine = or_skip!(machine(this_test!()));
    // The test may be made longer.
    let seconds = from_environment("HAWKEYE_TORTURE_S", 20);
    let words = format!("torture --mib 2048 --threads 8 --seconds {seconds}");
    let (mut program, pid) = workload(&words);
    let process = ProcessHandle::open(pid).expect("the process can be opened");
    let over = AtomicBool::new(false);
    let promoted = AtomicU64::new(0);
    let split = AtomicU64::new(0);
    let end = std::thread::scope(|scope| {
        for (huge, done) in [(false, &promoted), (true, &split)] {
            let (process, over) = (&process, &over);
            scope.spawn(move || hammer(process, huge, done, over));
        }
        let end = loop {
            match program.next_event(Duration::from_secs(seconds + 60)) {
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
    eprintln!("{promoted} promoted, {split} split, {totals:?}");
    let least = 100 / u64::from(time_limit_factor());
    let enough = promoted > least && split > least;
    assert!(enough, "{promoted} promoted, {split} split");
    assert!(program.close_input_and_wait().is_ok_and(|status| status.success()));
}

fn hammer(process: &ProcessHandle, huge: bool, done: &AtomicU64, over: &AtomicBool) {
    let mut tables = PageTableReader::load_bpf_programs().expect("the BPF programs can be loaded");
    let target = tables.bind_to_process(process.id.pid).expect("the target can be bound");
    while !over.load(Ordering::Relaxed) {
        let ranges = eligible(&tables, &target);
        let mut found = Vec::new();
        // The program may end at any time.
        let _ = tables.walk_ranges(&target, &ranges, WalkDetail::Regions, &mut found, |_| {});
        for sample in found.iter().filter(|sample| sample.is_huge() == huge) {
            let result = match huge {
                true => process_madvise::split_huge_page(process, sample.region),
                false => process_madvise::collapse(process, sample.region),
            };
            done.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
        }
        let _ = clear_refs::clear_access_bits_of_process(process.id.pid);
    }
}
