//! Free memory that is fragmented on purpose.

use crate::common::{HAWKEYE, machine};
use hawkeye_bench::workload::{Event, Workload};
use hawkeye_linux::fragmentation::fmfi;
use std::time::Duration;

/// Fills all free memory first: so long at the most.
const FILLED: Duration = Duration::from_secs(180);

fn fragmented(options: &[&str]) -> (Workload, f64) {
    let args = ["workload", "fragment"].iter().chain(options);
    let mut workload = Workload::spawn(HAWKEYE, args).expect("starts");
    loop {
        match workload.next_event(FILLED).expect("goes on") {
            Event::Fragmented { fmfi, .. } => return (workload, fmfi),
            Event::Error { message } => panic!("{message}"),
            _ => {}
        }
    }
}

fn compact() {
    std::fs::write("/proc/sys/vm/compact_memory", "1").expect("compacts");
}

#[test]
fn free_memory_is_as_fragmented_as_asked_for_until_it_is_let_go() {
    let Some(_machine) = machine("free_memory_is_as_fragmented_as_asked") else {
        return;
    };
    compact();
    let before = fmfi().expect("is told");
    for wanted in [0.9, 0.6] {
        let (workload, reached) = fragmented(&["--fmfi", &wanted.to_string()]);
        assert!((reached - wanted).abs() < 0.1, "{reached} for {wanted}");
        workload.finish().expect("ends when told to");
    }
    let after = fmfi().expect("is told");
    assert!(after < before + 0.2, "{before} before, {after} after");
}

#[test]
fn what_is_pinned_withstands_compaction() {
    let Some(_machine) = machine("what_is_pinned_withstands_compaction") else {
        return;
    };
    let (pinned, reached) = fragmented(&["--fmfi", "0.9", "--unmovable"]);
    compact();
    let compacted = fmfi().expect("is told");
    assert!(compacted > reached - 0.1, "{reached}, then {compacted}");
    pinned.finish().expect("ends when told to");
    let (movable, reached) = fragmented(&["--fmfi", "0.9"]);
    compact();
    let compacted = fmfi().expect("is told");
    assert!(compacted < reached - 0.2, "{reached}, then {compacted}");
    movable.finish().expect("ends when told to");
}
