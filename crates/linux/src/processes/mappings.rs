//! Decides which parts of an address space may become huge.

use hawkeye_policy::{
    BASE_PAGE_BYTES, FileRegion, HUGE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr, RegionSample,
};
use procfs::process::{MMPermissions, MMapPath, MemoryMap, VmFlags};
use std::ops::Range;
use thiserror::Error;

/// `VM_*` bits (include/linux/mm.h), the same on every kernel from 6.1 to 7.2.
pub(crate) mod vm {
    pub const WRITE: u64 = 0x2;
    pub const SHARED: u64 = 0x8;
    /// `MAP_SHARED`; of a file that was opened for reading, `SHARED` is not set.
    pub const MAYSHARE: u64 = 0x80;
    pub const GROWSDOWN: u64 = 0x100;
    pub const UFFD_MISSING: u64 = 0x200;
    pub const PFNMAP: u64 = 0x400;
    pub const UFFD_WP: u64 = 0x1000;
    pub const LOCKED: u64 = 0x2000;
    pub const IO: u64 = 0x4000;
    pub const HUGETLB: u64 = 0x0040_0000;
    pub const MIXEDMAP: u64 = 0x1000_0000;
    pub const HUGEPAGE: u64 = 0x2000_0000;
    pub const NOHUGEPAGE: u64 = 0x4000_0000;
    pub const MERGEABLE: u64 = 0x8000_0000;
}

/// One mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its addresses.
    pub range: Range<u64>,
    /// `VM_*` bits. `VM_MERGEABLE` is set only while KSM runs.
    pub flags: u64,
    /// Whether a file is behind it; shared memory counts as one.
    pub file_backed: bool,
    /// The file of shared memory; `None` for other memory, and where only `/proc` was read.
    pub shared_file: Option<SharedFile>,
}

/// A tmpfs file that is mapped shared, with or without a mount that users see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedFile {
    /// Its device, as the kernel encodes it.
    pub device: u32,
    /// Its inode.
    pub inode: u64,
    /// Offset in the file of the first byte, in bytes.
    pub offset: u64,
}

impl SharedFile {
    /// Whether a file region is part of this file.
    fn contains(self, region: FileRegion) -> bool {
        (self.device, self.inode) == (region.device, region.inode)
    }

    /// The file with the offset of a byte that is `bytes` further.
    fn advanced_by(self, bytes: u64) -> Self {
        Self { offset: self.offset + bytes, ..self }
    }
}

/// Which memory of a process is managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagedMemory {
    /// Private anonymous memory.
    Private,
    /// That, and shared memory.
    PrivateAndShared,
}

/// Reasons why a mapping cannot be managed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum IneligibleReason {
    /// A file, shared memory or a device.
    #[error("a file, shared memory or a device is mapped there")]
    NotAnonymous,
    /// A stack: it grows and is small.
    #[error("it belongs to a stack")]
    Stack,
    /// Registered with userfaultfd: its monitor sees and answers each fault.
    #[error("userfaultfd watches it")]
    Userfaultfd,
    /// Its owner called `madvise(MADV_NOHUGEPAGE)`.
    #[error("the program called madvise(MADV_NOHUGEPAGE) on it")]
    NoHugePage,
    /// Its owner called `madvise(MADV_MERGEABLE)`, and KSM runs. KSM would split what is promoted,
    /// and promotion would undo what KSM merges.
    #[error("KSM merges it: the program called madvise(MADV_MERGEABLE) on it")]
    Merging,
    /// Huge already, from the hugetlb pool.
    #[error("it consists of huge pages from the hugetlb pool")]
    HugeTlb,
    /// Never written: all of it is the zero page.
    #[error("its mapping is read-only")]
    ReadOnly,
    /// Shared memory that its owner locked. A promotion would unmap it until the next access.
    #[error("it is shared memory that the program locked (mlock)")]
    LockedShared,
    /// Shared memory with address and file offset that are not congruent modulo 2 MiB.
    #[error("its address and its offset in the file are not congruent modulo 2 MiB")]
    Misaligned,
    /// It contains no whole region.
    #[error("no mapping covers all 2 MiB of it")]
    TooSmall,
    /// There is no mapping.
    #[error("nothing is mapped there")]
    Unmapped,
}

