//! Compaction's two scanners (`mm/compaction.c` in outline): one looks upwards for pageblocks that can be
//! emptied, the other downwards for free frames to move their pages to.

use super::buddy::State;
use super::frames::first_of;
use super::parts::Parts;
use super::run_map::Run;
use super::{Content, MigrateType, Owner, PhysicalMemory};
use hawkeye_policy::{PAGES_PER_REGION, PageOrder};

/// Pages of a pageblock that are to move.
#[derive(Clone, Debug)]
pub(crate) struct Evacuation {
    pub(crate) block: u32,
    /// Runs of pages with their (packed) owners.
    pub(crate) pages: Vec<Run>,
}

/// What the scanners did on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scanned {
    /// Pageblocks looked at.
    pub(crate) blocks: u64,
}

impl PhysicalMemory {
    /// The next pageblock that can be emptied into free frames above it; `None` when the scanners have
    /// met: then they start again from the ends of memory.
    ///
    /// Linux tries to empty any movable pageblock it comes to. Here one is passed over when it holds
    /// something that can't be moved, or more than there is room for, so that no move is in vain.
    pub(crate) fn next_evacuation(&mut self, scanned: &mut Scanned) -> Option<Evacuation> {
        // Room above a pageblock is never more than it was above one before.
        let mut most = u64::MAX;
        while self.scanners.0 < self.scanners.1 {
            let block = self.scanners.0;
            self.scanners.0 += 1;
            scanned.blocks += 1;
            let Some(pages) = self.movable_pages(block) else {
                continue;
            };
            let needed: u64 = pages.iter().map(|run| u64::from(run.count)).sum();
            if needed > most {
                continue;
            }
            let room = self.room_above(block, needed);
            if room >= needed {
                return Some(Evacuation { block, pages });
            }
            most = room;
        }
        self.scanners = (0, self.blocks.len() as u32);
        None
    }

    /// Free frames in the highest pageblocks that are neither free as a whole nor under the other
    /// scanner: where one page of an evacuated block may go.
    pub(crate) fn next_target(&mut self, scanned: &mut Scanned) -> Option<(u32, u16)> {
        while self.scanners.1 > self.scanners.0 {
            let block = self.scanners.1 - 1;
            if let Some(free) = self.target_frames(block) {
                let (first, count) = free.free().next_run(0)?;
                return Some((first_of(block) + u32::from(first), count));
            }
            scanned.blocks += 1;
            self.scanners.1 = block;
        }
        None
    }

    /// A naturally aligned free block of this size in the highest pageblock that has one, of those that
    /// [`next_target`](Self::next_target) may come to: where a folio of an evacuated block may go as a whole.
    pub(crate) fn room_for(&self, order: PageOrder) -> Option<u32> {
        let targets = (self.scanners.0..self.scanners.1).rev();
        targets.into_iter().find_map(|block| {
            let free = self.target_frames(block)?.free();
            let first = free.whole_blocks(order.number()).next(0)?;
            Some(first_of(block) + u32::from(first))
        })
    }

    fn target_frames(&self, block: u32) -> Option<&Parts> {
        let movable = self.blocks.get(block as usize)?.migrate == MigrateType::Movable;
        self.parts(block)
            .filter(|p| movable && !p.free().is_empty())
    }

    /// All that a pageblock holds, if all of it can move and there are free frames in it.
    fn movable_pages(&self, block: u32) -> Option<Vec<Run>> {
        let State::Parts(parts) = &self.blocks.get(block as usize)?.state else {
            return None;
        };
        let moves = |run: Run| Owner::unpack(run.value).is_movable();
        (!parts.free().is_empty() && parts.owners().iter().all(moves))
            .then(|| parts.owners().iter().collect())
    }

    /// Free frames above a pageblock that pages can be moved to; counted no further than `enough`.
    fn room_above(&self, block: u32, enough: u64) -> u64 {
        let mut room = 0;
        for target in (block + 1..self.scanners.1).rev() {
            let free = self.target_frames(target).map(|parts| parts.free().count());
            room += free.map_or(0, u64::from);
            if room >= enough {
                break;
            }
        }
        room
    }

    /// Whether a huge page of any content is free.
    pub(crate) fn has_huge(&self) -> bool {
        let frames = Content::BOTH.map(|content| self.free_huge_frames(content));
        frames.iter().any(|frames| *frames > 0)
    }

    /// Free frames outside of free huge pages: what a huge page could be made of.
    pub(crate) fn scattered_frames(&self) -> u64 {
        let huge: u64 = Content::BOTH.map(|c| self.free_huge_frames(c)).iter().sum();
        self.free_frames() - huge * u64::from(PAGES_PER_REGION)
    }
}
