//! Regions become huge, are split, and give their zero pages back; compaction makes room.

use super::common::*;
use hawkeye_policy::PageOrder;
use hawkeye_sim::PageBits;
use hawkeye_sim::kernel::fault_policies::{HAWKEYE_HUGE, LINUX_BASE, LINUX_THP};
use hawkeye_sim::kernel::{KernelError, PageAccess};
use hawkeye_sim::memory::FrameContent;

#[test]
fn promotion_copies_what_is_there_and_zeroes_the_rest() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, LINUX_BASE)?;
    kernel.touch_pages(
        space,
        region(1),
        PageBits::evenly_spread(100),
        PageAccess::Write,
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
    kernel.touch_pages(space, region(0), used, PageAccess::Write)?;
    kernel.touch_pages(
        space,
        region(0),
        PageBits::range(7, 1),
        PageAccess::WriteZeros,
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
    let read = kernel.touch_pages(space, region(0), PageBits::FULL, PageAccess::Read)?;
    assert_eq!(read.faults.total(), 0);
    let write = kernel.touch_pages(space, region(0), PageBits::FULL, PageAccess::Write)?;
    assert_eq!(write.faults.zero_page_writes, u64::from(512 - nonzero));
    assert_eq!(
        kernel.recover_bloat(space, region(0)),
        Err(KernelError::NotHuge(space, region(0)))
    );
    Ok(())
}

#[test]
fn what_is_filled_ahead_is_not_faulted_in() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 64 * MIB, LINUX_BASE)?;
    kernel.watch_first_touches(space);
    kernel.touch(space, bytes_at(0, 3 * HUGE), PageAccess::Write)?;
    let advances = kernel.take_stream_advances();
    let last = advances
        .last()
        .map(|(_, advance)| (advance.region, advance.step, advance.dense));
    assert_eq!(last, Some((region(2), 1, true)));
    kernel.prefault_region(space, region(3))?;
    let touched = kernel.touch(space, bytes_at(3 * HUGE, HUGE), PageAccess::Write)?;
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
    kernel.touch(space, bytes_at(0, HUGE), PageAccess::Write)?;
    let free = kernel.figures().free_bytes;
    kernel.recover_bloat(space, region(0))?;
    assert_eq!((huge(&kernel, space), rss(&kernel, space)), (0, HUGE));
    assert_eq!(kernel.figures().free_bytes, free);
    let touched = kernel.touch(space, bytes_at(0, HUGE), PageAccess::Write)?;
    assert_eq!(touched.faults.total(), 0);
    kernel.promote(space, region(0), PageOrder::HUGE)?;
    assert_eq!(huge(&kernel, space), 1);
    Ok(())
}

#[test]
fn fragmentation_reaches_its_target_and_repeats() -> TestResult {
    for target in [0.1, 0.5, 0.9, 1.0] {
        let fragmented = |seed| -> Result<_, hawkeye_sim::kernel::KernelError> {
            let (mut kernel, _) = machine(512 * MIB, HUGE, LINUX_THP)?;
            let taken = kernel.fragment_free_memory(target, seed);
            let parts = kernel.memory().free_blocks(FrameContent::Dirty, 3);
            Ok((kernel.figures().fmfi, taken, parts))
        };
        let (fmfi, taken, _) = fragmented(1)?;
        assert!(fmfi >= target && fmfi < target + 0.01, "{fmfi}");
        assert!(taken <= 256);
        assert_eq!(fragmented(1)?, fragmented(1)?);
    }
    Ok(())
}

#[test]
fn fragmented_memory_gives_base_pages_unless_it_is_compacted() -> TestResult {
    for (faults, huge_pages) in [(HAWKEYE_HUGE, 0), (LINUX_THP, 4)] {
        let (mut kernel, space) = machine(256 * MIB, 8 * MIB, faults)?;
        kernel.fragment_free_memory(1.0, 1);
        let touched = kernel.touch(space, bytes_at(0, 8 * MIB), PageAccess::Write)?;
        assert_eq!(huge(&kernel, space), huge_pages, "{faults:?}");
        assert_eq!(
            touched.faults.total(),
            if huge_pages > 0 { 4 } else { 2048 }
        );
        assert_eq!(kernel.figures().cached_bytes, 128 * PAGE);
    }
    Ok(())
}

#[test]
fn programs_keep_their_pages_when_these_move() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 64 * MIB, LINUX_THP)?;
    kernel.touch(space, bytes_at(0, 56 * MIB), PageAccess::Write)?;
    for index in 0..28 {
        kernel.free(space, bytes_at(index * HUGE, HUGE / 2))?;
    }
    kernel.touch(space, bytes_at(56 * MIB, 8 * MIB), PageAccess::Write)?;
    let fmfi = kernel.figures().fmfi;
    assert!(fmfi > 0.5, "{fmfi}");
    let promoted = (0..4).filter(|index| {
        kernel
            .promote(space, region(*index), PageOrder::HUGE)
            .is_ok()
    });
    assert!(promoted.count() > 0);
    assert_eq!(kernel.check(), Ok(()));
    kernel.exit(space)?;
    assert_eq!(kernel.figures().fmfi, 0.0);
    Ok(())
}
