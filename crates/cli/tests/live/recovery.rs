//! Recovery of bloat.

use crate::common::{
    DEADLINE, TestMachine, assert_unharmed, figure, is_emulated, machine, memory, or_skip, remaps,
    until, workload,
};
use hawkeye_linux::memory::system_memory;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION};
use hawkeye_test_support::this_test;
use serde_json::Value;

/// Options by which a policy recovers and promotes nothing: watermarks below the memory in use, as
/// if memory were short.
fn short_of_memory(policy: &str) -> String {
    let used =
        system_memory::machine_memory_use().expect("the memory use can be read").used_percent();
    let (high, low) = (used / 2.0, used / 4.0);
    format!("--policy {policy} --cpu 100 --watermarks {high:.3},{low:.3}")
}

/// Where zero pages are found by copying them, the time for that ends early on emulated machines.
fn may_miss_zero_pages() -> bool {
    !remaps() && is_emulated()
}

/// A policy that only recovers. With huge pages of more than 2 MiB there is `guard` alone.
const NO_PROMOTION: &str = if HUGE_PAGE_BYTES > 2 << 20 { "guard" } else { "none" };

/// Huge pages in this many MiB, and what is unused in them where each has 100 base pages in use.
fn huge_pages_and_unused_bytes(mib: u64) -> (u64, u64) {
    let huge_pages = (mib << 20) / HUGE_PAGE_BYTES;
    (huge_pages, huge_pages * u64::from(PAGES_PER_REGION - 100) * BASE_PAGE_BYTES)
}

/// A split that is not answered in time gives its memory back, and is not counted. On emulated
/// machines some are late.
fn assert_recovered(summary: &Value, unused_bytes: u64) {
    let recovered = figure(summary, "recovered_bytes");
    let least = match is_emulated() {
        true if may_miss_zero_pages() => 1,
        true => unused_bytes / 10 * 9,
        false => unused_bytes,
    };
    assert!((least..=unused_bytes).contains(&recovered), "{summary}");
}

/// Starts a program of 128 MiB with these options, in huge pages with 100 base pages in use each.
/// Recovers every unused page of it, and its contents stay.
fn assert_unused_pages_return(machine: &TestMachine, options: &str, policy: &str) {
    let (mut program, pid) =
        workload(&format!("bloat --mib 128 --used 100 --pages huge {options}"));
    let (before, huge) = memory(&mut program);
    assert_eq!(huge, 128 << 20);
    let attached = machine.attach(&short_of_memory(policy), pid);
    let (huge_pages, unused) = huge_pages_and_unused_bytes(128);
    let target = before - unused;
    let small = until(DEADLINE, || {
        let (resident, huge) = memory(&mut program);
        resident <= target + (1 << 20) || may_miss_zero_pages() && huge == 0
    });
    let (after, _) = memory(&mut program);
    let summary = attached.interrupt();
    assert!(small, "{after} of {target}: {summary}");
    assert!(summary["split"] == huge_pages || is_emulated(), "{summary}");
    assert_recovered(&summary, unused);
    assert_unharmed(&mut program);
}

#[test]
fn recovery_returns_every_unused_page_and_keeps_contents() {
    let machine = or_skip!(machine(this_test!()));
    assert_unused_pages_return(&machine, "", NO_PROMOTION);
}

/// MariaDB 10.11 of Debian sets the flag after it has its buffers.
#[test]
fn a_program_that_disables_huge_pages_when_it_has_some_gives_back_what_it_does_not_use() {
    let machine = or_skip!(machine(this_test!()));
    assert_unused_pages_return(&machine, "--disable-thp", "guard");
}

#[test]
fn pages_with_only_their_last_byte_in_use_are_kept() {
    let machine = or_skip!(machine(this_test!()));
    let (mut program, pid) = workload("bloat --mib 64 --used 100 --tail-byte --pages huge");
    let attached = machine.attach(&short_of_memory(NO_PROMOTION), pid);
    assert!(until(DEADLINE, || memory(&mut program).1 == 0));
    let summary = attached.interrupt();
    assert_recovered(&summary, huge_pages_and_unused_bytes(64).1);
    assert_unharmed(&mut program);
}

#[test]
fn emd_empties_the_sparse_huge_pages_of_one_program_and_leaves_the_full_ones_of_another() {
    let machine = or_skip!(machine(this_test!()));
    let (mut sparse, first) = workload("bloat --mib 64 --used 100 --pages huge");
    let (before, _) = memory(&mut sparse);
    let words = format!("bloat --mib 64 --used {PAGES_PER_REGION} --pages huge");
    let (mut full, second) = workload(&words);
    let attached = machine.attach_all(&short_of_memory("emd"), &[first, second]);
    let emptied = until(DEADLINE, || memory(&mut sparse).1 == 0);
    let (after, _) = memory(&mut sparse);
    let (_, full_huge) = memory(&mut full);
    let summary = attached.interrupt();
    assert!(emptied, "{summary}");
    let (_, unused_bytes) = huge_pages_and_unused_bytes(64);
    assert!(may_miss_zero_pages() || after <= before - unused_bytes + (1 << 20), "{summary}");
    assert_eq!(full_huge, 64 << 20, "{summary}");
    assert_eq!((&summary["policy"], &summary["promoted"]), (&"emd".into(), &0.into()), "{summary}");
    assert_recovered(&summary, unused_bytes);
    assert_unharmed(&mut sparse);
    assert_unharmed(&mut full);
}
