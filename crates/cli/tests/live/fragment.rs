//! Fragments free memory on purpose.

use crate::common::{WORKLOADS, machine_at_speed, or_skip, until};
use crate::settings::Changed;
use hawkeye_linux::memory::fragmentation::fmfi;
use hawkeye_test_support::this_test;
use hawkeye_workload::{WorkloadEvent, WorkloadProcess};
use std::fs;
use std::time::Duration;

/// Deadline for filling all free memory, which comes first.
const FILLED: Duration = Duration::from_secs(180);
const WHOLE: Duration = Duration::from_secs(120);

#[test]
fn free_memory_has_the_requested_fragmentation_until_it_is_released() {
    let _machine = or_skip!(machine_at_speed(this_test!()));
    compact();
    let words = ["workload", "fragment", "--fmfi", "0.8", "--unmovable"];
    let mut workload = WorkloadProcess::spawn(WORKLOADS, words).expect("the workload starts");
    let (before, reached) = loop {
        match workload.next_event(FILLED).expect("the next event arrives") {
            WorkloadEvent::Fragmented {
                fmfi_before, fmfi, ..
            } => break (fmfi_before, fmfi),
            WorkloadEvent::Error { message } => panic!("{message}"),
            _ => {}
        }
    };
    assert!((reached - 0.8).abs() < 0.1, "{reached}");
    compact();
    let compacted = fmfi().expect("the fragmentation can be read");
    assert!(compacted > reached - 0.15, "{reached}, then {compacted}");
    workload.finish().expect("the workload ends on request");
    let _short = Changed::to([(LIMIT.into(), "1000000")]).expect("the limit can be set");
    let half_way = f64::midpoint(before, reached);
    let mut left = reached;
    let whole_again = until(WHOLE, || {
        shorten_lists();
        compact();
        left = fmfi().expect("the fragmentation can be read");
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
