//! Moves pages to other frames, and updates their owners. Compaction does so to free a huge page.

use super::costs::times;
use super::space::{RegionId, cut_at_regions, first_page};
use super::{SimulatedKernel, SpaceId};
use crate::bits::PageBits;
use crate::memory::{
    AllocatedFrames, FrameContent, FrameOwner, FrameRun, HUGE_ORDER, PageblockUse, PhysicalMemory,
    ScanCount, ValueRun, block_of,
};
use hawkeye_policy::{PAGES_PER_REGION, PageOrder};
use std::ops::Range;
use std::time::Duration;

/// Pages that are to move together: their number, and the order if they are a whole folio.
pub(super) type PagesToMoveTogether = (u16, Option<PageOrder>);

impl SimulatedKernel {
    /// Moves a run of pages (with their packed owner) out of a pageblock, until `allocate` has no
    /// room for the next. `leave` gets their old frames. Returns the number of pages.
    pub(super) fn move_run(
        &mut self,
        block: u32,
        run: ValueRun,
        mut allocate: impl FnMut(
            &mut PhysicalMemory,
            PagesToMoveTogether,
            FrameOwner,
        ) -> Option<AllocatedFrames>,
        leave: fn(&mut PhysicalMemory, FrameRun),
    ) -> u16 {
        let mut moved = 0;
        while moved < run.count {
            let rest = run.after(moved);
            let owner = FrameOwner::unpack(rest.value);
            let together = self.next_unit_to_move(block, rest);
            let Some(got) = allocate(&mut self.memory, together, owner) else {
                break;
            };
            let from = FrameRun::within_pageblock(block, rest.first, got.frames.count as u16);
            self.update_moved_owner(owner, from, got.frames.first);
            leave(&mut self.memory, from);
            moved += from.count as u16;
        }
        moved
    }