impl Mapping {
    /// A mapping as `smaps` shows it.
    pub(crate) fn from_smaps(map: &MemoryMap) -> Self {
        let has = |flag: VmFlags| map.extension.vm_flags.contains(flag);
        let flags = [
            (map.perms.contains(MMPermissions::WRITE), vm::WRITE),
            (map.perms.contains(MMPermissions::SHARED), vm::SHARED),
            (has(VmFlags::GD), vm::GROWSDOWN),
            (has(VmFlags::UM), vm::UFFD_MISSING),
            (has(VmFlags::UW), vm::UFFD_WP),
            (has(VmFlags::LO), vm::LOCKED),
            (has(VmFlags::PF), vm::PFNMAP),
            (has(VmFlags::IO), vm::IO),
            (has(VmFlags::HT), vm::HUGETLB),
            (has(VmFlags::MM), vm::MIXEDMAP),
            (has(VmFlags::HG), vm::HUGEPAGE),
            (has(VmFlags::NH), vm::NOHUGEPAGE),
            (has(VmFlags::MG), vm::MERGEABLE),
        ];
        let flags = flags.iter().filter(|(set, _)| *set);
        Self {
            range: map.address.0..map.address.1,
            flags: flags.map(|(_, bit)| bit).sum(),
            file_backed: map.inode != 0 || matches!(map.pathname, MMapPath::Path(_)),
            shared_file: None,
        }
    }

    /// The part of it that consists of whole regions.
    pub fn range_of_whole_regions(&self) -> Range<u64> {
        let start = self.range.start.next_multiple_of(HUGE_PAGE_BYTES);
        let end = self.range.end & !(HUGE_PAGE_BYTES - 1);
        start..end.max(start)
    }

    /// The part that may be managed, or why no part may be.
    pub fn eligible_range_of(
        &self,
        managed: ManagedMemory,
    ) -> Result<Range<u64>, IneligibleReason> {
        match (managed, self.shared_file) {
            (ManagedMemory::PrivateAndShared, Some(file)) => self.eligible_shared_range(file),
            _ => self.eligible_range(),
        }
    }

    /// The part of shared memory that may be managed, or why no part may be.
    fn eligible_shared_range(&self, file: SharedFile) -> Result<Range<u64>, IneligibleReason> {
        let has = |flags| self.flags & flags != 0;
        let regions = self.range_of_whole_regions();
        let misaligned = self.range.start.wrapping_sub(file.offset) % HUGE_PAGE_BYTES != 0;
        // The first reason that applies is returned.
        let reasons = [
            (has(vm::HUGETLB), IneligibleReason::HugeTlb),
            (has(vm::PFNMAP | vm::IO | vm::MIXEDMAP), IneligibleReason::NotAnonymous),
            (has(vm::UFFD_MISSING | vm::UFFD_WP), IneligibleReason::Userfaultfd),
            (has(vm::NOHUGEPAGE), IneligibleReason::NoHugePage),
            (has(vm::LOCKED), IneligibleReason::LockedShared),
            (misaligned, IneligibleReason::Misaligned),
            (regions.is_empty(), IneligibleReason::TooSmall),
        ];
        match reasons.into_iter().find(|(holds, _)| *holds) {
            Some((_, why)) => Err(why),
            None => Ok(regions),
        }
    }

