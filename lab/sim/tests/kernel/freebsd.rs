//! FreeBSD's reservations.

use crate::common::*;
use hawkeye_sim::PageBits;
use hawkeye_sim::kernel::fault_policies::FREEBSD;
use hawkeye_sim::kernel::{PageAccessKind, SimulatedKernel};

#[test]
fn a_reservation_becomes_a_huge_page_when_all_of_it_is_populated() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, FREEBSD)?;
    kernel.touch(space, bytes_at(HUGE - PAGE, PAGE), PageAccessKind::Write)?;
    assert_eq!(rss(&kernel, space), PAGE);
    assert_eq!(kernel.figures().free_bytes, 62 * MIB);
    assert_eq!(kernel.figures().reservations, 1);
    let touched = kernel.touch(space, bytes_at(0, HUGE - 2 * PAGE), PageAccessKind::Write)?;
    assert_eq!((touched.faults.base, huge(&kernel, space)), (510, 0));
    kernel.touch(space, bytes_at(0, HUGE), PageAccessKind::Read)?;
    assert_eq!((huge(&kernel, space), rss(&kernel, space)), (1, HUGE));
    // In place: nothing else was allocated.
    assert_eq!(kernel.figures().free_bytes, 62 * MIB);
    assert_eq!(kernel.figures().reservations, 0);
    Ok(())
}

#[test]
fn pressure_breaks_the_reservation_that_was_used_least_recently() -> TestResult {
    let (mut kernel, space) = machine(32 * MIB, 64 * MIB, FREEBSD)?;
    for index in 0..12 {
        kernel.touch(space, bytes_at(index * HUGE, PAGE), PageAccessKind::Write)?;
    }
    assert_eq!(kernel.figures().reservations, 12);
    // The first is used again, so the second is evicted first.
    kernel.touch(space, bytes_at(PAGE, PAGE), PageAccessKind::Write)?;
    kernel.touch(space, bytes_at(32 * MIB, 10 * MIB), PageAccessKind::Write)?;
    let figures = kernel.figures();
    assert!(figures.broken_reservations > 0, "{figures:?}");
    assert_eq!(kernel.check(), Ok(()));
    kernel.touch_pages_of_region(space, region(0), PageBits::FULL, PageAccessKind::Write)?;
    let is_huge = |kernel: &SimulatedKernel, index| {
        let sample = kernel.region_sample(space, region(index));
        sample.is_some_and(|sample| sample.is_huge())
    };
    let first = is_huge(&kernel, 0);
    kernel.touch_pages_of_region(space, region(1), PageBits::FULL, PageAccessKind::Write)?;
    assert!(first && !is_huge(&kernel, 1));
    Ok(())
}

/// FreeBSD never holds more memory than was touched: no bloat.
#[test]
fn sparse_memory_stays_sparse() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, FREEBSD)?;
    for index in 0..8 {
        kernel.touch_pages_of_region(
            space,
            region(index),
            PageBits::evenly_spread(100),
            PageAccessKind::Write,
        )?;
    }
    assert_eq!((rss(&kernel, space), huge(&kernel, space)), (800 * PAGE, 0));
    kernel.exit(space)?;
    assert_eq!(kernel.figures().free_bytes, 64 * MIB);
    Ok(())
}
