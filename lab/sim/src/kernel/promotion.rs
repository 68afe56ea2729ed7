//! Promotion: maps regions by larger pages, by a decision from outside.

mod multi_region;
mod sub_region;

use super::address_space::RegionId;
use super::kernel_costs::time_of_operations;
use super::region_mapping::RegionMapping;
use super::region_mapping::frame_run_of_huge_page;
use super::{Result, SimulatedKernel, SpaceId};
use crate::memory::{AscendingRun, FrameContent, pageblock_of_frame};
use crate::page_bits::PageBits;
use hawkeye_policy::{PAGES_PER_REGION, PageOrder, RegionAddr};
use std::time::Duration;

/// The result of a promotion: memory that is mapped by larger pages now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletedPromotion {
    /// Its time, compaction included.
    pub time: Duration,
    /// Time for which the program can't fault (the kernel holds `mmap_lock` for writing): copying
    /// and zeroing.
    pub locked: Duration,
    /// Base pages that were copied.
    pub copied: u64,
    /// Base pages that are present now and were not before.
    pub added: u64,
}

/// What a promotion does: counts of base pages, TLB flushes and scans of page tables.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PromotionWork {
    pub(super) copied: u64,
    pub(super) added: u64,
    /// The added ones that are zeroed.
    pub(super) zeroed: u64,
    pub(super) flushed: u64,
    pub(super) looked: u64,
}

impl PromotionWork {
    pub(super) fn add_pages(&mut self, copied: u16, added: u16, dirty: bool) {
        self.copied += u64::from(copied);
        self.added += u64::from(added);
        self.zeroed += if dirty { added.into() } else { 0 };
    }
}

impl SimulatedKernel {
    /// Maps memory by pages of this size, and copies what is present into them.
    ///
    /// - A huge page maps all of the region (khugepaged's `collapse_huge_page`, `MADV_COLLAPSE`).
    ///   Compaction makes a huge frame if none is free.
    /// - Smaller pages each map a block of the region in which something is present. khugepaged
    ///   does so since it collapses to folios of many sizes.
    /// - A larger page maps the regions around this one, if something is in each of them. No kernel
    ///   does so by itself. Its frames are allocated as `alloc_contig_range` does.
    /// - Shared memory can have huge pages only. All address spaces that map it get the huge page.
    ///
    /// # Errors
    /// The memory is no candidate, or there are no frames for it.
    pub fn promote(
        &mut self,
        space: SpaceId,
        region: RegionAddr,
        order: PageOrder,
    ) -> Result<CompletedPromotion> {
        let at = RegionId::new(space, region);
        match (order, self.space(space)?.file_region_at(at.region)) {
            (PageOrder::HUGE, Some(file)) => self.collapse_file_region(at, file),
            (PageOrder::BASE, _) | (_, Some(_)) => Err(at.not_candidate_error()),
            (PageOrder::HUGE, None) => self.collapse_to_huge_page(at),
            (small, None) if small < PageOrder::HUGE => self.collapse_blocks_to_folios(at, small),
            (large, None) => self.collapse_to_multi_region_page(at, large),
        }
    }

    fn collapse_to_huge_page(&mut self, at: RegionId) -> Result<CompletedPromotion> {
        let fits = |found: &RegionMapping| found.huge.is_none() && found.can_move_to_larger_page();
        if !self.is_fitting_region_in_mapping(at, fits)? {
            return Err(at.not_candidate_error());
        }
        let mut time = Duration::ZERO;
        let owner = self.new_anonymous_owner(at, 0)?;
        // The copy overwrites most of it, so it needs no zeroed frame.
        let got = self.allocate_huge_frame(FrameContent::Dirty, owner, true, &mut time);
        let got = got.ok_or(at.no_frames_error(PageOrder::HUGE))?;
        let mut work = PromotionWork { flushed: 1, looked: 1, ..PromotionWork::default() };
        let block = pageblock_of_frame(got.frames.first);
        self.copy_region_to(at, block, got.dirty > 0, &mut work)?;
        Ok(self.result_of_promotion_work(time, &work))
    }

