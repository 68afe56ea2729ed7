//! Pages of other sizes than base and huge ones.

use crate::common::*;
use hawkeye_policy::{PageOrder, PageOrderSet, RegionAddr};
use hawkeye_sim::PageBits;
use hawkeye_sim::kernel::fault_policies::{
    FaultPolicy, HAWKEYE_SIZES, LINUX_BASE, LINUX_THP, MTHP_SIZES,
};
use hawkeye_sim::kernel::{KernelCosts, KernelError, PageAccessKind, SimulatedKernel, SpaceId};
use std::time::Duration;

const K64: PageOrder = PageOrder::CONTIGUOUS;
const KIB: u64 = 1 << 10;
const MIB_32: PageOrder = PageOrder::HUGE_CONTIGUOUS;

fn order(number: u8) -> PageOrder {
    PageOrder::new(number).unwrap_or_default()
}

fn with_sizes(sizes: PageOrderSet) -> FaultPolicy {
    FaultPolicy { sizes, ..LINUX_BASE }
}

fn kib(kernel: &SimulatedKernel, space: SpaceId, order: PageOrder) -> u64 {
    let mapped = kernel.mapped_bytes_by_size(space);
    let found = mapped.ok().and_then(|mapped| mapped.iter().find(|(of, _)| *of == order));
    found.map_or(0, |(_, bytes)| bytes / KIB)
}

#[test]
fn the_largest_page_that_fits_is_given() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 0x0f_f000, with_sizes(MTHP_SIZES))?;
    // 1,020 KiB from an address that is aligned for any size: 512 KiB, 256, ... 16 KiB, and a rest
    // of three pages.
    let all = kernel.touch(space, bytes_at(0, 1020 * KIB), PageAccessKind::Write)?;
    let by_order: Vec<u64> =
        (0..9).map(|number| all.faults.count_first_touches_of_order(order(number))).collect();
    assert_eq!(by_order, [3, 0, 1, 1, 1, 1, 1, 1, 0]);
    assert_eq!((all.faults.total(), all.zeroed), (9, 255));
    assert_eq!(kib(&kernel, space, order(7)), 512);
    assert_eq!(rss(&kernel, space), 1020 * KIB);
    Ok(())
}

#[test]
fn nothing_may_be_in_the_block_of_a_page() -> TestResult {
    let sizes = with_sizes(PageOrderSet::NONE.with(K64).with(order(2)));
    let (mut kernel, space) = machine(64 * MIB, 4 * MIB, sizes)?;
    kernel.touch(space, bytes_at(0, 4 * KIB), PageAccessKind::Read)?;
    // The zero page is mapped: 64 KiB don't fit, nor do the first 16.
    let first = kernel.touch(space, bytes_at(4 * KIB, 4 * KIB), PageAccessKind::Write)?;
    assert_eq!((first.faults.base, rss(&kernel, space)), (1, 4 * KIB));
    let next = kernel.touch(space, bytes_at(16 * KIB, 4 * KIB), PageAccessKind::Write)?;
    assert_eq!(next.faults.count_first_touches_of_order(order(2)), 1);
    let far = kernel.touch(space, bytes_at(100 * KIB, 4 * KIB), PageAccessKind::Write)?;
    assert_eq!((far.faults.count_first_touches_of_order(K64), far.zeroed), (1, 16));
    assert_eq!(rss(&kernel, space), (4 + 16 + 64) * KIB);
    let rest = kernel.touch(space, bytes_at(64 * KIB, 64 * KIB), PageAccessKind::Write)?;
    assert_eq!(rest.faults.total(), 0);
    Ok(())
}

#[test]
fn one_sized_fault_costs_less_than_its_base_faults() -> TestResult {
    let costs = KernelCosts::paper();
    let (mut kernel, space) = machine(64 * MIB, 4 * MIB, with_sizes(PageOrderSet::NONE.with(K64)))?;
    let touched = kernel.touch(space, bytes_at(0, 64 * KIB), PageAccessKind::Write)?;
    let zeroing = Duration::from_nanos(16 * costs.zero_base_ns);
    let fault = touched.time.saturating_sub(zeroing);
    let of = Duration::from_nanos;
    assert!(fault > of(costs.base_fault_ns) && fault < of(costs.huge_fault_ns));
    assert!(fault < of(2 * costs.base_fault_ns), "{fault:?}");
    Ok(())
}

