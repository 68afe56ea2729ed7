//! Shared memory: files of a tmpfs, which several address spaces map.
//!
//! ```text
//!  SharedFile: pages with their frames, each once
//!      ^  the first access to a hole, a promotion
//!      |
//!  RegionMapping of each address space: the pages that it has mapped, in the file's frames
//! ```
//!
//! A file owns its frames. In an address space a page appears at its first access there, by a fault
//! of its own. So resident memory of an address space counts pages that others map too. The
//! machine's memory counts each page once. A file is freed when nothing maps it any more.
//!
//! As in Linux 6.12 and later (`collapse_file` of `mm/khugepaged.c`):
//!
//! - A promotion copies a file region into one huge page, fills its holes, and empties the page
//!   tables of all address spaces. The one that it was made for maps the huge page at once. Each of
//!   the others maps it at its next access, by one fault.
//! - A promotion is final while several address spaces map the huge page. With one it can be split,
//!   which frees nothing.
//!
//! Not modelled: swap and reclaim of file pages, faults that map pages around the accessed one,
//! mappings of parts of a file. A split leaves the base pages mapped, where Linux empties the page
//! table.

mod collapse;
mod frame_moves;
mod invariants;

pub(super) use invariants::broken_mapping_rule;

use super::address_space::{FileMapping, RegionId, page_range_of_aligned_bytes};
use super::fault_policies::FirstTouchPolicy;
use super::file_region::FileRegionId;
use super::kernel_costs::time_of_operations;
use super::region_mapping::{RegionMapping, frame_run_of_huge_page};
use super::{
    KernelError, PageAccessKind, Result, SharedFileId, SimulatedKernel, SpaceId, TouchResult,
};
use crate::memory::{AscendingRun, FrameContent, FrameRun, pageblock_of_frame};
use crate::page_bits::PageBits;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PageOrder, RegionAddr};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct SharedFile {
    regions: u64,
    /// What the file holds, by file region. Access and dirty bits are those of the mappers.
    pub(crate) contents: BTreeMap<u64, RegionMapping>,
    /// The region at which each address space maps its first one.
    mappers: BTreeMap<SpaceId, u64>,
}

impl SharedFile {
    fn count_pages(&self) -> u64 {
        self.contents.values().map(|held| u64::from(held.present.count())).sum()
    }

    /// Where the address spaces map a file region, whether or not they have accessed it.
    fn places_of_region(&self, index: u64) -> impl Iterator<Item = RegionId> {
        let mappers = self.mappers.iter();
        mappers.map(move |(space, first)| RegionId { space: *space, region: first + index })
    }
}

/// All files, those of which all is hole included.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedFiles {
    pub(crate) files: BTreeMap<SharedFileId, SharedFile>,
    created: u32,
}

impl SharedFiles {
    pub(crate) fn count_pages(&self) -> u64 {
        self.files.values().map(SharedFile::count_pages).sum()
    }

    pub(crate) fn region(&self, file: FileRegionId) -> Option<&RegionMapping> {
        self.files.get(&file.file)?.contents.get(&file.index)
    }

    fn region_mut(&mut self, file: FileRegionId) -> Option<&mut RegionMapping> {
        self.files.get_mut(&file.file)?.contents.get_mut(&file.index)
    }

    fn get_or_create_region(&mut self, file: FileRegionId) -> Option<&mut RegionMapping> {
        let contents = &mut self.files.get_mut(&file.file)?.contents;
        Some(contents.entry(file.index).or_insert_with(RegionMapping::new))
    }
}

impl SimulatedKernel {
    /// A new file of this size, all of it a hole. It takes no memory, and is freed when the last
    /// address space has unmapped it.
    ///
    /// # Errors
    /// The size is no multiple of 2 MiB, or 0.
    pub fn create_shared_file(&mut self, bytes: u64) -> Result<SharedFileId> {
        if bytes == 0 || bytes % HUGE_PAGE_BYTES != 0 {
            return Err(KernelError::Spec { what: "a file's size", allowed: "whole 2 MiB" });
        }
        let id = SharedFileId(self.files.created);
        self.files.created += 1;
        let regions = bytes / HUGE_PAGE_BYTES;
        let file = SharedFile { regions, contents: BTreeMap::new(), mappers: BTreeMap::new() };
        self.files.files.insert(id, file);
        Ok(id)
    }

