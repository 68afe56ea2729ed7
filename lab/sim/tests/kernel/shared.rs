//! Files of shared memory that several address spaces map.

use crate::common::*;
use hawkeye_policy::{FileRegion, PageOrder, RegionAddr};
use hawkeye_sim::PageBits;
use hawkeye_sim::kernel::fault_policies::{FaultPolicy, FirstTouchPolicy, LINUX_BASE};
use hawkeye_sim::kernel::{
    FaultCounts, KernelCosts, KernelError, PageAccessKind, SharedFileId, SimulatedKernel, SpaceId,
    SwapSpec,
};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence::Direct;

const HUGE_FROM_THE_START: FaultPolicy =
    FaultPolicy { first_touch_of_files: FirstTouchPolicy::Huge { compact: false }, ..LINUX_BASE };
const MAPPERS: u64 = 3;
/// Each address space maps the file at an address of its own, this far from the one before.
const APART: u64 = 1 << 32;

struct Mapped {
    kernel: SimulatedKernel,
    file: SharedFileId,
    spaces: Vec<SpaceId>,
}

/// A machine of 64 MiB, and a file of 8 MiB that `mappers` address spaces map.
fn mapped(mappers: u64, faults: FaultPolicy) -> TestResult<Mapped> {
    let mut kernel = SimulatedKernel::new(64 * MIB, faults, KernelCosts::paper())?;
    let file = kernel.create_shared_file(4 * HUGE)?;
    let mut spaces = Vec::new();
    for number in 0..mappers {
        let space = kernel.create_space();
        kernel.map_shared_file(space, file, AT + number * APART)?;
        spaces.push(space);
    }
    Ok(Mapped { kernel, file, spaces })
}

impl Mapped {
    /// A region of the file as the mapper with this number has it.
    fn region(&self, mapper: u64, index: u64) -> RegionAddr {
        RegionAddr::containing(AT + mapper * APART + index * HUGE)
    }

    fn touch(
        &mut self,
        mapper: u64,
        index: u64,
        pages: PageBits,
        access: PageAccessKind,
    ) -> TestResult<FaultCounts> {
        let (space, region) = (self.spaces[mapper as usize], self.region(mapper, index));
        let touched = self.kernel.touch_pages_of_region(space, region, pages, access)?;
        Ok(touched.faults)
    }

    fn write_all(&mut self, mapper: u64, index: u64) -> TestResult<FaultCounts> {
        self.touch(mapper, index, PageBits::FULL, PageAccessKind::Write)
    }

    /// Resident bytes of each mapper.
    fn rss(&self) -> Vec<u64> {
        self.spaces.iter().map(|space| rss(&self.kernel, *space)).collect()
    }

    fn huge(&self) -> Vec<u64> {
        self.spaces.iter().map(|space| huge(&self.kernel, *space)).collect()
    }

    fn used(&self) -> u64 {
        let figures = self.kernel.figures();
        figures.total_bytes - figures.free_bytes
    }
}

#[test]
fn each_page_is_allocated_once_by_its_first_toucher() -> TestResult {
    let mut it = mapped(3, LINUX_BASE)?;
    let half = PageBits::range(0, 256);
    let first = it.touch(0, 1, half, PageAccessKind::Write)?;
    assert_eq!((first.base, first.shared), (256, 0));
    // The first half is there; reads of holes allocate, too: there is no zero page for files.
    let second = it.touch(1, 1, PageBits::FULL, PageAccessKind::Read)?;
    assert_eq!((second.base, second.shared, second.zero_page), (256, 256, 0));
    assert_eq!(it.rss(), [HUGE / 2, HUGE, 0]);
    assert_eq!((it.kernel.shared_file_bytes(), it.used()), (HUGE, HUGE));
    assert_eq!(it.touch(1, 1, PageBits::FULL, PageAccessKind::Write)?.total(), 0);
    // What the second one wrote is also in the pages of the first.
    assert_eq!(it.kernel.useful_bytes(it.spaces[0])?, HUGE / 2);
    it.kernel.check().expect("consistent");
    Ok(())
}

