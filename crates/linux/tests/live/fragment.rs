//! Fragments free memory on purpose.

use hawkeye_linux::memory::fragmentation::read_unusable_free_index;
use hawkeye_live_test_support::manager_in_test::{
    kernel_backend, machine_of, promotion_result, sampled,
};
use hawkeye_live_test_support::or_skip;
use hawkeye_live_test_support::settings::Changed;
use hawkeye_live_test_support::test_machine::machine_at_speed;
use hawkeye_live_test_support::time_limits::until;
use hawkeye_live_test_support::workloads::{started, workload_command};
use hawkeye_manager::{HugePageReserveControl as _, PromotionResult};
use hawkeye_policy::{PAGES_PER_REGION, ReserveTarget};
use hawkeye_test_support::this_test;
use hawkeye_workload::{WorkloadEvent, WorkloadProcess};
use std::fs;
use std::time::Duration;

/// Deadline for filling all free memory, which comes first.
const FILLED: Duration = Duration::from_secs(180);
const WHOLE: Duration = Duration::from_secs(120);

/// A promotion that finds no huge page waits for compaction, which fails here. Those from the
/// reserve do not.
#[test]
fn free_memory_is_fragmented_until_released_and_promotions_from_the_reserve_do_not_compact() {
    let _machine = or_skip!(machine_at_speed(this_test!()));
    compact();
    let (_program, ready) = started("bloat --mib 256 --used 512 --pages base");
    let (mut machine, process) = machine_of(kernel_backend(), ready.pid);
    let regions = sampled(&mut machine, process).regions;
    let fill = ReserveTarget { pages: RESERVE, fill: true };
    machine.set_reserve_target(fill, RESERVE).expect("its process starts");
    let filled = until(FILLED, || machine.reserve_state().held == RESERVE);
    assert!(filled, "{:?}", machine.reserve_state());
    // Fills would compact too.
    let keep = ReserveTarget { fill: false, ..fill };
    machine.set_reserve_target(keep, RESERVE).expect("its process runs");

    let command = workload_command("fragment --fmfi 0.9 --unmovable");
    let mut workload = WorkloadProcess::spawn_command(command).expect("the workload starts");
    let (before, reached) = loop {
        match workload.next_event(FILLED).expect("the next event arrives") {
            WorkloadEvent::Fragmented { fmfi_before, fmfi, .. } => break (fmfi_before, fmfi),
            WorkloadEvent::Error { message } => panic!("{message}"),
            _ => {}
        }
    };
    assert!((reached - 0.9).abs() < 0.1, "{reached}");
    compact();
    let compacted = read_unusable_free_index().expect("the fragmentation can be read");
    assert!(compacted > reached - 0.15, "{reached}, then {compacted}");

    let full = regions.iter().filter(|region| region.present == 512);
    let mut promoted = 0;
    for region in full.take(RESERVE as usize) {
        let done = promotion_result(&mut machine, process, region.region, PAGES_PER_REGION);
        assert!(matches!(done, Ok(PromotionResult::Done { .. })), "{done:?}");
        promoted += 1;
    }
    let reserve = machine.reserve_state();
    assert_eq!(promoted, RESERVE);
    assert_eq!((reserve.held, reserve.served), (0, u64::from(RESERVE)));

    workload.close_input_and_wait().expect("the workload ends on request");
    let _short = Changed::to([(LIMIT.into(), "1000000")]).expect("the limit can be set");
    let half_way = f64::midpoint(before, reached);
    let mut left = reached;
    let whole_again = until(WHOLE, || {
        shorten_lists();
        compact();
        left = read_unusable_free_index().expect("the fragmentation can be read");
        left < half_way
    });
    let shares = (before, reached, left);
    assert!(whole_again, "before, while held, after: {shares:?}");
}

fn compact() {
    fs::write("/proc/sys/vm/compact_memory", "1").expect("memory can be compacted");
}

/// Limit of the processors' own lists of free pages. Otherwise these lists keep single pages until
/// other programs allocate, up to the low watermark (`pcp->high_min` in `mm/page_alloc.c`). That is
/// enough to spoil every block that was held.
const LIMIT: &str = "/proc/sys/vm/percpu_pagelist_high_fraction";

/// Each read of the statistics takes some pages off lists that are too long (`decay_pcp_high`, 6.7
/// and later).
fn shorten_lists() {
    for _ in 0..200 {
        fs::read("/proc/sys/vm/stat_refresh").expect("the statistics can be read");
    }
}

/// Huge pages in the reserve. Free memory has far more blocks before it is fragmented.
const RESERVE: u32 = 64;