#[test]
fn fragmented_memory_gives_smaller_folios() -> TestResult {
    let sizes = with_sizes(PageOrderSet::NONE.with(K64).with(order(8)));
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, sizes)?;
    // One frame of each pageblock is taken, so its half has no free 1 MiB. Such halves are used
    // only after all others.
    kernel.fragment_free_memory(1.0, 1);
    let mut faults = 0;
    let mut fallbacks = 0;
    for number in 0..16 {
        let touched = kernel.touch(space, bytes_at(number * MIB, MIB), PageAccessKind::Write)?;
        faults += touched.faults.count_first_touches_of_order(order(8));
        fallbacks += touched.faults.fallbacks_of_order(order(8));
    }
    assert_eq!((faults, fallbacks), (16, 0));
    let (mut kernel, space) = machine(16 * MIB, 16 * MIB, sizes)?;
    kernel.fragment_free_memory(1.0, 1);
    let touched = kernel.touch(space, bytes_at(0, 12 * MIB), PageAccessKind::Write)?;
    let faults = touched.faults;
    assert!(
        faults.count_first_touches_of_order(order(8)) < 9
            && faults.fallbacks_of_order(order(8)) > 0,
        "{faults:?}"
    );
    assert!(
        faults.count_first_touches_of_order(K64) > 0
            && faults.count_first_touches_of_order(order(8)) + faults.fallbacks_of_order(order(8))
                >= 12
    );
    Ok(())
}

#[test]
fn processes_have_sizes_of_their_own_where_they_are_offered() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 16 * MIB, HAWKEYE_SIZES)?;
    kernel.touch(space, bytes_at(0, MIB), PageAccessKind::Write)?;
    assert_eq!(kib(&kernel, space, PageOrder::BASE), 1024);
    kernel.set_fault_sizes(space, PageOrderSet::NONE.with(K64))?;
    kernel.touch(space, bytes_at(MIB, MIB), PageAccessKind::Write)?;
    assert_eq!(kib(&kernel, space, K64), 1024);
    let refused = kernel.set_fault_sizes(space, PageOrderSet::HUGE);
    assert_eq!(refused, Err(KernelError::Sizes(PageOrderSet::HUGE)));
    let (mut other, space) = machine(64 * MIB, 16 * MIB, LINUX_BASE)?;
    assert!(other.set_fault_sizes(space, MTHP_SIZES).is_err());
    Ok(())
}

#[test]
fn partly_freed_folio_splits_into_largest_blocks() -> TestResult {
    let (mut kernel, space) =
        machine(64 * MIB, 4 * MIB, with_sizes(PageOrderSet::NONE.with(order(5))))?;
    kernel.touch(space, bytes_at(0, 128 * KIB), PageAccessKind::Write)?;
    let free = kernel.figures().free_bytes;
    kernel.free(space, bytes_at(4 * KIB, 4 * KIB))?;
    assert_eq!(kernel.figures().free_bytes, free + 4 * KIB);
    assert_eq!(kib(&kernel, space, order(5)), 0);
    let left: Vec<u64> = (2..5).map(|number| kib(&kernel, space, order(number))).collect();
    assert_eq!((left, kib(&kernel, space, PageOrder::BASE)), (vec![16, 32, 64], 12));
    kernel.exit(space)?;
    assert_eq!(kernel.figures().free_bytes, 64 * MIB);
    Ok(())
}

#[test]
fn swapped_folios_become_base_pages() -> TestResult {
    let (mut kernel, space) =
        swapping(16 * MIB, 32 * MIB, with_sizes(PageOrderSet::NONE.with(K64)))?;
    kernel.touch(space, bytes_at(0, 20 * MIB), PageAccessKind::Write)?;
    let figures = kernel.space_figures(space)?;
    assert!(figures.swapped_bytes > 0);
    let mapped = kernel.mapped_bytes_by_size(space)?;
    let sum: u64 = mapped.iter().map(|(_, bytes)| bytes).sum();
    assert_eq!(sum, figures.rss_bytes);
    assert!(kib(&kernel, space, K64) > 4 * KIB, "{mapped:?}");
    kernel.check().map_err(|error| panic!("{error}"))
}

