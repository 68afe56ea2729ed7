//! Regions become huge, are split, and give their zero pages back.

use crate::common::*;
use hawkeye_policy::PageOrder;
use hawkeye_sim::PageBits;
use hawkeye_sim::kernel::fault_policies::{HAWKEYE_HUGE, LINUX_BASE};
use hawkeye_sim::kernel::{KernelError, PageAccessKind};

#[test]
fn promotion_copies_what_is_there_and_zeroes_the_rest() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, LINUX_BASE)?;
    kernel.touch_pages_of_region(
        space,
        region(1),
        PageBits::evenly_spread(100),
        PageAccessKind::Write,
    )?;
    let done = kernel.promote(space, region(1), PageOrder::HUGE)?;
    assert_eq!((done.copied, done.added), (100, 412));
    assert_eq!((huge(&kernel, space), rss(&kernel, space)), (1, HUGE));
    assert_eq!(kernel.useful_bytes(space)?, 100 * PAGE);
    assert!(done.locked < done.time);
    let again = kernel.promote(space, region(1), PageOrder::HUGE);
    assert_eq!(again, Err(KernelError::NotCandidate(space, region(1))));
    let empty = kernel.promote(space, region(2), PageOrder::HUGE);
    assert_eq!(empty, Err(KernelError::NotCandidate(space, region(2))));
    Ok(())
}

#[test]
fn recovery_gives_exactly_the_zeros_back() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, HAWKEYE_HUGE)?;
    let used = PageBits::evenly_spread(100);
    kernel.touch_pages_of_region(space, region(0), used, PageAccessKind::Write)?;
    kernel.touch_pages_of_region(
        space,
        region(0),
        PageBits::range(7, 1),
        PageAccessKind::WriteZeros,
    )?;
    assert_eq!(rss(&kernel, space), HUGE);
    let few = kernel.scan_zeros(space, region(0), 10)?;
    let all = kernel.scan_zeros(space, region(0), 512)?;
    let nonzero = if used.contains(7) { 99 } else { 100 };
    assert_eq!((few.zero_pages, all.zero_pages), (10, 512 - nonzero));
    assert!(few.took < all.took);
    let done = kernel.recover_bloat(space, region(0))?;
    assert_eq!(done.bytes, u64::from(512 - nonzero) * PAGE);
    assert_eq!(rss(&kernel, space), u64::from(nonzero) * PAGE);
    let read =
        kernel.touch_pages_of_region(space, region(0), PageBits::FULL, PageAccessKind::Read)?;
    assert_eq!(read.faults.total(), 0);
    let write =
        kernel.touch_pages_of_region(space, region(0), PageBits::FULL, PageAccessKind::Write)?;
    assert_eq!(write.faults.zero_page_writes, u64::from(512 - nonzero));
    assert_eq!(kernel.recover_bloat(space, region(0)), Err(KernelError::NotHuge(space, region(0))));
    Ok(())
}

#[test]
fn what_is_filled_ahead_is_not_faulted_in() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 64 * MIB, LINUX_BASE)?;
    kernel.watch_first_touches(space);
    kernel.touch(space, bytes_at(0, 3 * HUGE), PageAccessKind::Write)?;
    let advances = kernel.take_stream_advances();
    let last = advances.last().map(|(_, advance)| (advance.region, advance.step, advance.dense));
    assert_eq!(last, Some((region(2), 1, true)));
    kernel.prefault_region(space, region(3))?;
    let touched = kernel.touch(space, bytes_at(3 * HUGE, HUGE), PageAccessKind::Write)?;
    assert_eq!((touched.faults.total(), touched.cold), (0, 512));
    let occupied = kernel.prefault_region(space, region(3));
    assert_eq!(occupied, Err(KernelError::NotCandidate(space, region(3))));
    let refused = kernel.prefault_region(space, region(32));
    assert_eq!(refused, Err(KernelError::NotCandidate(space, region(32))));
    Ok(())
}

#[test]
fn a_split_without_zeros_moves_nothing() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, HAWKEYE_HUGE)?;
    kernel.touch(space, bytes_at(0, HUGE), PageAccessKind::Write)?;
    let free = kernel.figures().free_bytes;
    kernel.recover_bloat(space, region(0))?;
    assert_eq!((huge(&kernel, space), rss(&kernel, space)), (0, HUGE));
    assert_eq!(kernel.figures().free_bytes, free);
    let touched = kernel.touch(space, bytes_at(0, HUGE), PageAccessKind::Write)?;
    assert_eq!(touched.faults.total(), 0);
    kernel.promote(space, region(0), PageOrder::HUGE)?;
    assert_eq!(huge(&kernel, space), 1);
    Ok(())
}
