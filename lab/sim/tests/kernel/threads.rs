//! The kernel's threads.

use crate::common::*;
use hawkeye_sim::PageBits;
use hawkeye_sim::kernel::fault_policies::{HAWKEYE_HUGE, LINUX_BASE, LINUX_THP};
use hawkeye_sim::kernel::{PageAccessKind, SamePageMergingSpec, ZeroingSpec};
use std::time::Duration;

#[test]
fn zeroing_keeps_to_its_rate_and_says_what_it_costs_others() -> TestResult {
    let (mut kernel, _) = machine(256 * MIB, HUGE, HAWKEYE_HUGE)?;
    kernel.set_zeroing(Some(ZeroingSpec { pages_per_s: 1000, non_temporal: false }));
    let mut zeroed = 0;
    for _ in 0..700 {
        let done = kernel.run_kernel_threads_for_step(Duration::from_millis(3));
        assert_eq!(done.written_bytes, done.zeroed * PAGE);
        assert_eq!(done.cached_bytes, done.written_bytes);
        zeroed += done.zeroed;
    }
    assert_eq!(zeroed, 2100);
    assert_eq!(kernel.figures().zeroed_bytes, 2100 * PAGE);
    let each = kernel.costs().zero_base_ns;
    let zeroing = kernel.kernel_thread_times().zeroing;
    assert_eq!(zeroing, Duration::from_nanos(2100 * each));
    kernel.set_zeroing(Some(ZeroingSpec { pages_per_s: u64::MAX, non_temporal: true }));
    // A core's limit; after that the work is done.
    let done = kernel.run_kernel_threads_for_step(Duration::from_millis(10));
    assert!(done.zeroing <= Duration::from_millis(10) && done.cached_bytes == 0);
    kernel.run_kernel_threads_for_step(Duration::from_secs(1));
    assert_eq!(kernel.figures().zeroed_bytes, 256 * MIB);
    assert_eq!(kernel.figures().zeroed_huge_frames, 128);
    assert_eq!(kernel.run_kernel_threads_for_step(Duration::from_secs(1)).zeroed, 0);
    Ok(())
}

/// A guest that zeroes its free memory in advance gives it back to the host by that.
#[test]
fn zeros_of_a_virtual_machine_are_merged_at_the_host() -> TestResult {
    let (mut host, vm) = machine(256 * MIB, 64 * MIB, LINUX_THP)?;
    host.touch(vm, bytes_at(0, 64 * MIB), PageAccessKind::Write)?;
    host.touch(vm, bytes_at(16 * MIB, 32 * MIB), PageAccessKind::WriteZeros)?;
    host.set_merging(Some(SamePageMergingSpec { pages_per_s: 100_000 }));
    assert_eq!(host.run_kernel_threads_for_step(Duration::from_secs(1)).merged, 0);
    host.set_mergeable(vm, true)?;
    let done = host.run_kernel_threads_for_step(Duration::from_secs(1));
    assert_eq!(done.merged, 32 * MIB / PAGE);
    assert_eq!(rss(&host, vm), 32 * MIB);
    assert_eq!(host.figures().free_bytes, 224 * MIB);
    // When the guest needs it again, each page is a copy-on-write fault.
    let back = host.touch_pages_of_region(vm, region(8), PageBits::FULL, PageAccessKind::Write)?;
    assert_eq!(back.faults.zero_page_writes, 512);
    assert_eq!(host.run_kernel_threads_for_step(Duration::ZERO).merge_scanned, 0);
    Ok(())
}

#[test]
fn a_kernel_without_threads_does_nothing() -> TestResult {
    let (mut kernel, _) = machine(64 * MIB, HUGE, LINUX_BASE)?;
    assert_eq!(kernel.run_kernel_threads_for_step(Duration::from_secs(100)), Default::default());
    Ok(())
}