#[test]
fn blocks_with_anything_in_them_are_promoted() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 4 * MIB, LINUX_BASE)?;
    let pages = PageBits::range(0, 17).or(PageBits::range(100, 1));
    kernel.touch_pages_of_region(space, region(0), pages, PageAccessKind::Write)?;
    let done = kernel.promote(space, region(0), K64)?;
    // Three blocks: one is full, two have one page each.
    assert_eq!((done.copied, done.added), (18, 30));
    assert_eq!(kib(&kernel, space, K64), 3 * 64);
    assert_eq!(kernel.useful_bytes(space)?, 18 * PAGE);
    let costs = KernelCosts::paper();
    let copied = 18 * costs.copy_base_ns + 30 * costs.zero_base_ns + 3 * costs.shoot_down_ns;
    assert_eq!(done.locked, Duration::from_nanos(copied));
    let sample = kernel.region_sample(space, region(0));
    assert_eq!(sample.map(|s| (s.order, s.present)), Some((K64, 48)));
    let again = kernel.promote(space, region(0), K64);
    assert_eq!(again, Err(KernelError::NotCandidate(space, region(0))));
    // Larger pages include the memory that is present.
    kernel.promote(space, region(0), order(6))?;
    assert_eq!((kib(&kernel, space, order(6)), kib(&kernel, space, K64)), (512, 0));
    kernel.promote(space, region(0), PageOrder::HUGE)?;
    assert_eq!(huge(&kernel, space), 1);
    Ok(())
}

fn first_order(kernel: &SimulatedKernel, space: SpaceId) -> Option<PageOrder> {
    kernel.region_sample(space, region(0)).map(|sample| sample.order)
}

#[test]
fn regions_become_one_page_and_huge_pages_again() -> TestResult {
    let (mut kernel, space) = machine(256 * MIB, 64 * MIB, LINUX_THP)?;
    kernel.touch(space, bytes_at(0, 30 * MIB), PageAccessKind::Write)?;
    let early = kernel.promote(space, region(0), MIB_32);
    assert_eq!(early, Err(KernelError::NotCandidate(space, region(0))));
    // The last one is mapped by base pages.
    kernel.touch(space, bytes_at(30 * MIB, HUGE), PageAccessKind::Write)?;
    kernel.free(space, bytes_at(30 * MIB + 100 * PAGE, 412 * PAGE))?;
    let done = kernel.promote(space, region(7), MIB_32)?;
    assert_eq!((done.copied, done.added), (15 * 512 + 100, 412));
    assert_eq!(first_order(&kernel, space), Some(MIB_32));
    assert_eq!(kib(&kernel, space, MIB_32), 32 << 10);
    assert_eq!((rss(&kernel, space), huge(&kernel, space)), (32 * MIB, 16));
    let again = kernel.promote(space, region(0), MIB_32);
    assert_eq!(again, Err(KernelError::NotCandidate(space, region(0))));
    // One of them is split; the others are huge pages.
    kernel.recover_bloat(space, region(3))?;
    assert_eq!((first_order(&kernel, space), huge(&kernel, space)), (Some(PageOrder::HUGE), 15));
    kernel.promote(space, region(3), PageOrder::HUGE)?;
    kernel.promote(space, region(0), MIB_32)?;
    kernel.free(space, bytes_at(2 * MIB, 2 * MIB))?;
    assert_eq!((first_order(&kernel, space), huge(&kernel, space)), (Some(PageOrder::HUGE), 15));
    kernel.exit(space)?;
    assert_eq!(kernel.figures().free_bytes, 256 * MIB);
    Ok(())
}

#[test]
fn huge_pages_that_lie_in_a_row_are_not_copied() -> TestResult {
    // Each is alone on its machine and gets the lowest free block.
    let (mut kernel, space) = machine(256 * MIB, 64 * MIB, LINUX_THP)?;
    kernel.touch(space, bytes_at(0, 32 * MIB), PageAccessKind::Write)?;
    let done = kernel.promote(space, region(0), MIB_32)?;
    assert_eq!((done.copied, done.added), (0, 0));
    assert_eq!(first_order(&kernel, space), Some(MIB_32));
    Ok(())
}

