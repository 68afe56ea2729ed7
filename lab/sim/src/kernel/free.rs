//! Freeing: a program gives memory back, or a manager finds base pages of zeros.

use super::costs::times;
use super::region::huge_run;
use super::space::{RegionId, cut_at_regions, first_page, pages_of};
use super::{KernelError, Result, SimulatedKernel, SpaceId};
use crate::bits::PageBits;
use hawkeye_manager::{RecoveryResult, ZeroScanResult};
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};
use std::ops::Range;
use std::time::Duration;

impl SimulatedKernel {
    /// Frees the memory in a range and leaves the range mapped (`MADV_DONTNEED`); it reads as zeros
    /// afterwards. A huge page that is freed in part is split at once. Linux 4.3 does so; since 4.5
    /// Linux frees the part only when memory is short.
    pub fn free(&mut self, space: SpaceId, bytes: Range<u64>) -> Result<Duration> {
        let time = self.free_range(space, pages_of(&bytes)?)?;
        Ok(self.charge_freeing(space, time))
    }

    /// The same for some pages of one region.
    pub fn free_pages(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        pages: PageBits,
    ) -> Result<Duration> {
        let time = self.free_in_region(RegionId::new(space, region), pages)?;
        Ok(self.charge_freeing(space, time))
    }

    /// Frees the memory in a range and unmaps the range (`munmap`).
    pub fn unmap(&mut self, space: SpaceId, bytes: Range<u64>) -> Result<Duration> {
        let time = self.unmap_pages(space, pages_of(&bytes)?)?;
        Ok(self.charge_freeing(space, time))
    }

    fn charge_freeing(&mut self, space: SpaceId, time: Duration) -> Duration {
        self.charge_kernel_time(space, time);
        self.debug_check();
        time
    }

    pub(crate) fn unmap_pages(&mut self, space: SpaceId, pages: Range<u64>) -> Result<Duration> {
        let time = self.free_range(space, pages.clone())?;
        let owned = self.space_mut(space)?;
        owned.unmap(&pages);
        // A page table is freed when nothing is mapped by it any more.
        for (region, _, _) in cut_at_regions(pages) {
            let all = first_page(region)..first_page(region + 1);
            let mapped = owned.mappings.range(..all.end).next_back();
            if mapped.is_none_or(|(_, end)| *end <= all.start) {
                owned.table.remove(region);
            }
        }
        Ok(time)
    }

    fn free_range(&mut self, space: SpaceId, pages: Range<u64>) -> Result<Duration> {
        let mut time = Duration::ZERO;
        for (region, first, count) in cut_at_regions(pages) {
            let pages = PageBits::range(first, count);
            time += self.free_in_region(RegionId { space, region }, pages)?;
        }
        Ok(time)
    }

    fn free_in_region(&mut self, at: RegionId, pages: PageBits) -> Result<Duration> {
        let each = self.costs.split_ns + self.costs.shoot_down_ns;
        let Some(found) = self.space(at.space)?.table.get(at.region) else {
            return Ok(Duration::ZERO);
        };
        if let Some(block) = found.huge.filter(|_| pages.full()) {
            // If all of a larger page is freed, this counts one split too many.
            let larger = u64::from(self.split_multi_region_page(at));
            let owned = self.space_mut(at.space)?;
            owned.table.remove(at.region);
            owned.huge -= 1;
            owned.resident -= 512;
            self.release_unmapped_frames(huge_run(block));
            return Ok(self.freeing_time(0, 1) + times(larger, each));
        }
        let time = times(self.split_huge(at)?, each);
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
            found.untouched = pages.full();
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

impl SimulatedKernel {
    /// Counts the base pages of a huge page that are all zeros, and stops at the `enough`th. Other
    /// pages are read up to their first nonzero byte (paper, section 3.2).
    pub fn scan_zeros(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        enough: u16,
    ) -> Result<ZeroScanResult> {
        let found = self.region(RegionId::new(space, region));
        let found = found.filter(|found| found.huge.is_some());
        let found = found.ok_or(KernelError::NotHuge(space, region))?;
        let zeros = PageBits::FULL.minus(found.nonzero);
        let mut seen: u16 = 0;
        let mut end = PAGES_PER_REGION;
        for (first, count) in zeros.each_run() {
            if seen + count >= enough {
                end = first + (enough - seen);
                seen = enough;
                break;
            }
            seen += count;
        }
        let took = times(seen.into(), self.costs.scan_zero_ns)
            + times(u64::from(end - seen), self.costs.scan_used_ns);
        Ok(ZeroScanResult {
            zero_pages: seen,
            took,
        })
    }

    /// Splits a huge page and maps its base pages of zeros to the shared zero page.
    pub fn recover_bloat(&mut self, space: SpaceId, region: RegionAddr) -> Result<RecoveryResult> {
        let at = RegionId::new(space, region);
        let splits = self.split_huge(at)?;
        if splits == 0 {
            return Err(KernelError::NotHuge(space, region));
        }
        let mut time = times(splits, self.costs.split_ns + self.costs.shoot_down_ns);
        let freed = self.drop_zeros(at, &mut time)?;
        self.debug_check();
        Ok(RecoveryResult {
            bytes: u64::from(freed) * BASE_PAGE_BYTES,
            left_present: PAGES_PER_REGION - freed,
            took: time,
            longest_call: time,
        })
    }

    /// Maps a region's present base pages of zeros to the shared zero page; returns their number.
    pub(crate) fn drop_zeros(&mut self, at: RegionId, time: &mut Duration) -> Result<u16> {
        let owned = self.space_mut(at.space)?;
        let Some(found) = owned.table.get_mut(at.region) else {
            return Ok(0);
        };
        let zeros = found.present.minus(found.nonzero);
        let used = u64::from(found.present.count() - zeros.count());
        let runs = found.unmap_pages(zeros);
        found.zero_mapped = found.zero_mapped.or(zeros);
        owned.resident -= u64::from(zeros.count());
        for run in runs {
            self.release_unmapped_frames(run);
        }
        if !zeros.is_empty() {
            self.break_reservation(at);
        }
        let zeros = zeros.count();
        let costs = &self.costs;
        *time += times(used, costs.scan_used_ns)
            + times(zeros.into(), costs.scan_zero_ns + costs.remap_zero_ns);
        Ok(zeros)
    }
}