    /// The part of private memory that may be managed, or why no part may be.
    pub fn eligible_range(&self) -> Result<Range<u64>, IneligibleReason> {
        let has = |flags| self.flags & flags != 0;
        let regions = self.range_of_whole_regions();
        let no_memory = self.file_backed || has(vm::SHARED | vm::PFNMAP | vm::IO | vm::MIXEDMAP);
        // The first reason that applies is returned.
        let reasons = [
            (has(vm::HUGETLB), IneligibleReason::HugeTlb),
            (no_memory, IneligibleReason::NotAnonymous),
            (has(vm::GROWSDOWN), IneligibleReason::Stack),
            (has(vm::UFFD_MISSING | vm::UFFD_WP), IneligibleReason::Userfaultfd),
            (has(vm::NOHUGEPAGE), IneligibleReason::NoHugePage),
            (has(vm::MERGEABLE), IneligibleReason::Merging),
            (!has(vm::WRITE), IneligibleReason::ReadOnly),
            (regions.is_empty(), IneligibleReason::TooSmall),
        ];
        match reasons.into_iter().find(|(holds, _)| *holds) {
            Some((_, why)) => Err(why),
            None => Ok(regions),
        }
    }
}

/// The eligible ranges of an address space, and how much memory its owner has excluded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EligibleRanges {
    /// 2 MiB-aligned ranges, ascending.
    pub ranges: Vec<Range<u64>>,
    /// Ranges of them that are locked in memory, ascending.
    pub locked: Vec<Range<u64>>,
    /// Ranges of them that are shared memory, ascending, each with its file at its start.
    pub shared: Vec<(Range<u64>, SharedFile)>,
    /// Mappings of shared memory that keep it from being promoted in any process.
    pub protected: Vec<(Range<u64>, SharedFile)>,
    /// Bytes excluded by `MADV_NOHUGEPAGE`.
    pub refused_bytes: u64,
    /// Memory in which no whole region fits.
    pub outside: BlockBytesOutsideRegions,
}

impl EligibleRanges {
    /// Whether a region is locked in memory (`mlock`). `MADV_COLD` refuses such memory. So its
    /// access bits are not cleared, and its huge pages are not split.
    pub fn is_region_locked(&self, region: RegionAddr) -> bool {
        let after = self.locked.partition_point(|range| range.start <= region.start());
        after.checked_sub(1).is_some_and(|at| self.locked[at].contains(&region.start()))
    }

    /// The ranges of private memory.
    pub fn private_ranges(&self) -> Vec<Range<u64>> {
        let private = |range: &&Range<u64>| {
            self.shared.binary_search_by_key(&range.start, |(other, _)| other.start).is_err()
        };
        self.ranges.iter().filter(private).cloned().collect()
    }

    /// Which part of which file a region is; `None` for private memory.
    pub fn file_region(&self, region: RegionAddr) -> Option<FileRegion> {
        let after = self.shared.partition_point(|(range, _)| range.start <= region.start());
        let (range, file) = &self.shared[after.checked_sub(1)?];
        let file = file.advanced_by(region.start() - range.start);
        let inside = range.contains(&region.start());
        inside.then(|| FileRegion::at_offset(file.device, file.inode, file.offset))?
    }

    /// The first region that maps this part of a file.
    pub fn region_of_file(&self, file: FileRegion) -> Option<RegionAddr> {
        self.shared.iter().find_map(|(range, first)| {
            let bytes = file.offset().checked_sub(first.offset)?;
            let start = range.start.checked_add(bytes)?;
            (first.contains(file) && start < range.end).then(|| RegionAddr::containing(start))
        })
    }

    /// Whether a promotion of this part of a file would change what its owner asked for: it is
    /// locked here, watched by userfaultfd, or excluded by `MADV_NOHUGEPAGE`.
    pub fn protects_file_region(&self, file: FileRegion) -> bool {
        self.protected.iter().any(|(range, first)| {
            let last = first.offset.saturating_add(range.end - range.start);
            first.contains(file)
                && first.offset < file.offset() + HUGE_PAGE_BYTES
                && file.offset() < last
        })
    }