#[test]
fn a_promotion_serves_all_mappers_and_fills_holes() -> TestResult {
    let mut it = mapped(3, LINUX_BASE)?;
    let most = PageBits::range(0, 500);
    for mapper in 0..2 {
        it.touch(mapper, 2, most, PageAccessKind::Write)?;
    }
    let done = it.kernel.promote(it.spaces[0], it.region(0, 2), PageOrder::HUGE)?;
    assert_eq!((done.copied, done.added), (500, 12));
    assert_eq!((it.huge(), it.rss()), (vec![1, 0, 0], vec![HUGE, 0, 0]));
    assert_eq!((it.kernel.shared_file_bytes(), it.used()), (HUGE, HUGE));
    // One access, one fault, in the one that had pages and in the one that had none.
    for mapper in 1..3 {
        let page = PageBits::range(7, 1);
        let faults = it.touch(mapper, 2, page, PageAccessKind::Read)?;
        assert_eq!((faults.shared, faults.total()), (1, 1));
    }
    assert_eq!((it.huge(), it.rss()), (vec![1; 3], vec![HUGE; 3]));
    assert_eq!(it.used(), HUGE);
    let again = it.kernel.promote(it.spaces[1], it.region(1, 2), PageOrder::HUGE);
    assert_eq!(again, Err(KernelError::NotCandidate(it.spaces[1], it.region(1, 2))));
    it.kernel.check().expect("consistent");
    Ok(())
}

#[test]
fn a_call_in_another_mapper_maps_what_is_huge_without_a_copy() -> TestResult {
    let mut it = mapped(2, LINUX_BASE)?;
    for mapper in 0..2 {
        it.write_all(mapper, 0)?;
    }
    it.kernel.promote(it.spaces[0], it.region(0, 0), PageOrder::HUGE)?;
    let second = it.kernel.promote(it.spaces[1], it.region(1, 0), PageOrder::HUGE)?;
    assert_eq!((second.copied, second.added), (0, 0));
    assert_eq!((it.huge(), it.used()), (vec![1, 1], HUGE));
    Ok(())
}

#[test]
fn files_can_be_huge_from_the_first_touch() -> TestResult {
    let mut it = mapped(2, HUGE_FROM_THE_START)?;
    let one = PageBits::range(3, 1);
    assert_eq!(it.touch(0, 0, one, PageAccessKind::Write)?.huge, 1);
    let second = it.touch(1, 0, one, PageAccessKind::Read)?;
    assert_eq!((second.huge, second.shared), (0, 1));
    assert_eq!((it.huge(), it.used()), (vec![1, 1], HUGE));
    // Private memory beside it follows its own setting.
    it.kernel.map(it.spaces[0], 0..HUGE)?;
    assert_eq!(it.kernel.touch(it.spaces[0], 0..HUGE, PageAccessKind::Write)?.faults.base, 512);
    Ok(())
}

#[test]
fn a_huge_page_is_split_only_with_one_mapper() -> TestResult {
    let mut it = mapped(2, HUGE_FROM_THE_START)?;
    for mapper in 0..2 {
        it.touch(mapper, 0, PageBits::range(0, 1), PageAccessKind::Write)?;
    }
    let (first, region) = (it.spaces[0], it.region(0, 0));
    let refused = it.kernel.recover_bloat(first, region);
    assert_eq!(refused, Err(KernelError::SeveralMappers(first, region)));
    assert_eq!(it.huge(), [1, 1]);
    it.kernel.exit(it.spaces[1])?;
    let zeros = it.kernel.scan_zeros(first, region, 512)?;
    let split = it.kernel.recover_bloat(first, region)?;
    // Its zeros stay in the file.
    assert_eq!((zeros.zero_pages, split.bytes, split.left_present), (511, 0, 512));
    assert_eq!((it.huge()[0], it.rss()[0], it.used()), (0, HUGE, HUGE));
    it.kernel.check().expect("consistent");
    Ok(())
}

