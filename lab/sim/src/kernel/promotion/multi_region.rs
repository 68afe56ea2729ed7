//! Promotion of several regions to one page larger than a huge page.

use super::{CompletedPromotion, PromotionWork};
use crate::kernel::address_space::RegionId;
use crate::kernel::reclaim::regions_of_same_page;
use crate::kernel::region_mapping::RegionMapping;
use crate::kernel::{Result, SimulatedKernel};
use crate::memory::FrameRun;
use hawkeye_policy::PageOrder;
use std::time::Duration;

impl SimulatedKernel {
    /// Makes one page of the regions around this; doesn't copy huge pages that lie as needed.
    pub(super) fn collapse_to_multi_region_page(
        &mut self,
        at: RegionId,
        order: PageOrder,
    ) -> Result<CompletedPromotion> {
        let around = regions_of_same_page(at.region, order);
        let regions = around.map(|region| RegionId { region, ..at });
        let regions: Vec<RegionId> = regions.collect();
        for part in &regions {
            let smaller = |of: PageOrder| of < order;
            let fits = |found: &RegionMapping| {
                found.can_move_to_larger_page() && found.multi_region.is_none_or(smaller)
            };
            if !self.is_fitting_region_in_mapping(*part, fits)? {
                return Err(at.not_candidate_error());
            }
        }
        let mut time = Duration::ZERO;
        let each = order.regions_per_page();
        let mut work = PromotionWork { flushed: each, looked: each, ..PromotionWork::default() };
        if !self.are_contiguous_huge_pages(&regions) {
            let block = self.allocate_contiguous_pageblocks(each as u32, &mut time);
            let block = block.ok_or(at.no_frames_error(order))?;
            for (at, block) in regions.iter().zip(block..) {
                let owner = self.new_anonymous_owner(*at, 0)?;
                self.memory.change_frame_owner(FrameRun::of_pageblock(block), owner);
                self.split_multi_region_page(*at);
                self.copy_region_to(*at, block, true, &mut work)?;
            }
        }
        for part in regions {
            self.split_multi_region_page(part);
            self.space_mut(at.space)?.many_sizes = true;
            self.get_or_create_region(part)?.multi_region = Some(order);
        }
        Ok(self.result_of_promotion_work(time, &work))
    }

    /// Whether these regions are huge pages in neighbouring frames, aligned as one page must be.
    fn are_contiguous_huge_pages(&self, regions: &[RegionId]) -> bool {
        let block = |at: &RegionId| self.region(*at)?.huge;
        let first = regions.first().and_then(block);
        first.is_some_and(|first| {
            let mut all = regions.iter().zip(first..);
            first % regions.len() as u32 == 0 && all.all(|(at, there)| block(at) == Some(there))
        })
    }
}