    /// Names the file of each region of shared memory. Page tables do not show which memory that
    /// is: its pages are present in the file, whether they may be written or not.
    pub fn name_file_regions(&self, regions: &mut [RegionSample]) {
        if self.shared.is_empty() {
            return;
        }
        for sample in regions {
            let Some(file) = self.file_region(sample.region) else { continue };
            sample.file = Some(file);
            // Read-only pages are shared through the file. A promotion copies none of them.
            sample.maybe_shared = 0;
            // A clean, read-only huge page of private memory is the huge zero page.
            if sample.is_huge() {
                sample.present = PAGES_PER_REGION;
                sample.zero_mapped = 0;
            }
        }
    }

    /// Removes the access counts of locked memory. Its access bits are never cleared, so all of it
    /// would look hot.
    pub fn clear_accesses_of_locked_regions(&self, regions: &mut [RegionSample]) {
        if self.locked.is_empty() {
            return;
        }
        for sample in regions {
            if self.is_region_locked(sample.region) {
                (sample.accessed, sample.runs) = (0, 0);
            }
        }
    }
}

/// Memory in which no whole region fits. Index N counts bytes in blocks of 2^N base pages, the
/// largest that fit there, up to 1 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockBytesOutsideRegions {
    /// All such memory.
    pub mapped_bytes: [u64; 9],
    /// The part with `MADV_HUGEPAGE`.
    pub advised_bytes: [u64; 9],
}

impl BlockBytesOutsideRegions {
    /// Adds the largest naturally aligned blocks that make up a range. At a first touch, the kernel
    /// gives a large page only where it fits as a whole.
    fn add_blocks_of_range(&mut self, mut range: Range<u64>, advised: bool) {
        while range.start < range.end {
            let aligned = (range.start / BASE_PAGE_BYTES).trailing_zeros();
            let fits = ((range.end - range.start) / BASE_PAGE_BYTES).max(1).ilog2();
            let order = aligned.min(fits).min(8);
            let bytes = BASE_PAGE_BYTES << order;
            self.mapped_bytes[order as usize] += bytes;
            if advised {
                self.advised_bytes[order as usize] += bytes;
            }
            range.start += bytes;
        }
    }
}

/// Collects the eligible parts of mappings of private memory, and counts the memory in the others.
pub fn collect_eligible_ranges(mappings: &[Mapping]) -> EligibleRanges {
    collect_eligible_ranges_of(mappings, ManagedMemory::Private)
}

/// The same for the memory that is `managed`.
pub fn collect_eligible_ranges_of(mappings: &[Mapping], managed: ManagedMemory) -> EligibleRanges {
    let mut found = EligibleRanges::default();
    const PROTECTING: u64 = vm::LOCKED | vm::UFFD_MISSING | vm::UFFD_WP | vm::NOHUGEPAGE;
    for mapping in mappings {
        if let Some(file) = mapping.shared_file.filter(|_| mapping.flags & PROTECTING != 0) {
            found.protected.push((mapping.range.clone(), file));
        }
        let advised = mapping.flags & vm::HUGEPAGE != 0;
        let all = &mapping.range;
        match mapping.eligible_range_of(managed) {
            Ok(range) => {
                if let Some(file) = mapping.shared_file {
                    found.shared.push((range.clone(), file.advanced_by(range.start - all.start)));
                } else {
                    found.outside.add_blocks_of_range(all.start..range.start, advised);
                    found.outside.add_blocks_of_range(range.end..all.end, advised);
                }
                if mapping.flags & vm::LOCKED != 0 {
                    found.locked.push(range.clone());
                }
                found.ranges.push(range);
            }
            Err(IneligibleReason::TooSmall) if mapping.shared_file.is_none() => {
                found.outside.add_blocks_of_range(all.clone(), advised)
            }
            Err(IneligibleReason::NoHugePage) => {
                let regions = mapping.range_of_whole_regions();
                found.refused_bytes += regions.end - regions.start;
            }
            Err(_) => {}
        }
    }
    found
}