    /// Maps all of a file from an address on (`MAP_SHARED`). It takes no memory.
    ///
    /// # Errors
    /// The address is no multiple of 2 MiB. Or something is mapped there already, or the address
    /// space maps the file, or there is no such file.
    pub fn map_shared_file(
        &mut self,
        space: SpaceId,
        file: SharedFileId,
        start: u64,
    ) -> Result<()> {
        let found = self.files.files.get_mut(&file).ok_or(KernelError::File(file))?;
        if start % HUGE_PAGE_BYTES != 0 {
            let what = "the address of a file's mapping";
            return Err(KernelError::Spec { what, allowed: "a multiple of 2 MiB" });
        }
        let bytes = start..start + found.regions * HUGE_PAGE_BYTES;
        let pages = page_range_of_aligned_bytes(&bytes)?;
        let owned = self.spaces.get_mut(&space).ok_or(KernelError::Space(space))?;
        if found.mappers.contains_key(&space) || !owned.map(pages) {
            return Err(KernelError::Occupied(space, bytes));
        }
        let first = start / HUGE_PAGE_BYTES;
        found.mappers.insert(space, first);
        owned.file_mappings.push(FileMapping { regions: first..first + found.regions, file });
        Ok(())
    }

    /// Memory of all files, each page counted once, in bytes (`Shmem` of `/proc/meminfo`).
    pub fn shared_file_bytes(&self) -> u64 {
        self.files.count_pages() * BASE_PAGE_BYTES
    }

    /// Base pages of the file region mapped at a region that some address space has mapped; `None`
    /// for private memory.
    pub fn count_mapped_file_pages(&self, space: SpaceId, region: RegionAddr) -> Option<u16> {
        let mappers = self.mappings_of_same_file_region(RegionId::new(space, region))?;
        let mapped = mappers.fold(PageBits::EMPTY, |all, (_, found)| all.or(found.present));
        Some(mapped.count())
    }

    /// Other address spaces that have pages of the same file region mapped, and their regions.
    pub(crate) fn other_mappers_of_region(
        &self,
        space: SpaceId,
        region: RegionAddr,
    ) -> Vec<(SpaceId, RegionAddr)> {
        let mappers = self.mappings_of_same_file_region(RegionId::new(space, region));
        let others = mappers
            .into_iter()
            .flatten()
            .filter(|(at, found)| at.space != space && !found.present.is_empty());
        others.map(|(at, _)| (at.space, at.address())).collect()
    }

    /// Whether the address space maps a file at this region, and has nothing of it in its page
    /// table.
    pub(crate) fn is_unmapped_file_region(&self, space: SpaceId, region: RegionAddr) -> bool {
        let at = RegionId::new(space, region);
        let space = self.spaces.get(&space);
        space.is_some_and(|space| space.file_region_at(at.region).is_some())
            && self.region(at).is_none()
    }

    /// Page tables with something of the file region that is mapped at a region.
    fn mappings_of_same_file_region(
        &self,
        at: RegionId,
    ) -> Option<impl Iterator<Item = (RegionId, &RegionMapping)>> {
        let file = self.spaces.get(&at.space)?.file_region_at(at.region)?;
        let places = self.files.files.get(&file.file)?.places_of_region(file.index);
        Some(places.filter_map(|place| Some((place, self.region(place)?))))
    }

    /// Pages of a region that hold something other than zeros. Those of a file are known by it.
    pub(super) fn nonzero_bits_of_mapping(&self, at: RegionId, found: &RegionMapping) -> PageBits {
        let space = self.spaces.get(&at.space);
        match space.and_then(|space| space.file_region_at(at.region)) {
            Some(file) => {
                let held = self.files.region(file).map_or(PageBits::EMPTY, |held| held.nonzero);
                held.and(found.present)
            }
            None => found.nonzero,
        }
    }

    /// An address space accesses pages of a file region that it maps.
    pub(super) fn touch_in_file_region(
        &mut self,
        at: RegionId,
        file: FileRegionId,
        pages: PageBits,
        access: PageAccessKind,
        sum: &mut TouchResult,
    ) -> Result<()> {
        loop {
            let mapped = self.region(at).map_or(PageBits::EMPTY, |found| found.present);
            let Some(run) = pages.minus(mapped).next_run(0) else {
                break;
            };
            self.map_leading_file_pages(at, file, run, sum)?;
        }
        let nonzero = access.writes_nonzero();
        let found = self.get_or_create_region(at)?;
        found.accessed = found.accessed.or(pages);
        if nonzero.is_some() {
            found.written = found.written.or(pages);
        }
        if let Some(held) = self.files.region_mut(file) {
            sum.cold += u64::from(held.record_page_accesses(pages, nonzero));
        }
        Ok(())
    }

    /// Maps the first of these pages, and those after it that are alike: in the file, or holes.
    fn map_leading_file_pages(
        &mut self,
        at: RegionId,
        file: FileRegionId,
        (first, count): (u16, u16),
        sum: &mut TouchResult,
    ) -> Result<()> {
        let held = self.files.get_or_create_region(file).ok_or(KernelError::File(file.file))?;
        let (huge, there) = (held.huge.is_some(), held.present);
        let next = there.and(PageBits::range(first, count)).next_run(0);
        match next {
            Some((start, alike)) if start == first => {
                let faults = if huge { 1 } else { u64::from(alike) };
                sum.faults.shared += faults;
                sum.time += time_of_operations(faults, self.costs.reuse_fault_ns);
                self.map_present_file_pages(at, file, (first, alike))
            }
            _ if there.is_empty() && self.try_huge_file_page(file, sum)? => {
                self.map_present_file_pages(at, file, (first, count))
            }
            next => {
                let holes = next.map_or(count, |(start, _)| start - first);
                let filled = self.fill_file_holes(at, file, (first, holes), sum)?;
                self.map_present_file_pages(at, file, (first, filled))
            }
        }
    }

