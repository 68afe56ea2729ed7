//! Fragmented memory, and compaction, which makes huge pages of it.

use crate::common::*;
use hawkeye_policy::PageOrder;
use hawkeye_sim::kernel::PageAccessKind;
use hawkeye_sim::kernel::fault_policies::{HAWKEYE_HUGE, LINUX_THP};
use hawkeye_sim::memory::FrameContent;

#[test]
fn fragmentation_reaches_its_target_and_repeats() -> TestResult {
    for target in [0.1, 0.5, 0.9, 1.0] {
        let fragmented = |seed| -> Result<_, hawkeye_sim::kernel::KernelError> {
            let (mut kernel, _) = machine(512 * MIB, HUGE, LINUX_THP)?;
            let taken = kernel.fragment_free_memory(target, seed);
            let parts = kernel.memory().count_free_blocks(FrameContent::Dirty, 3);
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
        let touched = kernel.touch(space, bytes_at(0, 8 * MIB), PageAccessKind::Write)?;
        assert_eq!(huge(&kernel, space), huge_pages, "{faults:?}");
        assert_eq!(touched.faults.total(), if huge_pages > 0 { 4 } else { 2048 });
        assert_eq!(kernel.figures().cached_bytes, 128 * PAGE);
    }
    Ok(())
}

#[test]
fn programs_keep_their_pages_when_these_move() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 64 * MIB, LINUX_THP)?;
    kernel.touch(space, bytes_at(0, 56 * MIB), PageAccessKind::Write)?;
    for index in 0..28 {
        kernel.free(space, bytes_at(index * HUGE, HUGE / 2))?;
    }
    kernel.touch(space, bytes_at(56 * MIB, 8 * MIB), PageAccessKind::Write)?;
    let fmfi = kernel.figures().fmfi;
    assert!(fmfi > 0.5, "{fmfi}");
    let promoted =
        (0..4).filter(|index| kernel.promote(space, region(*index), PageOrder::HUGE).is_ok());
    assert!(promoted.count() > 0);
    assert_eq!(kernel.check(), Ok(()));
    kernel.exit(space)?;
    assert_eq!(kernel.figures().fmfi, 0.0);
    Ok(())
}