/// Whether the mappings of its process allow a region to be managed.
pub fn check_region_eligible(
    mappings: &[Mapping],
    region: RegionAddr,
    managed: ManagedMemory,
) -> Result<(), IneligibleReason> {
    let overlaps = |m: &&Mapping| m.range.start < region.end() && m.range.end > region.start();
    let mapping = mappings.iter().find(overlaps).ok_or(IneligibleReason::Unmapped)?;
    let eligible = mapping.eligible_range_of(managed)?;
    if eligible.start <= region.start() && region.end() <= eligible.end {
        Ok(())
    } else {
        Err(IneligibleReason::TooSmall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUGE: u64 = HUGE_PAGE_BYTES;

    fn heap(range: Range<u64>) -> Mapping {
        with(0x0010_0000, range)
    }

    fn with(flags: u64, range: Range<u64>) -> Mapping {
        Mapping { range, flags: 0x73 | flags, file_backed: false, shared_file: None }
    }

    fn file(range: Range<u64>) -> Mapping {
        Mapping { file_backed: true, ..heap(range) }
    }

    #[test]
    fn only_whole_regions_of_the_right_kind_count() {
        let constant = Mapping { flags: 0x71, ..heap(0..4 * HUGE) };
        let all = 0..4 * HUGE;
        for (mapping, expected) in [
            (heap(HUGE + 4096..4 * HUGE - 4096), Ok(2 * HUGE..3 * HUGE)),
            (heap(4096..2 * HUGE - 4096), Err(IneligibleReason::TooSmall)),
            (heap(HUGE..2 * HUGE), Ok(HUGE..2 * HUGE)),
            (with(vm::NOHUGEPAGE, all.clone()), Err(IneligibleReason::NoHugePage)),
            (with(vm::UFFD_MISSING, all.clone()), Err(IneligibleReason::Userfaultfd)),
            (with(vm::UFFD_WP | vm::NOHUGEPAGE, all.clone()), Err(IneligibleReason::Userfaultfd)),
            (with(vm::HUGETLB, all.clone()), Err(IneligibleReason::HugeTlb)),
            (with(vm::MERGEABLE, all.clone()), Err(IneligibleReason::Merging)),
            (with(vm::SHARED, all.clone()), Err(IneligibleReason::NotAnonymous)),
            (with(vm::PFNMAP, all.clone()), Err(IneligibleReason::NotAnonymous)),
            (with(vm::GROWSDOWN, all.clone()), Err(IneligibleReason::Stack)),
            (file(all), Err(IneligibleReason::NotAnonymous)),
            (constant, Err(IneligibleReason::ReadOnly)),
        ] {
            assert_eq!(mapping.eligible_range(), expected, "{mapping:?}");
        }
    }

    #[test]
    fn a_region_is_judged_by_what_is_mapped_there() {
        let mappings = [heap(HUGE..4 * HUGE - 4096), file(8 * HUGE..9 * HUGE)];
        let judge = |index| {
            check_region_eligible(
                &mappings,
                RegionAddr::containing(index * HUGE),
                ManagedMemory::Private,
            )
        };
        assert_eq!(judge(1), Ok(()));
        assert_eq!(judge(3), Err(IneligibleReason::TooSmall));
        assert_eq!(judge(5), Err(IneligibleReason::Unmapped));
        assert_eq!(judge(8), Err(IneligibleReason::NotAnonymous));
    }

    #[test]
    fn memory_outside_regions_is_counted_by_largest_fitting_size() {
        const K: u64 = 1 << 10;
        // A heap with 8 KiB before its first region and 132 KiB after its last one. Then 132 KiB
        // that begin at an odd page.
        let large = heap(HUGE - 8 * K..3 * HUGE + 132 * K);
        let small = with(vm::HUGEPAGE, 8 * HUGE + 4 * K..8 * HUGE + 136 * K);
        let found = collect_eligible_ranges(&[large, small]).outside;
        let kib = |bytes: [u64; 9]| bytes.map(|bytes| bytes / K);
        assert_eq!(kib(found.advised_bytes), [4, 16, 16, 32, 64, 0, 0, 0, 0]);
        assert_eq!(kib(found.mapped_bytes), [8, 24, 16, 32, 64, 128, 0, 0, 0]);
        let file = file(4 * K..8 * K);
        assert_eq!(collect_eligible_ranges(&[file]).outside, BlockBytesOutsideRegions::default());
    }

    #[test]
    fn locked_memory_has_no_accesses_of_its_own() {
        let locked = |range| with(vm::LOCKED, range);
        let found = collect_eligible_ranges(&[
            heap(HUGE..2 * HUGE),
            locked(2 * HUGE..4 * HUGE),
            heap(4 * HUGE..5 * HUGE),
            locked(8 * HUGE..9 * HUGE - 4096),
            locked(10 * HUGE..11 * HUGE),
        ]);
        assert_eq!(found.ranges.len(), 4);
        let mut regions: Vec<RegionSample> = (0..12)
            .map(|n| RegionSample {
                present: 512,
                accessed: 512,
                runs: 1,
                ..RegionSample::new_full_and_untouched(RegionAddr::containing(n * HUGE))
            })
            .collect();
        found.clear_accesses_of_locked_regions(&mut regions);
        let cold = regions.iter().filter(|r| (r.accessed, r.runs) == (0, 0));
        let cold: Vec<u64> = cold.map(|r| r.region.start() / HUGE).collect();
        assert_eq!(cold, [2, 3, 10]);
        assert!(regions.iter().all(|r| r.present == 512));
    }

    #[test]
    fn memory_excluded_by_the_owner_is_counted() {
        let refused = with(vm::NOHUGEPAGE, HUGE..4 * HUGE);
        let found = collect_eligible_ranges(&[heap(8 * HUGE..9 * HUGE), refused]);
        assert_eq!(found.ranges, vec![8 * HUGE..9 * HUGE]);
        assert_eq!(found.refused_bytes, 3 * HUGE);
    }

    fn shared(range: Range<u64>, offset: u64, flags: u64) -> Mapping {
        let flags = vm::SHARED | vm::MAYSHARE | flags;
        let shared_file = Some(SharedFile { device: 1, inode: 7, offset });
        Mapping { range, flags, file_backed: true, shared_file }
    }

    #[test]
    fn shared_memory_is_managed_only_where_wanted_and_possible() {
        let all = HUGE..4 * HUGE;
        for (mapping, expected) in [
            (shared(all.clone(), 0, 0), Ok(all.clone())),
            (shared(HUGE + 0x3000..4 * HUGE, 0x3000, 0), Ok(2 * HUGE..4 * HUGE)),
            (shared(all.clone(), 8 * HUGE, vm::LOCKED), Err(IneligibleReason::LockedShared)),
            (shared(all.clone(), 0x1000, 0), Err(IneligibleReason::Misaligned)),
            (shared(all.clone(), 0, vm::UFFD_MISSING), Err(IneligibleReason::Userfaultfd)),
            (shared(all.clone(), 0, vm::UFFD_WP), Err(IneligibleReason::Userfaultfd)),
            (shared(all.clone(), 0, vm::HUGETLB), Err(IneligibleReason::HugeTlb)),
            (shared(all.clone(), 0, vm::NOHUGEPAGE), Err(IneligibleReason::NoHugePage)),
            (shared(all.clone(), 0, vm::PFNMAP), Err(IneligibleReason::NotAnonymous)),
            (shared(HUGE..2 * HUGE - 4096, 0, 0), Err(IneligibleReason::TooSmall)),
        ] {
            let found = mapping.eligible_range_of(ManagedMemory::PrivateAndShared);
            assert_eq!(found, expected, "{mapping:?}");
            let private = mapping.eligible_range_of(ManagedMemory::Private);
            assert!(private.is_err(), "{mapping:?}");
        }
        // Private memory is judged as before.
        let heap = heap(all.clone());
        assert_eq!(heap.eligible_range_of(ManagedMemory::PrivateAndShared), Ok(all));
    }

    #[test]
    fn locked_watched_and_excluded_shared_memory_is_protected_in_all_processes() {
        let at = |index| FileRegion { device: 1, inode: 7, index };
        for managed in [ManagedMemory::Private, ManagedMemory::PrivateAndShared] {
            for flags in [vm::LOCKED, vm::UFFD_MISSING, vm::UFFD_WP, vm::NOHUGEPAGE] {
                // Half a region of the file, at no address that could become huge.
                let mapping = shared(5 * HUGE + 0x3000..6 * HUGE, 9 * HUGE + HUGE / 2, flags);
                let found = collect_eligible_ranges_of(&[mapping], managed);
                let protects = [8, 9, 10, 11].map(|index| found.protects_file_region(at(index)));
                assert_eq!(protects, [false, true, true, false]);
                assert!(!found.protects_file_region(FileRegion { inode: 8, ..at(9) }));
            }
            let usual = collect_eligible_ranges_of(&[shared(HUGE..4 * HUGE, 0, 0)], managed);
            assert!(!usual.protects_file_region(at(0)));
        }
    }

    #[test]
    fn regions_of_shared_memory_have_their_part_of_the_file() {
        let mappings = [
            heap(HUGE..2 * HUGE),
            shared(4 * HUGE - 0x1000..6 * HUGE, 9 * HUGE - 0x1000, 0),
            heap(8 * HUGE..9 * HUGE),
        ];
        let found = collect_eligible_ranges_of(&mappings, ManagedMemory::PrivateAndShared);
        assert_eq!(found.ranges, [HUGE..2 * HUGE, 4 * HUGE..6 * HUGE, 8 * HUGE..9 * HUGE]);
        assert_eq!(found.private_ranges(), [HUGE..2 * HUGE, 8 * HUGE..9 * HUGE]);
        assert_eq!(found.outside, BlockBytesOutsideRegions::default());
        let index = |n: u64| {
            let file = found.file_region(RegionAddr::containing(n * HUGE));
            file.map(|file| (file.device, file.inode, file.index))
        };
        let expected = [None, None, Some((1, 7, 9)), Some((1, 7, 10)), None, None];
        assert_eq!([1, 3, 4, 5, 6, 8].map(index), expected);
        for n in [4, 5] {
            let region = RegionAddr::containing(n * HUGE);
            let file = found.file_region(region).expect("it is shared memory");
            assert_eq!(found.region_of_file(file), Some(region));
        }
        for (inode, index) in [(7, 8), (7, 11), (8, 9)] {
            let other = FileRegion { device: 1, inode, index };
            assert_eq!(found.region_of_file(other), None);
        }
        // Read-only pages of a file are neither copied by a promotion nor zero pages.
        let region = |n: u64| RegionAddr::containing(n * HUGE);
        let base =
            RegionSample { maybe_shared: 512, ..RegionSample::new_full_and_untouched(region(4)) };
        let huge = RegionSample {
            present: 0,
            zero_mapped: 512,
            order: hawkeye_policy::PageOrder::HUGE,
            ..RegionSample::new_full_and_untouched(region(5))
        };
        let zero_page = RegionSample { region: region(8), ..huge };
        let mut regions = [base, huge, zero_page];
        found.name_file_regions(&mut regions);
        let seen = regions.map(|r| (r.present, r.maybe_shared, r.zero_mapped, r.file.is_some()));
        assert_eq!(seen, [(512, 0, 0, true), (512, 0, 0, true), (0, 0, 512, false)]);
    }
}
