//! What each system does at a page fault, and its cost.

use crate::common::*;
use hawkeye_sim::kernel::fault_policies::{
    FaultPolicy, HAWKEYE_BASE, HAWKEYE_HUGE, INGENS, LINUX_BASE, LINUX_THP, ZeroingPolicy,
};
use hawkeye_sim::kernel::{KernelError, PageAccessKind, TouchResult, ZeroingSpec};
use std::time::Duration;

fn first_region(faults: FaultPolicy) -> Result<TouchResult, KernelError> {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, faults)?;
    kernel.touch(space, bytes_at(0, HUGE), PageAccessKind::Write)
}

#[test]
fn base_pages_fault_one_by_one_and_a_huge_page_once() -> TestResult {
    let costs = hawkeye_sim::kernel::KernelCosts::paper();
    let base = first_region(LINUX_BASE)?;
    assert_eq!((base.faults.base, base.faults.total(), base.zeroed), (512, 512, 512));
    let each = costs.base_fault_ns + costs.zero_base_ns;
    assert_eq!(base.time, Duration::from_nanos(512 * each));
    assert_eq!(first_region(INGENS)?, base);

    let huge = first_region(LINUX_THP)?;
    assert_eq!((huge.faults.huge, huge.faults.total(), huge.zeroed), (1, 1, 512));
    let each = costs.huge_fault_ns + costs.zero_huge_ns;
    assert_eq!(huge.time, Duration::from_nanos(each));
    assert_eq!(huge.cold, 0);

    let unzeroed = |faults| first_region(FaultPolicy { zeroing: ZeroingPolicy::Never, ..faults });
    let huge = unzeroed(LINUX_THP)?;
    assert_eq!(huge.time, Duration::from_nanos(costs.huge_fault_ns));
    assert_eq!((huge.zeroed, huge.cold), (0, 512));
    let base = unzeroed(LINUX_BASE)?;
    let each = costs.base_fault_ns;
    assert_eq!(base.time, Duration::from_nanos(512 * each));
    Ok(())
}

#[test]
fn memory_zeroed_in_advance_is_not_zeroed_again() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, HAWKEYE_HUGE)?;
    let late = kernel.touch(space, bytes_at(0, HUGE), PageAccessKind::Write)?;
    assert_eq!(late.zeroed, 512);
    kernel.set_zeroing(Some(ZeroingSpec::default()));
    kernel.run_kernel_threads_for_step(Duration::from_secs(10));
    assert_eq!(kernel.figures().zeroed_huge_frames, 31);
    let early = kernel.touch(space, bytes_at(HUGE, HUGE), PageAccessKind::Write)?;
    assert_eq!((early.zeroed, early.faults.huge, early.cold), (0, 1, 512));

    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, HAWKEYE_BASE)?;
    kernel.set_zeroing(Some(ZeroingSpec::default()));
    kernel.run_kernel_threads_for_step(Duration::from_secs(10));
    let early = kernel.touch(space, bytes_at(0, HUGE), PageAccessKind::Write)?;
    assert_eq!((early.zeroed, early.faults.base), (0, 512));
    // Memory that a program frees is dirty.
    let zeroed = kernel.figures().zeroed_bytes;
    kernel.free(space, bytes_at(0, HUGE))?;
    assert_eq!(kernel.figures().zeroed_bytes, zeroed);
    Ok(())
}

#[test]
fn reads_map_the_zero_page_and_writes_replace_it() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, LINUX_BASE)?;
    let read = kernel.touch(space, bytes_at(0, HUGE), PageAccessKind::Read)?;
    assert_eq!((read.faults.zero_page, rss(&kernel, space)), (512, 0));
    let again = kernel.touch(space, bytes_at(0, HUGE), PageAccessKind::Read)?;
    assert_eq!(again.faults.total(), 0);
    let write = kernel.touch(space, bytes_at(0, 4 * PAGE), PageAccessKind::Write)?;
    assert_eq!((write.faults.zero_page_writes, rss(&kernel, space)), (4, 4 * PAGE));

    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, LINUX_THP)?;
    let read = kernel.touch(space, bytes_at(0, HUGE), PageAccessKind::Read)?;
    assert_eq!((read.faults.zero_page, rss(&kernel, space)), (1, 0));
    let write = kernel.touch(space, bytes_at(PAGE, PAGE), PageAccessKind::Write)?;
    assert_eq!((write.faults.huge, huge(&kernel, space)), (1, 1));
    Ok(())
}

#[test]
fn huge_pages_go_to_whole_regions() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 7 * MIB, LINUX_THP)?;
    let touched = kernel.touch(space, bytes_at(0, 7 * MIB), PageAccessKind::Write)?;
    // Only half of the fourth is mapped.
    assert_eq!((touched.faults.huge, touched.faults.base), (3, 256));
    Ok(())
}

#[test]
fn a_region_that_had_base_pages_gets_no_huge_page_at_a_fault() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, LINUX_THP)?;
    kernel.touch(space, bytes_at(0, HUGE), PageAccessKind::Write)?;
    kernel.free(space, bytes_at(0, PAGE))?;
    assert_eq!((huge(&kernel, space), rss(&kernel, space)), (0, HUGE - PAGE));
    kernel.free(space, bytes_at(0, HUGE))?;
    assert_eq!(rss(&kernel, space), 0);
    let touched = kernel.touch(space, bytes_at(0, HUGE), PageAccessKind::Write)?;
    assert_eq!(touched.faults.base, 512);
    // Unmapping frees the page table.
    kernel.unmap(space, bytes_at(0, HUGE))?;
    kernel.map(space, bytes_at(0, HUGE))?;
    let touched = kernel.touch(space, bytes_at(0, HUGE), PageAccessKind::Write)?;
    assert_eq!(touched.faults.huge, 1);
    Ok(())
}

#[test]
fn invalid_arguments_are_refused() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, LINUX_BASE)?;
    let touch = kernel.touch(space, bytes_at(0, 17 * MIB), PageAccessKind::Read);
    assert!(matches!(touch, Err(KernelError::NotMapped(..))));
    for range in [AT + 1..AT + PAGE, AT..AT] {
        let refused = Err(KernelError::Range(range.clone()));
        assert_eq!(kernel.free(space, range), refused);
    }
    let map = kernel.map(space, bytes_at(MIB, MIB));
    assert!(matches!(map, Err(KernelError::Occupied(..))));
    kernel.exit(space)?;
    assert_eq!(kernel.exit(space), Err(KernelError::Space(space)));
    assert_eq!(kernel.figures().free_bytes, 64 * MIB);
    assert!(machine(1, PAGE, LINUX_BASE).is_err());
    Ok(())
}
