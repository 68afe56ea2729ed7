//! Compaction's two scanners (`mm/compaction.c` in outline). One looks upwards for pageblocks that
//! can be emptied, the other downwards for free frames to move their pages to.

use super::ascending_run_map::AscendingRun;
use super::frame_run::first_frame_of_pageblock;
use super::partial_pageblock::PartialPageblock;
use super::{FrameContent, FrameOwner, PhysicalMemory};
use hawkeye_policy::{PAGES_PER_REGION, PageOrder};

#[derive(Clone, Debug)]
pub(crate) struct PageblockEvacuation {
    pub(crate) block: u32,
    /// Runs of pages with their (packed) owners.
    pub(crate) pages: Vec<AscendingRun>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanCount {
    pub(crate) blocks: u64,
}

impl PhysicalMemory {
    /// The next pageblock that can be emptied into free frames above it. `None` when the scanners
    /// have met: then they start again from the ends of memory.
    ///
    /// Linux tries to empty any movable pageblock that it reaches. Here a pageblock is skipped if
    /// it holds something that can't be moved, or more than there is room for. No move is therefore
    /// in vain.
    pub(crate) fn next_evacuation(
        &mut self,
        scanned: &mut ScanCount,
    ) -> Option<PageblockEvacuation> {
        // The room above a pageblock is never more than the room above an earlier one.
        let mut most = u64::MAX;
        while self.scanners.0 < self.scanners.1 {
            let block = self.scanners.0;
            self.scanners.0 += 1;
            scanned.blocks += 1;
            let Some(pages) = self.page_runs_if_all_movable(block) else {
                continue;
            };
            let needed: u64 = pages.iter().map(|run| u64::from(run.count)).sum();
            if needed > most {
                continue;
            }
            let room = self.count_free_frames_above(block, needed);
            if room >= needed {
                return Some(PageblockEvacuation { block, pages });
            }
            most = room;
        }
        self.scanners = (0, self.blocks.len() as u32);
        None
    }

    /// Free frames in the highest pageblocks that are neither free as a whole nor under the other
    /// scanner. A single page of an evacuated block may move there.
    pub(crate) fn next_target_frame_run(&mut self, scanned: &mut ScanCount) -> Option<(u32, u16)> {
        while self.scanners.1 > self.scanners.0 {
            let block = self.scanners.1 - 1;
            if let Some(free) = self.partial_block_with_free_frames(block) {
                let (first, count) = free.free.next_run(0)?;
                return Some((first_frame_of_pageblock(block) + u32::from(first), count));
            }
            scanned.blocks += 1;
            self.scanners.1 = block;
        }
        None
    }

    /// The aligned free block of this size in the highest pageblock that
    /// [`next_target_frame_run`](Self::next_target_frame_run) may reach. A whole folio may move
    /// there.
    pub(crate) fn highest_free_target_block(&self, order: PageOrder) -> Option<u32> {
        let targets = (self.scanners.0..self.scanners.1).rev();
        targets.into_iter().find_map(|block| {
            let free = self.partial_block_with_free_frames(block)?.free;
            let first = free.fully_covered_blocks(order.log2_pages()).next_page(0)?;
            Some(first_frame_of_pageblock(block) + u32::from(first))
        })
    }

    fn partial_block_with_free_frames(&self, block: u32) -> Option<&PartialPageblock> {
        self.partial_pageblock(block).filter(|parts| !parts.free.is_empty())
    }

    /// All that a pageblock holds, if all of it can move and there are free frames in it.
    fn page_runs_if_all_movable(&self, block: u32) -> Option<Vec<AscendingRun>> {
        let parts = self.partial_block_with_free_frames(block)?;
        let moves = |run: AscendingRun| FrameOwner::unpack(run.value).is_movable();
        let all_move = parts.owners.iter().all(moves);
        all_move.then(|| parts.owners.iter().collect())
    }

    /// Free frames above a pageblock to which pages can be moved; counted up to `enough`.
    fn count_free_frames_above(&self, block: u32, enough: u64) -> u64 {
        let mut room = 0;
        for target in (block + 1..self.scanners.1).rev() {
            let free = self.partial_block_with_free_frames(target).map(|parts| parts.free.count());
            room += free.map_or(0, u64::from);
            if room >= enough {
                break;
            }
        }
        room
    }

    pub(crate) fn has_free_huge_frame(&self) -> bool {
        let frames = FrameContent::BOTH.map(|content| self.count_free_huge_frames(content));
        frames.iter().any(|frames| *frames > 0)
    }

    /// Free frames outside of free huge pages, from which compaction could make a huge page.
    pub(crate) fn count_scattered_free_frames(&self) -> u64 {
        let huge: u64 = FrameContent::BOTH.map(|c| self.count_free_huge_frames(c)).iter().sum();
        self.count_free_frames() - huge * u64::from(PAGES_PER_REGION)
    }
}