    /// The first part of a run of frames of a pageblock (with its packed owner) that should stay
    /// together: a folio, or all before the next one.
    fn next_unit_to_move(&self, block: u32, run: ValueRun) -> PagesToMoveTogether {
        let FrameOwner::Anonymous { space, page } = FrameOwner::unpack(run.value) else {
            return (run.count, None);
        };
        let frame = FrameRun::within_pageblock(block, run.first, run.count).first;
        match self.next_folio(SpaceId(space), page, frame, run.count) {
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
    fn next_folio(
        &self,
        space: SpaceId,
        page: u64,
        frame: u32,
        count: u16,
    ) -> Option<(u16, PageOrder)> {
        let table = &self.spaces.get(&space)?.table;
        cut_at_regions(page..page + u64::from(count)).find_map(|(region, first, count)| {
            let found = table.get(region).filter(|r| !r.folios.is_empty())?;
            let passed = first_page(region) + u64::from(first) - page;
            let had = |place: u16| frame + passed as u32 + u32::from(place - first);
            let here = found.folios.all().and(PageBits::range(first, count));
            let mut there = (first..first + count).filter(|place| here.contains(*place));
            let place = there.find(|place| found.frame(*place) == Some(had(*place)))?;
            let order = found.folios.order_at(place)?;
            Some((passed as u16 + place - first, order))
        })
    }

    /// Updates the owner after its pages moved from some frames to others, from `to` on.
    fn update_moved_owner(&mut self, owner: FrameOwner, from: FrameRun, to: u32) {
        match owner {
            FrameOwner::Anonymous { space, page } => {
                self.remap_moved_pages(SpaceId(space), page, from, to)
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
        for (region, first, count) in cut_at_regions(page..page + u64::from(from.count)) {
            let at = RegionId { space, region };
            let passed = (at.page(first) - page) as u32;
            let piece = FrameRun::new(from.first + passed, count.into());
            self.remap_in_region(at, first, piece, to + passed);
        }
    }

    fn remap_in_region(&mut self, at: RegionId, first: u16, from: FrameRun, to: u32) {
        let found = self.region(at);
        let huge = found.is_some_and(|f| f.huge.is_some() && f.frame(first) == Some(from.first));
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
            found.huge = Some(block_of(to));
            return;
        }
        if huge {
            found.split();
            space.huge -= 1;
            self.reports.remapped.record(at);
        }
        let had = |place: u16| u64::from(from.first) + u64::from(place - first);
        let runs = found.frames.runs_within(first, from.count as u16);
        let same: Vec<_> = runs.filter(|run| run.value == had(run.first)).collect();
        for run in &same {
            found.frames.remove(run.first, run.count);
            found.frames.insert(ValueRun {
                value: run.value - u64::from(from.first) + u64::from(to),
                ..*run
            });
        }
        found.end_scattered_folios();
        if !same.is_empty() && self.reports.remapped.moves {
            self.reports.remapped.record(at);
        }
    }
}

/// Deferral of compaction for a while after failures (`defer_compaction`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CompactionDeferral {
    /// Attempts that are still to be skipped.
    skip: u32,
    /// log2 of the attempts that are skipped after the next failure.
    shift: u32,
}

/// `COMPACT_MAX_DEFER_SHIFT`.
const MOST_SHIFT: u32 = 6;

impl SimulatedKernel {
    /// Tries to make a free huge page; adds the time that it took to `time`.
    pub(crate) fn compact(&mut self, time: &mut Duration) -> bool {
        if self.huge_frames.deferral.skip > 0 {
            self.huge_frames.deferral.skip -= 1;
            return false;
        }
        let mut scanned = ScanCount::default();
        let mut moved = 0;
        let mut made = false;
        // One full pass needs two scans: the scanners may be half-way when it starts.
        for _ in 0..2 {
            if let Some(evacuation) = self.memory.next_evacuation(&mut scanned) {
                for run in evacuation.pages {
                    moved += self.evacuate(evacuation.block, run, &mut scanned);
                }
                made = true;
                break;
            }
        }
        *time += times(scanned.blocks, self.costs.scan_block_ns);
        *time += times(moved, self.costs.migrate_base_ns + self.costs.copy_base_ns);
        if made {
            self.huge_frames.deferral = CompactionDeferral::default();
        } else {
            self.huge_frames.deferral.skip = 1 << self.huge_frames.deferral.shift;
            self.huge_frames.deferral.shift = (self.huge_frames.deferral.shift + 1).min(MOST_SHIFT);
        }
        made && self.memory.has_free_huge_frame()
    }

    /// Moves a run of pages out of a pageblock; returns the number of pages. Moves as many at a
    /// time as find room side by side, and whole folios where there is room for one.
    fn evacuate(&mut self, block: u32, run: ValueRun, scanned: &mut ScanCount) -> u64 {
        let allocate = |memory: &mut PhysicalMemory, (count, order): PagesToMoveTogether, owner| {
            let room = order.and_then(|order| memory.free_target_block(order));
            let room = room.map(|frame| (frame, count));
            let (target, room) = room.or_else(|| memory.next_target(scanned))?;
            memory.allocate_at(target, room.min(count), owner)
        };
        let moved = self.move_run(block, run, allocate, PhysicalMemory::free);
        moved.into()
    }
}

// Many pageblocks in a row, for a page larger than the buddy system's blocks (`alloc_contig_range`
// of `mm/page_alloc.c`). The kernel chooses a range, stops allocation from it, and moves its pages
// out.

impl SimulatedKernel {
    /// Takes `count` pageblocks (a power of two), naturally aligned; returns the first. The kernel
    /// owns all of them until they are handed over. Adds the time that it took to `time`.
    pub(super) fn contiguous_blocks(&mut self, count: u32, time: &mut Duration) -> Option<u32> {
        let (range, pages) = self.cheapest_range(count, time)?;
        let inside = u64::from(count) * u64::from(PAGES_PER_REGION) - pages;
        let outside = self.memory.free_frames().saturating_sub(inside);
        if outside < pages + self.reclaim_state.watermarks.low {
            return None;
        }
        for block in range.clone() {
            self.memory.isolate(block);
        }
        let mut moved = 0;
        let emptied = range.clone().all(|block| {
            let runs: Vec<ValueRun> = self.memory.owners_in(block).collect();
            let others = runs.into_iter().filter(|run| !is_isolated(*run));
            others
                .into_iter()
                .all(|run| self.move_run_anywhere(block, run, &mut moved))
        });
        *time += times(moved, self.costs.migrate_base_ns + self.costs.copy_base_ns);
        if emptied {
            return Some(range.start);
        }
        for block in range {
            let runs: Vec<ValueRun> = self.memory.owners_in(block).collect();
            for run in runs.into_iter().filter(|run| is_isolated(*run)) {
                self.memory
                    .free(FrameRun::within_pageblock(block, run.first, run.count));
            }
        }
        None
    }

    /// The range from which the fewest pages have to move, and the number of these pages. Of equal
    /// ranges it is the lowest. Linux takes the first range that may do.
    fn cheapest_range(&self, count: u32, time: &mut Duration) -> Option<(Range<u32>, u64)> {
        let mut best: Option<(Range<u32>, u64)> = None;
        let mut looked = 0;
        for start in (0..self.memory.blocks()).step_by(count as usize) {
            let range = start..start.saturating_add(count);
            let most = best.as_ref().map_or(u64::MAX, |(_, pages)| *pages);
            if range.end > self.memory.blocks() || most == 0 {
                break;
            }
            let mut pages = 0;
            let fits = range.clone().all(|block| {
                looked += 1;
                let held = self.count_movable_pages(block);
                pages += held.unwrap_or(0);
                held.is_some() && pages < most
            });
            if fits {
                best = Some((range, pages));
            }
        }
        *time += times(looked, self.costs.scan_block_ns);
        best
    }

    /// Pages of a pageblock in use, if all of them can move. Pages larger than it stay.
    fn count_movable_pages(&self, block: u32) -> Option<u64> {
        match self.memory.pageblock_use(block)? {
            PageblockUse::Pages(pages) => Some(pages.into()),
            PageblockUse::Whole(FrameOwner::Anonymous { space, page }) => {
                let region = page / u64::from(PAGES_PER_REGION);
                let found = self.region(RegionId {
                    space: SpaceId(space),
                    region,
                });
                let is_multi_region = found.is_some_and(|found| found.multi_region.is_some());
                (!is_multi_region).then_some(PAGES_PER_REGION.into())
            }
            PageblockUse::Whole(_) => None,
        }
    }

    /// Moves a run of pages to free frames anywhere. A huge page or a folio moves as a whole if
    /// there is a frame for it. Returns whether there was room for all.
    fn move_run_anywhere(&mut self, block: u32, run: ValueRun, moved: &mut u64) -> bool {
        let allocate = |memory: &mut PhysicalMemory, (count, order): PagesToMoveTogether, owner| {
            let order = match order {
                Some(order) => Some(order.number() as u8),
                None => (count == PAGES_PER_REGION).then_some(HUGE_ORDER),
            };
            let whole = order.and_then(|order| memory.allocate(order, FrameContent::Dirty, owner));
            whole.or_else(|| memory.allocate_run(count, FrameContent::Dirty, owner))
        };
        let done = self.move_run(block, run, allocate, PhysicalMemory::keep_isolated);
        *moved += u64::from(done);
        done == run.count
    }
}

fn is_isolated(run: ValueRun) -> bool {
    matches!(FrameOwner::unpack(run.value), FrameOwner::Kernel { .. })
}
