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
        let first = reasons.into_iter().find(|(holds, _)| *holds);
        first.map_or(Ok(regions), |(_, why)| Err(why))
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
        let first = reasons.into_iter().find(|(holds, _)| *holds);
        first.map_or(Ok(regions), |(_, why)| Err(why))
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
mod tests;