    /// Maps pages that are in the file: by its huge page, or by base pages.
    fn map_present_file_pages(
        &mut self,
        at: RegionId,
        file: FileRegionId,
        (first, count): (u16, u16),
    ) -> Result<()> {
        let Some(held) = self.files.region(file) else {
            return Ok(());
        };
        if let Some(block) = held.huge {
            self.map_region_huge(at, block, false)?;
        } else {
            let runs: Vec<AscendingRun> = held.frames.runs_within(first, count).collect();
            let owned = self.space_mut(at.space)?;
            let found = owned.table.get_or_create(at.region);
            for run in &runs {
                found.map_pages(run.first, FrameRun::new(run.value as u32, run.count.into()));
            }
            owned.resident += runs.iter().map(|run| u64::from(run.count)).sum::<u64>();
        }
        self.get_or_create_region(at)?.file = file.identity();
        Ok(())
    }

    /// Allocates a huge page for a file region of holes, if the policy is to do so.
    fn try_huge_file_page(&mut self, file: FileRegionId, sum: &mut TouchResult) -> Result<bool> {
        let FirstTouchPolicy::Huge { compact } = self.faults.first_touch_of_files else {
            return Ok(false);
        };
        let owner = file.owner_of_page(0);
        let got = self.allocate_huge_frame(FrameContent::Zeroed, owner, compact, &mut sum.time);
        let (Some(got), Some(held)) = (got, self.files.region_mut(file)) else {
            sum.faults.record_size_fallback(PageOrder::HUGE);
            return Ok(false);
        };
        held.map_huge_page(pageblock_of_frame(got.frames.first));
        sum.time += time_of_operations(1, self.costs.huge_fault_ns);
        sum.faults.huge += 1;
        let cold = self.charge_zeroing_in_fault(&got, true, sum);
        if let Some(held) = self.files.region_mut(file) {
            held.cold = cold;
        }
        Ok(true)
    }

    /// Allocates zeroed base pages for holes, as many as there is memory for at once.
    fn fill_file_holes(
        &mut self,
        at: RegionId,
        file: FileRegionId,
        (first, count): (u16, u16),
        sum: &mut TouchResult,
    ) -> Result<u16> {
        let got = self.allocate_base_frames(
            at.space,
            count,
            FrameContent::Zeroed,
            file.owner_of_page(first),
            &mut sum.time,
        )?;
        let filled = got.frames.count as u16;
        sum.time += time_of_operations(filled.into(), self.costs.base_fault_ns);
        sum.faults.base += u64::from(filled);
        let cold = self.charge_zeroing_in_fault(&got, false, sum);
        if let Some(held) = self.files.region_mut(file) {
            held.map_pages(first, got.frames);
            held.cold = cold;
        }
        Ok(filled)
    }

    /// Takes pages out of the page table of an address space. The file keeps them.
    pub(super) fn unmap_in_file_region(
        &mut self,
        at: RegionId,
        pages: PageBits,
    ) -> Result<Duration> {
        let owned = self.space_mut(at.space)?;
        let Some(found) = owned.table.get_mut(at.region) else {
            return Ok(Duration::ZERO);
        };
        if found.huge.is_some() {
            // A huge page of a file is unmapped whole.
            owned.empty_page_table_of_region(at.region);
            return Ok(self.freeing_time(0, 1));
        }
        let gone = found.present.and(pages);
        found.unmap_pages(gone);
        owned.resident -= u64::from(gone.count());
        Ok(self.freeing_time(gone.count().into(), 0))
    }

    /// Ends the mappings of files in a range that was unmapped, and frees files without mappers.
    pub(super) fn end_file_mappings_in_range(
        &mut self,
        space: SpaceId,
        pages: &Range<u64>,
    ) -> Result<()> {
        let owned = self.space_mut(space)?;
        let within = |mapping: &FileMapping| mapping.is_within(pages);
        let ended: Vec<_> = owned.file_mappings.iter().filter(|it| within(it)).cloned().collect();
        owned.file_mappings.retain(|mapping| !within(mapping));
        for FileMapping { file, .. } in ended {
            let Some(found) = self.files.files.get_mut(&file) else {
                continue;
            };
            found.mappers.remove(&space);
            if !found.mappers.is_empty() {
                continue;
            }
            let contents = std::mem::take(&mut found.contents);
            self.files.files.remove(&file);
            for held in contents.values() {
                for run in held.frames.iter().chain(held.huge.map(frame_run_of_huge_page)) {
                    self.release_unmapped_frames(run);
                }
            }
        }
        Ok(())
    }
}
