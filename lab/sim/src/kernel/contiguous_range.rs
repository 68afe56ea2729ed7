//! Many pageblocks in a row, for a page larger than the buddy system's blocks (`alloc_contig_range`
//! of `mm/page_alloc.c`). The kernel chooses a range, stops allocation from it, and moves its pages
//! out.

use super::address_space::RegionId;
use super::kernel_costs::time_of_operations;
use super::page_moves::PagesToMoveTogether;
use super::{SimulatedKernel, SpaceId};
use crate::memory::{
    AscendingRun, FrameContent, FrameOwner, FrameRun, HUGE_ORDER, MovablePages, PhysicalMemory,
};
use hawkeye_policy::PAGES_PER_REGION;
use std::ops::Range;
use std::time::Duration;

impl SimulatedKernel {
    /// Takes `count` pageblocks (a power of two), naturally aligned; returns the first. The kernel
    /// owns all of them until they are handed over. Adds the time that it took to `time`.
    pub(super) fn allocate_contiguous_pageblocks(
        &mut self,
        count: u32,
        time: &mut Duration,
    ) -> Option<u32> {
        let (range, pages) = self.cheapest_pageblocks_to_empty(count, time)?;
        let inside = u64::from(count) * u64::from(PAGES_PER_REGION) - pages;
        let outside = self.memory.count_free_frames().saturating_sub(inside);
        if outside < pages + self.reclaim_state.watermarks.low {
            return None;
        }
        for block in range.clone() {
            self.memory.isolate_pageblock(block);
        }
        let mut moved = 0;
        let emptied = range.clone().all(|block| {
            let runs: Vec<AscendingRun> = self.memory.owner_runs_in_pageblock(block).collect();
            let others = runs.into_iter().filter(|run| !is_kernel_owned_run(*run));
            others.into_iter().all(|run| self.move_run_anywhere(block, run, &mut moved))
        });
        *time += time_of_operations(moved, self.costs.migrate_base_ns + self.costs.copy_base_ns);
        if emptied {
            return Some(range.start);
        }
        for block in range {
            let runs: Vec<AscendingRun> = self.memory.owner_runs_in_pageblock(block).collect();
            for run in runs.into_iter().filter(|run| is_kernel_owned_run(*run)) {
                self.memory.free(FrameRun::from_pageblock_offset(block, run.first, run.count));
            }
        }
        None
    }

    /// The range from which the fewest pages have to move, and the number of these pages. Of equal
    /// ranges it is the lowest. Linux takes the first range that may do.
    fn cheapest_pageblocks_to_empty(
        &self,
        count: u32,
        time: &mut Duration,
    ) -> Option<(Range<u32>, u64)> {
        let mut best: Option<(Range<u32>, u64)> = None;
        let mut looked = 0;
        for start in (0..self.memory.count_pageblocks()).step_by(count as usize) {
            let range = start..start.saturating_add(count);
            let most = best.as_ref().map_or(u64::MAX, |(_, pages)| *pages);
            if range.end > self.memory.count_pageblocks() || most == 0 {
                break;
            }
            let mut pages = 0;
            let fits = range.clone().all(|block| {
                looked += 1;
                let held = self.count_pages_if_all_movable(block);
                pages += held.unwrap_or(0);
                held.is_some() && pages < most
            });
            if fits {
                best = Some((range, pages));
            }
        }
        *time += time_of_operations(looked, self.costs.scan_block_ns);
        best
    }

    /// Pages of a pageblock in use, if all of them can move. Pages larger than it stay.
    fn count_pages_if_all_movable(&self, block: u32) -> Option<u64> {
        match self.memory.movable_pages_of_pageblock(block)? {
            MovablePages::Pages(pages) => Some(pages.into()),
            MovablePages::Whole(FrameOwner::Anonymous { space, page }) => {
                let region = page / u64::from(PAGES_PER_REGION);
                let found = self.region(RegionId { space: SpaceId(space), region });
                let is_part = found.is_some_and(|found| found.multi_region.is_some());
                (!is_part).then_some(PAGES_PER_REGION.into())
            }
            MovablePages::Whole(FrameOwner::File { .. }) => Some(PAGES_PER_REGION.into()),
            MovablePages::Whole(_) => None,
        }
    }

    /// Moves a run of pages to free frames anywhere. A huge page or a folio moves as a whole if
    /// there is a frame for it. Returns whether there was room for all.
    fn move_run_anywhere(&mut self, block: u32, run: AscendingRun, moved: &mut u64) -> bool {
        let allocate = |memory: &mut PhysicalMemory, (count, order): PagesToMoveTogether, owner| {
            let order = match order {
                Some(order) => Some(order.log2_pages() as u8),
                None => (count == PAGES_PER_REGION).then_some(HUGE_ORDER),
            };
            let whole = order.and_then(|order| memory.allocate(order, FrameContent::Dirty, owner));
            whole.or_else(|| memory.allocate_frame_run(count, FrameContent::Dirty, owner))
        };
        let done = self.move_page_run(block, run, allocate, PhysicalMemory::isolate_emptied_frames);
        *moved += u64::from(done);
        done == run.count
    }
}

fn is_kernel_owned_run(run: AscendingRun) -> bool {
    matches!(FrameOwner::unpack(run.value), FrameOwner::Kernel { .. })
}
