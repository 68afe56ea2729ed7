//! Free memory that is fragmented on purpose.

use crate::common::{HAWKEYE, machine_at_speed, until};
use hawkeye_bench::workload::{Event, Workload};
use hawkeye_linux::fragmentation::fmfi;
use std::time::Duration;

/// Fills all free memory first: so long at the most.
const FILLED: Duration = Duration::from_secs(180);
/// The kernel's lists for each processor hand on what they keep.
const HANDED_ON: Duration = Duration::from_secs(120);

#[test]
fn free_memory_is_as_fragmented_as_asked_for_until_it_is_let_go() {
    let Some(_machine) = machine_at_speed("free_memory_is_as_fragmented_as_asked_for") else {
        return;
    };
    let vm = |name: &str| std::fs::write(format!("/proc/sys/vm/{name}"), "1").expect("is told");
    let compact = || vm("compact_memory");
    // What files have in memory would be moved into the holes, and leave whole blocks behind.
    vm("drop_caches");
    compact();
    let words = ["workload", "fragment", "--fmfi", "0.8", "--unmovable"];
    let mut workload = Workload::spawn(HAWKEYE, words).expect("starts");
    let reached = loop {
        match workload.next_event(FILLED).expect("goes on") {
            Event::Fragmented { fmfi, .. } => break fmfi,
            Event::Error { message } => panic!("{message}"),
            _ => {}
        }
    };
    assert!((reached - 0.8).abs() < 0.1, "{reached}");
    compact();
    let compacted = fmfi().expect("is told");
    assert!(compacted > reached - 0.15, "{reached}, then {compacted}");
    workload.finish().expect("ends when told to");
    let whole_again = || fmfi().expect("is told") < reached / 2.0;
    assert!(until(HANDED_ON, || {
        compact();
        whole_again()
    }));
}