#[test]
fn movable_pages_are_moved_out_of_a_range() -> TestResult {
    for (memory, moves) in [(256 * MIB, true), (48 * MIB, false)] {
        let (mut kernel, space) = machine(memory, 64 * MIB, LINUX_BASE)?;
        kernel.fragment_free_memory(1.0, 7);
        kernel.touch(space, bytes_at(0, 32 * MIB), PageAccessKind::Write)?;
        let cached = kernel.figures().cached_bytes;
        let done = kernel.promote(space, region(0), MIB_32);
        if moves {
            assert_eq!(done.map(|done| done.copied), Ok(16 * 512));
            assert_eq!(first_order(&kernel, space), Some(MIB_32));
        } else {
            assert_eq!(done, Err(KernelError::NoFrames(space, region(0), MIB_32)));
            assert_eq!(first_order(&kernel, space), Some(PageOrder::BASE));
        }
        assert_eq!(kernel.figures().cached_bytes, cached);
        kernel.check().map_err(|error| panic!("{error}"))?;
    }
    Ok(())
}

#[test]
fn compaction_moves_large_pages_as_wholes() -> TestResult {
    let sizes = with_sizes(PageOrderSet::NONE.with(K64));
    let (mut kernel, space) = machine(64 * MIB, 64 * MIB, sizes)?;
    kernel.touch(space, bytes_at(0, 48 * MIB), PageAccessKind::Write)?;
    // Three of four pages of 64 KiB are freed, everywhere.
    for number in (0..48 * 16).filter(|number| number % 4 != 0) {
        kernel.free(space, bytes_at(number * 64 * KIB, 64 * KIB))?;
    }
    let before = kib(&kernel, space, K64);
    for number in 0..16 {
        // Each needs a huge frame, and there are eight.
        kernel.promote(space, region(number), PageOrder::HUGE).ok();
    }
    kernel.check().map_err(|error| panic!("{error}"))?;
    let promoted = huge(&kernel, space);
    let left = before - promoted * 8 * 64;
    assert!(promoted > 10, "{promoted}");
    assert_eq!(kib(&kernel, space, K64), left);
    Ok(())
}

#[test]
fn a_gibibyte_is_one_page() -> TestResult {
    let (mut kernel, space) = machine(4 << 30, 2 << 30, LINUX_THP)?;
    kernel.touch(space, bytes_at(0, 1 << 30), PageAccessKind::Write)?;
    // Another program's memory lies before it, so it has to be copied.
    let done = kernel.promote(space, region(5), PageOrder::GIANT)?;
    assert_eq!(done.copied % (512 * 512), 0);
    assert_eq!(first_order(&kernel, space), Some(PageOrder::GIANT));
    assert_eq!(rss(&kernel, space), 1 << 30);
    let freed = kernel.free_pages_of_region(space, region(100), PageBits::range(0, 1))?;
    assert!(freed > Duration::ZERO);
    assert_eq!(huge(&kernel, space), 511);
    kernel.check().map_err(|error| panic!("{error}"))
}

#[test]
fn memory_outside_regions_is_reported() -> TestResult {
    let (mut kernel, space) = machine(64 * MIB, 4 * MIB, LINUX_BASE)?;
    assert_eq!(kernel.memory_outside_regions(space)?, Default::default());
    kernel.map(space, bytes_at(8 * MIB, 128 * KIB))?;
    kernel.map(space, bytes_at(16 * MIB - 4 * KIB, 2 * MIB + 4 * KIB))?;
    kernel.touch(space, bytes_at(8 * MIB, 12 * KIB), PageAccessKind::Write)?;
    let outside = kernel.memory_outside_regions(space)?;
    let mut expected = [0; 9];
    (expected[0], expected[5]) = (4 * KIB, 128 * KIB);
    assert_eq!((outside.mapped_bytes, outside.resident_bytes), (expected, 12 * KIB));
    let of = |bytes| RegionAddr::containing(AT + bytes);
    assert!(
        kernel.is_region_in_one_mapping(space, of(16 * MIB))
            && !kernel.is_region_in_one_mapping(space, of(8 * MIB))
    );
    Ok(())
}
