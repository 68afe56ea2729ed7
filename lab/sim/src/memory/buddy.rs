//! The buddy system: free lists by content and order.

mod free_lists;

use super::ascending_run_map::AscendingRun;
use super::frame_run::{
    FrameRun, first_frame_of_pageblock, offset_in_pageblock, pageblock_of_frame,
};
use super::partial_pageblock::{FreeBlock, PartialPageblock, aligned_blocks};
use super::{FrameContent, FrameContentChange, FrameOwner, HUGE_ORDER, ORDERS, PART_ORDERS};
use crate::page_bits::PageBits;
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION};
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
pub(super) enum PageblockState {
    /// Free as a whole, alone (order 9) or together with its buddy (10), and its zeroed frames.
    Free {
        order: u8,
        zeroes: PageBits,
    },
    /// Allocated as one; the packed owner of its first frame.
    Owned(u64),
    Parts(Box<PartialPageblock>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct FreeBlockList {
    /// Pageblocks that hold (or, from order 9 on, begin) such a block.
    pub(super) blocks: BTreeSet<u32>,
    pub(super) count: u64,
}

/// The frames of a machine.
#[derive(Clone, Debug)]
pub struct PhysicalMemory {
    pub(super) blocks: Vec<PageblockState>,
    pub(super) lists: [Vec<FreeBlockList>; 2],
    free: u64,
    pub(super) zeroed: u64,
    /// Positions of compaction's scanners, in pageblocks.
    pub(super) scanners: (u32, u32),
    /// What happened to frames, if it is recorded.
    pub(super) touches: Option<Vec<FrameContentChange>>,
}

#[derive(Clone, Copy, Debug)]
struct PickedFreeBlock {
    block: u32,
    order: u8,
    content: FrameContent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllocatedFrames {
    pub(crate) frames: FrameRun,
    /// Those of them not known to be zero.
    pub(crate) dirty: u32,
}

impl PhysicalMemory {
    /// Memory of `bytes`, rounded down to whole pageblocks of 2 MiB. All of it is free and not
    /// known to be zero, as after boot. At least one pageblock, at most 4 TiB.
    pub fn new(bytes: u64) -> Self {
        let most = u64::from(u32::MAX / 4 / u32::from(PAGES_PER_REGION));
        let blocks = (bytes / HUGE_PAGE_BYTES).clamp(1, most) as u32;
        let orders = vec![FreeBlockList::default(); usize::from(ORDERS)];
        let frames = u64::from(blocks) * u64::from(PAGES_PER_REGION);
        let mut memory = Self {
            blocks: vec![PageblockState::Owned(0); blocks as usize],
            lists: [orders.clone(), orders],
            free: 0,
            zeroed: 0,
            scanners: (0, blocks),
            touches: None,
        };
        memory.free(FrameRun::new(0, frames as u32));
        memory
    }

    /// All frames.
    pub fn count_all_frames(&self) -> u64 {
        self.blocks.len() as u64 * u64::from(PAGES_PER_REGION)
    }

    /// Free frames.
    pub fn count_free_frames(&self) -> u64 {
        self.free
    }

    /// Free frames known to be zero.
    pub fn count_zeroed_frames(&self) -> u64 {
        self.zeroed
    }

    /// Free blocks of one kind.
    pub fn count_free_blocks(&self, content: FrameContent, order: u8) -> u64 {
        let list = self.lists[content.index()].get(usize::from(order));
        list.map_or(0, |list| list.count)
    }

    /// Huge pages of this content that are available at once.
    pub fn count_free_huge_frames(&self, content: FrameContent) -> u64 {
        self.count_free_blocks(content, HUGE_ORDER)
            + 2 * self.count_free_blocks(content, HUGE_ORDER + 1)
    }

    /// 2^order neighbouring frames, aligned, of the preferred content if possible; `None` if none.
    pub(crate) fn allocate(
        &mut self,
        order: u8,
        prefer: FrameContent,
        owner: FrameOwner,
    ) -> Option<AllocatedFrames> {
        let pick = self.pick_free_block(order, prefer)?;
        if order < HUGE_ORDER {
            let part = self.prepare_picked_block(pick)?;
            return Some(self.take_from_free_block(
                pick.block,
                part,
                part.offset,
                1 << order,
                owner,
            ));
        }
        let blocks = 1 << (order - HUGE_ORDER);
        self.remove_free_pageblock(pick.block);
        if pick.order > order {
            self.add_free_pageblock(pick.block + 1, HUGE_ORDER);
        }
        let mut dirty = 0;
        for block in pick.block..pick.block + blocks {
            let zero = u32::from(self.zeroed_frame_bits_in(block).count());
            dirty += u32::from(PAGES_PER_REGION) - zero;
            self.zeroed -= u64::from(zero);
            let owner = owner.pack() + u64::from(first_frame_of_pageblock(block - pick.block));
            self.blocks[block as usize] = PageblockState::Owned(owner);
        }
        let frames = FrameRun::new(first_frame_of_pageblock(pick.block), 1 << order);
        self.free -= u64::from(frames.count);
        self.record_content_change(frames, FrameContent::Dirty);
        Some(AllocatedFrames { frames, dirty })
    }

    /// Neighbouring single frames, as many as successive single allocations would get, at most
    /// `most` (1-512), all of one content.
    pub(crate) fn allocate_frame_run(
        &mut self,
        most: u16,
        prefer: FrameContent,
        owner: FrameOwner,
    ) -> Option<AllocatedFrames> {
        let pick = self.pick_free_block(0, prefer)?;
        // Single allocations would not use up pieces of different content one after the other.
        let pair_differs = pick.order > HUGE_ORDER && pick.content == FrameContent::Dirty && {
            let zeroes =
                self.zeroed_frame_bits_in(pick.block).or(self.zeroed_frame_bits_in(pick.block + 1));
            !zeroes.is_empty()
        };
        let part = self.prepare_picked_block(pick)?;
        let single = pair_differs || !self.partial_pageblock(pick.block)?.has_uniform_content(part);
        let most = if single { 1 } else { most };
        let count = most.min(1 << part.order);
        Some(self.take_from_free_block(pick.block, part, part.offset, count, owner))
    }

    /// Allocates exactly this frame, if it is free, and neighbours above it that are in the same
    /// free block of the buddy system; at most `most` frames (1 or more).
    pub(crate) fn allocate_at(
        &mut self,
        frame: u32,
        most: u16,
        owner: FrameOwner,
    ) -> Option<AllocatedFrames> {
        let (block, offset) = (pageblock_of_frame(frame), offset_in_pageblock(frame));
        let part = match self.blocks.get(block as usize)? {
            PageblockState::Free { order, .. } => self.prepare_picked_block(PickedFreeBlock {
                block,
                order: *order,
                content: FrameContent::Dirty,
            })?,
            PageblockState::Parts(parts) => parts.free_block_with_frame(offset)?,
            PageblockState::Owned(_) => return None,
        };
        let count = most.min(part.offset + (1 << part.order) - offset);
        Some(self.take_from_free_block(block, part, offset, count, owner))
    }

    /// Gives frames back; they are dirty. All of them must have an owner.
    pub(crate) fn free(&mut self, frames: FrameRun) {
        self.free += u64::from(frames.count);
        for (block, first, count) in frames.split_by_pageblock() {
            if count == PAGES_PER_REGION {
                self.set_free(block, PageBits::EMPTY);
                continue;
            }
            self.get_or_create_partial_pageblock(block).free_owned_frames(first, count);
            for (offset, order) in aligned_blocks(first, count) {
                self.merge_free_frames(block, offset, order);
            }
        }
    }

    /// The owner of a frame; `None` for a free one.
    pub(crate) fn owner(&self, frame: u32) -> Option<FrameOwner> {
        let offset = offset_in_pageblock(frame);
        let packed = match self.blocks.get(pageblock_of_frame(frame) as usize)? {
            PageblockState::Free { .. } => return None,
            PageblockState::Owned(owner) => owner + u64::from(offset),
            PageblockState::Parts(parts) => parts.owners.get(offset)?,
        };
        Some(FrameOwner::unpack(packed))
    }

    /// The owners of a pageblock's frames: runs of frames with their (packed) owners.
    pub(crate) fn owner_runs_in_pageblock(&self, block: u32) -> impl Iterator<Item = AscendingRun> {
        let (whole, parts) = match self.blocks.get(block as usize) {
            Some(PageblockState::Owned(owner)) => (Some(*owner), None),
            Some(PageblockState::Parts(parts)) => (None, Some(parts.owners.iter())),
            Some(PageblockState::Free { .. }) | None => (None, None),
        };
        let whole = whole.map(|value| AscendingRun::new(0, PAGES_PER_REGION, value));
        whole.into_iter().chain(parts.into_iter().flatten())
    }

    /// Whether these frames have this owner and the owners that follow it, one a frame.
    pub(crate) fn owns_run(&self, frames: FrameRun, owner: FrameOwner) -> bool {
        let mut expected = owner.pack();
        frames.split_by_pageblock().all(|(block, first, count)| {
            let run = AscendingRun::new(first, count, expected);
            expected += u64::from(count);
            match self.blocks.get(block as usize) {
                Some(PageblockState::Owned(owner)) => owner + u64::from(first) == run.value,
                Some(PageblockState::Parts(parts)) => {
                    parts.owners.runs_within(first, count).eq([run])
                }
                Some(PageblockState::Free { .. }) | None => false,
            }
        })
    }

    pub(crate) fn change_frame_owner(&mut self, frames: FrameRun, owner: FrameOwner) {
        let mut owner = owner.pack();
        for (block, first, count) in frames.split_by_pageblock() {
            if count == PAGES_PER_REGION {
                self.blocks[block as usize] = PageblockState::Owned(owner);
            } else {
                self.get_or_create_partial_pageblock(block).change_frame_owner(first, count, owner);
            }
            owner += u64::from(count);
        }
    }

    fn pick_free_block(&self, order: u8, prefer: FrameContent) -> Option<PickedFreeBlock> {
        [prefer, prefer.opposite()].into_iter().find_map(|content| {
            let lists = self.lists[content.index()].iter().zip(0..);
            let mut larger = lists.skip(order.into());
            let (list, order) = larger.find(|(list, _)| list.count > 0)?;
            Some(PickedFreeBlock { block: *list.blocks.first()?, order, content })
        })
    }

    /// The picked free block. A whole pageblock is put in parts for it.
    fn prepare_picked_block(&mut self, pick: PickedFreeBlock) -> Option<FreeBlock> {
        if pick.order < HUGE_ORDER {
            return self.partial_pageblock(pick.block)?.first_free_block(pick.order, pick.content);
        }
        // The pick may be either block of a pair.
        let first = pick.block & !u32::from(pick.order > HUGE_ORDER);
        self.remove_free_pageblock(first);
        if pick.order > HUGE_ORDER {
            self.add_free_pageblock(pick.block ^ 1, HUGE_ORDER);
        }
        let zero = self.zeroed_frame_bits_in(pick.block);
        let parts = PartialPageblock::all_free(zero);
        self.blocks[pick.block as usize] = PageblockState::Parts(Box::new(parts));
        Some(FreeBlock {
            offset: 0,
            order: HUGE_ORDER,
            content: FrameContent::zeroed_if(zero.is_full()),
        })
    }

    /// Takes some frames out of a free block, and puts the rest back in pieces.
    fn take_from_free_block(
        &mut self,
        block: u32,
        part: FreeBlock,
        first: u16,
        count: u16,
        owner: FrameOwner,
    ) -> AllocatedFrames {
        if part.order < HUGE_ORDER {
            self.remove_free_part(block, part);
        }
        let parts = self.get_or_create_partial_pageblock(block);
        let zero = PageBits::range(first, count).and(parts.zero).count();
        parts.assign_free_frames(first, count, owner.pack());
        let end = part.offset + (1 << part.order);
        let rest = [(part.offset, first - part.offset), (first + count, end - first - count)];
        for (from, frames) in rest {
            for (offset, order) in aligned_blocks(from, frames) {
                self.add_free_part(block, offset, order);
            }
        }
        self.free -= u64::from(count);
        self.zeroed -= u64::from(zero);
        let frames =
            FrameRun::new(first_frame_of_pageblock(block) + u32::from(first), count.into());
        self.record_content_change(frames, FrameContent::Dirty);
        AllocatedFrames { frames, dirty: u32::from(count - zero) }
    }

    /// Merges free frames with their buddies, as far as these are free.
    fn merge_free_frames(&mut self, block: u32, mut offset: u16, mut order: u8) {
        while order < HUGE_ORDER {
            let buddy = self
                .get_or_create_partial_pageblock(block)
                .free_block_at(order, offset ^ (1 << order));
            let Some(buddy) = buddy else {
                break;
            };
            self.remove_free_part(block, buddy);
            offset = offset.min(buddy.offset);
            order += 1;
        }
        if order < HUGE_ORDER {
            self.add_free_part(block, offset, order);
        } else {
            let zero = self.get_or_create_partial_pageblock(block).zero;
            self.set_free(block, zero);
        }
    }

    /// Makes a pageblock without heads free as a whole.
    fn set_free(&mut self, block: u32, zero: PageBits) {
        if let PageblockState::Parts(parts) = &self.blocks[block as usize] {
            debug_assert!(FrameContent::BOTH.iter().all(|c| {
                (0..PART_ORDERS).all(|o| parts.head_bits_of_free_blocks(o, *c).is_empty())
            }));
        }
        self.blocks[block as usize] = PageblockState::Free { order: HUGE_ORDER, zeroes: zero };
        let buddy = block ^ 1;
        let other = self.blocks.get(buddy as usize);
        if matches!(other, Some(PageblockState::Free { order, .. }) if *order == HUGE_ORDER) {
            self.remove_free_pageblock(buddy);
            self.add_free_pageblock(block & !1, HUGE_ORDER + 1);
        } else {
            self.add_free_pageblock(block, HUGE_ORDER);
        }
    }
}

#[cfg(test)]
mod tests;
