//! Moves pages to other frames, and updates their owners.

use super::address_space::{RegionId, first_page, split_at_region_boundaries};
use super::{SharedFileId, SimulatedKernel, SpaceId};
use crate::memory::{
    AllocatedFrames, AscendingRun, FrameOwner, FrameRun, PhysicalMemory, pageblock_of_frame,
};
use crate::page_bits::PageBits;
use hawkeye_policy::{PAGES_PER_REGION, PageOrder};

/// Pages that are to move together: their number, and the order if they are a whole folio.
pub(super) type PagesToMoveTogether = (u16, Option<PageOrder>);

impl SimulatedKernel {
    /// Moves a run of pages (with their packed owner) out of a pageblock, until `allocate` has no
    /// room for the next. `leave` gets their old frames. Returns the number of pages.
    pub(super) fn move_page_run(
        &mut self,
        block: u32,
        run: AscendingRun,
        mut allocate: impl FnMut(
            &mut PhysicalMemory,
            PagesToMoveTogether,
            FrameOwner,
        ) -> Option<AllocatedFrames>,
        leave: fn(&mut PhysicalMemory, FrameRun),
    ) -> u16 {
        let mut moved = 0;
        while moved < run.count {
            let rest = run.without_first_places(moved);
            let owner = FrameOwner::unpack(rest.value);
            let together = self.first_pages_to_move_together(block, rest);
            let Some(got) = allocate(&mut self.memory, together, owner) else {
                break;
            };
            let from = FrameRun::from_pageblock_offset(block, rest.first, got.frames.count as u16);
            self.update_moved_owner(owner, from, got.frames.first);
            leave(&mut self.memory, from);
            moved += from.count as u16;
        }
        moved
    }

    /// The first part of a run of frames of a pageblock (with its packed owner) that should stay
    /// together: a folio, or all before the next one.
    fn first_pages_to_move_together(&self, block: u32, run: AscendingRun) -> PagesToMoveTogether {
        let FrameOwner::Anonymous { space, page } = FrameOwner::unpack(run.value) else {
            return (run.count, None);
        };
        let frame = FrameRun::from_pageblock_offset(block, run.first, run.count).first;
        match self.next_folio_in_frames(SpaceId(space), page, frame, run.count) {
            None => (run.count, None),
            Some((0, order)) => {
                let whole = u64::from(run.count) >= order.pages();
                let count = run.count.min(order.pages() as u16);
                (count, whole.then_some(order))
            }
            Some((before, _)) => (before, None),
        }
    }

    /// The next folio of a space that starts in these frames: the pages before it, and its order.
    fn next_folio_in_frames(
        &self,
        space: SpaceId,
        page: u64,
        frame: u32,
        count: u16,
    ) -> Option<(u16, PageOrder)> {
        let table = &self.spaces.get(&space)?.table;
        split_at_region_boundaries(page..page + u64::from(count)).find_map(
            |(region, first, count)| {
                let found = table.get(region).filter(|r| !r.folios.is_empty())?;
                let passed = first_page(region) + u64::from(first) - page;
                let had = |place: u16| frame + passed as u32 + u32::from(place - first);
                let here = found.folios.all_pages().and(PageBits::range(first, count));
                let mut there = (first..first + count).filter(|place| here.contains(*place));
                let place = there.find(|place| found.frame_of_page(*place) == Some(had(*place)))?;
                let order = found.folios.order_at(place)?;
                Some((passed as u16 + place - first, order))
            },
        )
    }

    /// Updates the owner after its pages moved from some frames to others, from `to` on.
    fn update_moved_owner(&mut self, owner: FrameOwner, from: FrameRun, to: u32) {
        match owner {
            FrameOwner::Anonymous { space, page } => {
                self.remap_moved_pages(SpaceId(space), page, from, to)
            }
            FrameOwner::File { file, page } => {
                self.remap_moved_file_pages(SharedFileId(file), page, from, to)
            }
            FrameOwner::Cache { page } => {
                for (page, to) in (page..).zip(to..).take(from.count as usize) {
                    self.reclaim_state.cache.frames.insert(page, to);
                }
            }
            FrameOwner::Kernel { .. } | FrameOwner::Reserved { .. } => {}
        }
    }

    /// Updates the page table: pages from `page` on moved from these frames to those from `to` on.
    fn remap_moved_pages(&mut self, space: SpaceId, page: u64, from: FrameRun, to: u32) {
        for (region, first, count) in split_at_region_boundaries(page..page + u64::from(from.count))
        {
            let at = RegionId { space, region };
            let passed = (at.page_number(first) - page) as u32;
            let piece = FrameRun::new(from.first + passed, count.into());
            self.remap_in_region(at, first, piece, to + passed);
        }
    }

    fn remap_in_region(&mut self, at: RegionId, first: u16, from: FrameRun, to: u32) {
        let found = self.region(at);
        let huge =
            found.is_some_and(|f| f.huge.is_some() && f.frame_of_page(first) == Some(from.first));
        if huge {
            self.split_multi_region_page(at);
        }
        let Some(space) = self.spaces.get_mut(&at.space) else {
            return;
        };
        let Some(found) = space.table.get_mut(at.region) else {
            return;
        };
        if huge && from.count == u32::from(PAGES_PER_REGION) && to % from.count == 0 {
            found.huge = Some(pageblock_of_frame(to));
            return;
        }
        if huge {
            found.split_huge_page();
            space.huge -= 1;
            self.reports.remapped.record(at);
        }
        if found.move_to_frames(first, from, to) && self.reports.remapped.moves {
            self.reports.remapped.record(at);
        }
    }
}