#[test]
fn a_file_is_freed_with_its_last_mapping() -> TestResult {
    let mut it = mapped(2, LINUX_BASE)?;
    it.write_all(0, 0)?;
    it.touch(1, 0, PageBits::range(0, 10), PageAccessKind::Read)?;
    it.write_all(0, 3)?;
    it.kernel.promote(it.spaces[0], it.region(0, 3), PageOrder::HUGE)?;
    // Giving memory back in one mapper takes nothing from the file.
    it.kernel.free_pages_of_region(it.spaces[0], it.region(0, 0), PageBits::FULL)?;
    assert_eq!((it.rss(), it.used()), (vec![HUGE, 10 * PAGE], 2 * HUGE));
    it.kernel.exit(it.spaces[0])?;
    assert_eq!(it.kernel.shared_file_bytes(), 2 * HUGE, "the second one still maps it");
    assert_eq!(it.touch(1, 3, PageBits::range(0, 1), PageAccessKind::Read)?.shared, 1);
    assert_eq!(it.huge(), [0, 1]);
    it.kernel.exit(it.spaces[1])?;
    assert_eq!((it.kernel.shared_file_bytes(), it.used()), (0, 0));
    let gone = it.kernel.map_shared_file(it.spaces[0], it.file, AT);
    assert_eq!(gone, Err(KernelError::File(it.file)));
    Ok(())
}

#[test]
fn a_mapping_is_of_the_whole_file_at_whole_regions() -> TestResult {
    let mut it = mapped(1, LINUX_BASE)?;
    let (space, other) = (it.spaces[0], it.kernel.create_space());
    assert!(it.kernel.create_shared_file(HUGE + PAGE).is_err());
    assert!(it.kernel.map_shared_file(other, it.file, AT + PAGE).is_err());
    let twice = it.kernel.map_shared_file(space, it.file, AT + APART);
    assert!(matches!(twice, Err(KernelError::Occupied(..))), "{twice:?}");
    it.write_all(0, 1)?;
    let part = it.kernel.unmap(space, AT..AT + 2 * HUGE);
    assert_eq!(part, Err(KernelError::PartOfFile(space)));
    assert_eq!(it.rss(), [HUGE]);
    it.kernel.unmap(space, AT..AT + 4 * HUGE)?;
    assert_eq!((it.rss(), it.used()), (vec![0], 0));
    Ok(())
}

#[test]
fn samples_name_the_file_region_in_every_mapper() -> TestResult {
    let mut it = mapped(2, LINUX_BASE)?;
    it.kernel.map(it.spaces[1], 0..HUGE)?;
    it.kernel.touch(it.spaces[1], 0..HUGE, PageAccessKind::Write)?;
    it.write_all(0, 2)?;
    it.write_all(1, 2)?;
    let file_of = |mapper: usize| {
        let samples = it.kernel.list_region_samples(it.spaces[mapper]).expect("it exists");
        samples.into_iter().map(|sample| (sample.region, sample.file)).collect::<Vec<_>>()
    };
    let file = FileRegion::at_offset(1, 1, 2 * HUGE);
    assert_eq!(file_of(0), [(it.region(0, 2), file)]);
    assert_eq!(file_of(1), [(RegionAddr::containing(0), None), (it.region(1, 2), file)]);
    Ok(())
}

#[test]
fn compaction_moves_pages_of_files_in_all_mappers() -> TestResult {
    let mut it = mapped(2, LINUX_BASE)?;
    it.kernel.fragment_free_memory(1.0, 1);
    for index in 0..4 {
        it.touch(0, index, PageBits::evenly_spread(300), PageAccessKind::Write)?;
        it.touch(1, index, PageBits::range(0, 200), PageAccessKind::Read)?;
    }
    let before = it.kernel.shared_file_bytes();
    // Needs huge frames, of which none is free. A debug build checks everything after each call.
    for index in 0..4 {
        it.kernel.promote(it.spaces[1], it.region(1, index), PageOrder::HUGE)?;
    }
    assert!(before < it.kernel.shared_file_bytes());
    assert_eq!((it.huge(), it.kernel.shared_file_bytes()), (vec![0, 4], 4 * HUGE));
    it.kernel.check().expect("consistent");
    Ok(())
}

