//! Freeing: a program gives memory back.

use super::address_space::{
    RegionId, first_page, page_range_of_aligned_bytes, split_at_region_boundaries,
};
use super::kernel_costs::time_of_operations;
use super::region_mapping::frame_run_of_huge_page;
use super::{KernelError, Result, SimulatedKernel, SpaceId};
use crate::page_bits::PageBits;
use hawkeye_policy::RegionAddr;
use std::ops::Range;
use std::time::Duration;

impl SimulatedKernel {
    /// Frees the memory in a range and leaves the range mapped (`MADV_DONTNEED`); it reads as zeros
    /// afterwards. Pages of a file stay in the file. A huge page that is freed in part is split at
    /// once. Linux 4.3 does so; since 4.5 Linux frees the part only when memory is short.
    pub fn free(&mut self, space: SpaceId, bytes: Range<u64>) -> Result<Duration> {
        let time = self.free_page_range(space, page_range_of_aligned_bytes(&bytes)?)?;
        Ok(self.charge_freeing_time(space, time))
    }

    /// The same for some pages of one region.
    pub fn free_pages_of_region(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        pages: PageBits,
    ) -> Result<Duration> {
        let time = self.free_in_region(RegionId::new(space, region), pages)?;
        Ok(self.charge_freeing_time(space, time))
    }

    /// Frees the memory in a range and unmaps the range (`munmap`).
    ///
    /// # Errors
    /// The range has a part of a file's mapping.
    pub fn unmap(&mut self, space: SpaceId, bytes: Range<u64>) -> Result<Duration> {
        let time = self.unmap_page_range(space, page_range_of_aligned_bytes(&bytes)?)?;
        Ok(self.charge_freeing_time(space, time))
    }

    fn charge_freeing_time(&mut self, space: SpaceId, time: Duration) -> Duration {
        self.charge_kernel_time(space, time);
        self.assert_consistent_in_debug();
        time
    }

    pub(crate) fn unmap_page_range(
        &mut self,
        space: SpaceId,
        pages: Range<u64>,
    ) -> Result<Duration> {
        if self.space(space)?.cuts_file_mapping(&pages) {
            return Err(KernelError::PartOfFile(space));
        }
        let time = self.free_page_range(space, pages.clone())?;
        self.end_file_mappings_in_range(space, &pages)?;
        let owned = self.space_mut(space)?;
        owned.remove_mappings_in_range(&pages);
        // A page table is freed when nothing is mapped by it any more.
        for (region, _, _) in split_at_region_boundaries(pages) {
            let all = first_page(region)..first_page(region + 1);
            let mapped = owned.mappings.range(..all.end).next_back();
            if mapped.is_none_or(|(_, end)| *end <= all.start) {
                owned.table.remove(region);
            }
        }
        Ok(time)
    }

    fn free_page_range(&mut self, space: SpaceId, pages: Range<u64>) -> Result<Duration> {
        let mut time = Duration::ZERO;
        for (region, first, count) in split_at_region_boundaries(pages) {
            let pages = PageBits::range(first, count);
            time += self.free_in_region(RegionId { space, region }, pages)?;
        }
        Ok(time)
    }

    fn free_in_region(&mut self, at: RegionId, pages: PageBits) -> Result<Duration> {
        if self.space(at.space)?.file_region_at(at.region).is_some() {
            return self.unmap_in_file_region(at, pages);
        }
        let each = self.costs.split_ns + self.costs.shoot_down_ns;
        let Some(found) = self.space(at.space)?.table.get(at.region) else {
            return Ok(Duration::ZERO);
        };
        if let Some(block) = found.huge.filter(|_| pages.is_full()) {
            // If all of a larger page is freed, this counts one split too many.
            let larger = u64::from(self.split_multi_region_page(at));
            let owned = self.space_mut(at.space)?;
            owned.table.remove(at.region);
            owned.huge -= 1;
            owned.resident -= 512;
            self.release_unmapped_frames(frame_run_of_huge_page(block));
            return Ok(self.freeing_time(0, 1) + time_of_operations(larger, each));
        }
        let time = time_of_operations(self.split_huge(at)?, each);
        let owned = self.space_mut(at.space)?;
        let found = owned.table.get_or_create(at.region);
        let gone = found.present.and(pages);
        let runs = found.unmap_pages(gone);
        let swapped = u64::from(found.swapped.and(pages).count());
        found.swapped = found.swapped.minus(pages);
        found.nonzero = found.nonzero.minus(pages);
        found.accessed = found.accessed.minus(pages);
        if found.huge_zero {
            found.huge_zero = false;
            found.untouched = pages.is_full();
        }
        found.zero_mapped = found.zero_mapped.minus(pages);
        owned.resident -= u64::from(gone.count());
        owned.swapped -= swapped;
        self.reclaim_state.swap.used -= swapped;
        for run in runs {
            self.release_unmapped_frames(run);
        }
        if !gone.is_empty() {
            self.break_reservation(at);
        }
        Ok(time + self.freeing_time(gone.count().into(), 0))
    }
}
