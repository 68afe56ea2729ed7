//! Promotion and split of file regions.

use super::FileRegionId;
use crate::kernel::address_space::RegionId;
use crate::kernel::kernel_costs::time_of_operations;
use crate::kernel::promotion::PromotionWork;
use crate::kernel::region_mapping::frame_run_of_huge_page;
use crate::kernel::{CompletedPromotion, KernelError, Result, SimulatedKernel};
use crate::memory::{AscendingRun, FrameContent, pageblock_of_frame};
use hawkeye_manager::RecoveryResult;
use hawkeye_policy::{PAGES_PER_REGION, PageOrder};
use std::time::Duration;

impl SimulatedKernel {
    /// Makes a file region huge for all address spaces, and maps it in this one.
    pub(in crate::kernel) fn collapse_file_region(
        &mut self,
        at: RegionId,
        file: FileRegionId,
    ) -> Result<CompletedPromotion> {
        let held = self.files.region(file).filter(|held| !held.present.is_empty());
        let held = held.ok_or_else(|| at.not_candidate_error())?;
        let mut work = PromotionWork { looked: 1, ..PromotionWork::default() };
        if held.huge.is_some() {
            // Another process got it: the call only maps it.
            if self.region(at).is_some_and(|found| found.huge.is_some()) {
                return Err(at.not_candidate_error());
            }
            self.map_present_file_pages(at, file, (0, PAGES_PER_REGION))?;
            return Ok(self.result_of_promotion_work(Duration::ZERO, &work));
        }
        let copied = held.present.count();
        let mut time = Duration::ZERO;
        let owner = file.owner_of_page(0);
        let got = self.allocate_huge_frame(FrameContent::Dirty, owner, true, &mut time);
        let got = got.ok_or(at.no_frames_error(PageOrder::HUGE))?;
        work.add_pages(copied, PAGES_PER_REGION - copied, got.dirty > 0);
        work.flushed = self.empty_page_tables_of_file_region(file);
        let mut old: Vec<AscendingRun> = Vec::new();
        // Compaction may have moved pages since.
        if let Some(held) = self.files.region_mut(file) {
            old.extend(held.frames.iter().chain(held.huge.map(frame_run_of_huge_page)));
            held.map_huge_page(pageblock_of_frame(got.frames.first));
            held.cold = false;
        }
        for run in old {
            self.release_unmapped_frames(run);
        }
        self.map_present_file_pages(at, file, (0, PAGES_PER_REGION))?;
        Ok(self.result_of_promotion_work(time, &work))
    }

    /// Returns in how many address spaces something was mapped.
    fn empty_page_tables_of_file_region(&mut self, file: FileRegionId) -> u64 {
        let places = self.places_of_file_region(file);
        let mapped = places.iter().filter(|place| self.region(**place).is_some()).count() as u64;
        for place in places {
            if let Some(space) = self.spaces.get_mut(&place.space) {
                space.empty_page_table_of_region(place.region);
            }
        }
        mapped
    }

    /// Splits the huge page of a file region that one address space maps. Frees nothing.
    pub(in crate::kernel) fn split_file_region(
        &mut self,
        at: RegionId,
        file: FileRegionId,
    ) -> Result<RecoveryResult> {
        if self.region(at).is_none_or(|found| found.huge.is_none()) {
            return Err(KernelError::NotHuge(at.space, at.address()));
        }
        if !self.other_mappers_of_region(at.space, at.address()).is_empty() {
            return Err(KernelError::SeveralMappers(at.space, at.address()));
        }
        self.split_file_region_everywhere(file);
        self.assert_consistent_in_debug();
        let took = time_of_operations(1, self.costs.split_ns + self.costs.shoot_down_ns);
        Ok(RecoveryResult { bytes: 0, left_present: PAGES_PER_REGION, took, longest_call: took })
    }

    /// Splits the huge page of a file region, in the file and in all page tables.
    pub(super) fn split_file_region_everywhere(&mut self, file: FileRegionId) {
        if let Some(held) = self.files.region_mut(file) {
            held.split_huge_page();
        }
        for place in self.places_of_file_region(file) {
            let Some(space) = self.spaces.get_mut(&place.space) else {
                continue;
            };
            let found = space.table.get_mut(place.region);
            if let Some(found) = found.filter(|found| found.huge.is_some()) {
                found.split_huge_page();
                space.huge -= 1;
                self.reports.remapped.record(place);
            }
        }
    }

    pub(super) fn places_of_file_region(&self, file: FileRegionId) -> Vec<RegionId> {
        let found = self.files.files.get(&file.file);
        found.into_iter().flat_map(|found| found.places_of_region(file.index)).collect()
    }
}