#[test]
fn short_memory_swaps_private_pages_and_no_file() -> TestResult {
    let mut it = mapped(2, LINUX_BASE)?;
    it.kernel.set_swap(Some(SwapSpec::ssd(1 << 30)));
    it.write_all(0, 0)?;
    let private = it.kernel.create_space();
    it.kernel.map(private, bytes_at(0, 128 * MIB))?;
    it.kernel.touch(private, bytes_at(0, 128 * MIB), PageAccessKind::Write)?;
    assert!(it.kernel.figures().swapped_bytes > 64 * MIB);
    assert_eq!((it.rss()[0], it.kernel.shared_file_bytes()), (HUGE, HUGE));
    Ok(())
}

#[derive(Clone, Debug)]
enum SharedStep {
    Touch(u16, u16, u8),
    Free(u16, u16),
    Promote,
    Recover,
    End,
}

fn step() -> impl Strategy<Value = SharedStep> {
    let run = || (0u16..512, 1u16..512);
    prop_oneof![
        6 => (run(), 0u8..3).prop_map(|((first, count), access)| SharedStep::Touch(first, count, access)),
        2 => run().prop_map(|(first, count)| SharedStep::Free(first, count)),
        3 => Just(SharedStep::Promote),
        2 => Just(SharedStep::Recover),
        1 => Just(SharedStep::End),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        ..ProptestConfig::with_failure_persistence(Direct("proptest-regressions/tests/shared.txt"))
    })]

    /// Whatever the mappers do: memory is that of the file, and what they wrote stays in it.
    #[test]
    fn a_file_keeps_its_contents_and_counts_once(steps in prop::collection::vec((0..MAPPERS, 0u64..4, step()), 1..60), fmfi in prop::sample::select(&[0.0, 1.0][..]), policy in prop::sample::select(&[LINUX_BASE, HUGE_FROM_THE_START][..])) {
        let mut it = mapped(MAPPERS, policy).expect("a machine");
        it.kernel.fragment_free_memory(fmfi, 1);
        let mut nonzero = [PageBits::EMPTY; 4];
        let mut ended = [false; MAPPERS as usize];
        for (mapper, index, step) in steps {
            let (space, region) = (it.spaces[mapper as usize], it.region(mapper, index));
            if ended[mapper as usize] {
                continue;
            }
            match step {
                SharedStep::Touch(first, count, kind) => {
                    use PageAccessKind::{Read, Write, WriteZeros};
                    let pages = PageBits::range(first, count.min(512 - first));
                    it.touch(mapper, index, pages, [Read, Write, WriteZeros][usize::from(kind)]).expect("there is memory");
                    let held = &mut nonzero[index as usize];
                    match kind {
                        0 => {}
                        1 => *held = held.or(pages),
                        _ => *held = held.minus(pages),
                    }
                }
                SharedStep::Free(first, count) => {
                    let pages = PageBits::range(first, count.min(512 - first));
                    it.kernel.free_pages_of_region(space, region, pages).expect("it exists");
                }
                SharedStep::Promote => drop(it.kernel.promote(space, region, PageOrder::HUGE)),
                SharedStep::Recover => drop(it.kernel.recover_bloat(space, region)),
                SharedStep::End => {
                    it.kernel.exit(space).expect("it exists");
                    ended[mapper as usize] = true;
                }
            }
            prop_assert_eq!(it.kernel.check(), Ok(()));
            let figures = it.kernel.figures();
            prop_assert_eq!(it.used() - figures.cached_bytes, figures.shared_file_bytes);
            for (number, space) in it.spaces.iter().enumerate().filter(|(n, _)| !ended[*n]) {
                for index in 0..4 {
                    let region = it.region(number as u64, index);
                    let present = it.kernel.present_pages(*space, region);
                    let found = it.kernel.nonzero_page_bits(*space, region);
                    prop_assert_eq!(found, nonzero[index as usize].and(present));
                }
            }
        }
        let all_ended = ended.iter().all(|ended| *ended);
        prop_assert!(!all_ended || it.kernel.shared_file_bytes() == 0);
    }
}
