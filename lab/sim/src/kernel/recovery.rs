//! Finds base pages of zeros, and gives their memory back.

use super::address_space::RegionId;
use super::kernel_costs::time_of_operations;
use super::{KernelError, Result, SimulatedKernel, SpaceId};
use crate::page_bits::PageBits;
use hawkeye_manager::{RecoveryResult, ZeroScanResult};
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};
use std::time::Duration;

impl SimulatedKernel {
    /// Counts the base pages of a huge page that are all zeros, and stops at the `enough`th. Other
    /// pages are read up to their first nonzero byte (paper, section 3.2).
    ///
    /// # Errors
    /// The region is no huge page.
    pub fn scan_zeros(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        enough: u16,
    ) -> Result<ZeroScanResult> {
        let at = RegionId::new(space, region);
        let found = self.region(at).filter(|found| found.huge.is_some());
        let found = found.ok_or(KernelError::NotHuge(space, region))?;
        let zeros = PageBits::FULL.minus(self.nonzero_bits_of_mapping(at, found));
        let mut seen: u16 = 0;
        let mut end = PAGES_PER_REGION;
        for (first, count) in zeros.runs() {
            if seen + count >= enough {
                end = first + (enough - seen);
                seen = enough;
                break;
            }
            seen += count;
        }
        let took = time_of_operations(seen.into(), self.costs.scan_zero_ns)
            + time_of_operations(u64::from(end - seen), self.costs.scan_used_ns);
        Ok(ZeroScanResult { zero_pages: seen, took })
    }

    /// Splits a huge page and maps its base pages of zeros to the shared zero page. One of shared
    /// memory is only split: its zeros stay in the file.
    ///
    /// # Errors
    /// The region is no huge page, or one of shared memory that several address spaces map.
    pub fn recover_bloat(&mut self, space: SpaceId, region: RegionAddr) -> Result<RecoveryResult> {
        let at = RegionId::new(space, region);
        if let Some(file) = self.space(space)?.file_region_at(at.region) {
            return self.split_file_region(at, file);
        }
        let splits = self.split_huge(at)?;
        if splits == 0 {
            return Err(KernelError::NotHuge(space, region));
        }
        let mut time = time_of_operations(splits, self.costs.split_ns + self.costs.shoot_down_ns);
        let freed = self.remap_to_shared_zero_page(at, &mut time)?;
        self.assert_consistent_in_debug();
        Ok(RecoveryResult {
            bytes: u64::from(freed) * BASE_PAGE_BYTES,
            left_present: PAGES_PER_REGION - freed,
            took: time,
            longest_call: time,
        })
    }

    /// Maps a region's present base pages of zeros to the shared zero page; returns their number.
    pub(crate) fn remap_to_shared_zero_page(
        &mut self,
        at: RegionId,
        time: &mut Duration,
    ) -> Result<u16> {
        let owned = self.space_mut(at.space)?;
        let found = owned.table.get_mut(at.region);
        let Some(found) = found.filter(|found| found.file.is_none()) else {
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
        *time += time_of_operations(used, costs.scan_used_ns)
            + time_of_operations(zeros.into(), costs.scan_zero_ns + costs.remap_zero_ns);
        Ok(zeros)
    }
}
