//! Recovery of bloat.

use crate::common::{DEADLINE, assert_unharmed, figure, machine, memory, or_skip, until, workload};
use hawkeye_linux::memory::system_memory;
use hawkeye_test_support::this_test;

/// Options for recovery only: watermarks below the memory in use, as if memory were short.
fn short_of_memory() -> String {
    let used =
        system_memory::machine_memory_use().expect("the memory use can be read").used_percent();
    let (high, low) = (used / 2.0, used / 4.0);
    format!("--policy none --cpu 100 --watermarks {high:.3},{low:.3}")
}

#[test]
fn recovery_returns_every_unused_page_and_keeps_contents() {
    let machine = or_skip!(machine(this_test!()));
    let (mut program, pid) = workload("bloat --mib 128 --used 100 --pages huge");
    let (before, huge) = memory(&mut program);
    assert_eq!(huge, 128 << 20);
    let attached = machine.attach(&short_of_memory(), pid);
    let used = 64 * 100 * 4096;
    let target = before - (128 << 20) + used;
    let small = until(DEADLINE, || memory(&mut program).0 <= target + (1 << 20));
    let (after, _) = memory(&mut program);
    let summary = attached.interrupt();
    assert!(small, "{after} of {target}: {summary}");
    assert_eq!(summary["split"], 64);
    assert_eq!(figure(&summary, "recovered_bytes"), (128 << 20) - used);
    assert_unharmed(&mut program);
}

#[test]
fn pages_with_only_their_last_byte_in_use_are_kept() {
    let machine = or_skip!(machine(this_test!()));
    let (mut program, pid) = workload("bloat --mib 32 --used 100 --tail-byte --pages huge");
    let attached = machine.attach(&short_of_memory(), pid);
    assert!(until(DEADLINE, || memory(&mut program).1 == 0));
    let summary = attached.interrupt();
    let recovered = figure(&summary, "recovered_bytes");
    assert_eq!(recovered, 16 * 412 * 4096, "{summary}");
    assert_unharmed(&mut program);
}