    /// Copies a region into a pageblock. What was not present there is zeroed if it is `dirty`.
    fn copy_region_to(
        &mut self,
        at: RegionId,
        block: u32,
        dirty: bool,
        work: &mut PromotionWork,
    ) -> Result<()> {
        let (old, added) = self.map_region_huge(at, block, false)?;
        work.add_pages(PAGES_PER_REGION - added, added, dirty);
        for run in old {
            self.release_unmapped_frames(run);
        }
        self.break_reservation(at);
        Ok(())
    }

    /// Maps a region by a huge page. Returns its old frames and the number of added base pages.
    pub(super) fn map_region_huge(
        &mut self,
        at: RegionId,
        block: u32,
        cold: bool,
    ) -> Result<(Vec<AscendingRun>, u16)> {
        let owned = self.space_mut(at.space)?;
        let found = owned.table.get_or_create(at.region);
        let added = PAGES_PER_REGION - found.present.count();
        let old = found.frames.iter().chain(found.huge.map(frame_run_of_huge_page)).collect();
        owned.huge += u64::from(found.huge.is_none());
        owned.resident += u64::from(added);
        found.map_huge_page(block);
        found.cold = cold;
        Ok((old, added))
    }

    /// Whether one mapping holds all of a region that fits.
    fn is_fitting_region_in_mapping(
        &self,
        at: RegionId,
        fits: impl Fn(&RegionMapping) -> bool,
    ) -> Result<bool> {
        let space = self.space(at.space)?;
        Ok(space.table.get(at.region).is_some_and(fits)
            && space.is_region_in_one_mapping(at.region))
    }

    pub(super) fn result_of_promotion_work(
        &mut self,
        search: Duration,
        work: &PromotionWork,
    ) -> CompletedPromotion {
        let locked = time_of_operations(work.copied, self.costs.copy_base_ns)
            + time_of_operations(work.zeroed, self.costs.zero_base_ns)
            + time_of_operations(work.flushed, self.costs.shoot_down_ns);
        let time = search + locked + time_of_operations(work.looked, self.costs.collapse_ns);
        self.assert_consistent_in_debug();
        CompletedPromotion { time, locked, copied: work.copied, added: work.added }
    }

    /// A program had to wait for a collapse.
    pub fn charge_lock_wait(&mut self, space: SpaceId) -> Duration {
        let time = time_of_operations(1, self.costs.lock_wait_ns);
        self.charge_kernel_time(space, time);
        time
    }

    /// Maps a zeroed huge page in an empty region before its program touches it.
    ///
    /// # Errors
    /// The region isn't empty, is shared memory or can't be huge, or no huge frame is free.
    pub fn prefault_region(&mut self, space: SpaceId, region: RegionAddr) -> Result<Duration> {
        let at = RegionId::new(space, region);
        let private = self.space(space)?.file_region_at(at.region).is_none();
        let empty = private && self.region(at).is_none_or(RegionMapping::is_empty);
        if !empty || !self.space(space)?.is_region_in_one_mapping(at.region) {
            return Err(at.not_candidate_error());
        }
        let mut time = Duration::ZERO;
        let owner = self.new_anonymous_owner(at, 0)?;
        let got = self.allocate_huge_frame(FrameContent::Zeroed, owner, false, &mut time);
        let got = got.ok_or(at.no_frames_error(PageOrder::HUGE))?;
        time +=
            time_of_operations(1, self.costs.huge_fault_ns) + self.zeroing_time(got.dirty, true);
        // Another core zeroed it.
        self.map_region_huge(at, pageblock_of_frame(got.frames.first), true)?;
        self.assert_consistent_in_debug();
        Ok(time)
    }

    /// Records base pages that the program accessed, by the processor's access bits, for reclaim.
    pub fn record_accessed_pages(&mut self, space: SpaceId, region: RegionAddr, pages: PageBits) {
        if let Some(found) = self.region_mut(RegionId::new(space, region)) {
            found.accessed = found.accessed.or(pages.and(found.present));
        }
    }
}
