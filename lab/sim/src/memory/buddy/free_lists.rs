//! Puts free blocks on their lists and takes them off.

use super::{PageblockState, PhysicalMemory};
use crate::memory::partial_pageblock::{FreeBlock, PartialPageblock};
use crate::memory::{FrameContent, HUGE_ORDER};
use crate::page_bits::PageBits;

impl PhysicalMemory {
    pub(in crate::memory) fn zeroed_frame_bits_in(&self, block: u32) -> PageBits {
        match self.blocks.get(block as usize) {
            Some(PageblockState::Free { zeroes, .. }) => *zeroes,
            Some(PageblockState::Parts(parts)) => parts.zero,
            Some(PageblockState::Owned(_)) | None => PageBits::EMPTY,
        }
    }

    pub(in crate::memory) fn free_block_content(&self, block: u32, order: u8) -> FrameContent {
        let zeroed = self.zeroed_frame_bits_in(block).is_full();
        FrameContent::zeroed_if(
            zeroed && (order == HUGE_ORDER || self.zeroed_frame_bits_in(block + 1).is_full()),
        )
    }

    pub(in crate::memory) fn add_free_pageblock(&mut self, block: u32, order: u8) {
        let content = self.free_block_content(block, order);
        let last = block + u32::from(order > HUGE_ORDER);
        for member in block..=last {
            if let PageblockState::Free { order: of, .. } = &mut self.blocks[member as usize] {
                *of = order;
            }
        }
        let list = &mut self.lists[content.index()][usize::from(order)];
        list.count += 1;
        list.blocks.insert(block);
    }

    pub(in crate::memory) fn remove_free_pageblock(&mut self, block: u32) {
        let PageblockState::Free { order, .. } = self.blocks[block as usize] else {
            return;
        };
        let content = self.free_block_content(block, order);
        let list = &mut self.lists[content.index()][usize::from(order)];
        list.count -= 1;
        list.blocks.remove(&block);
    }

    pub(in crate::memory) fn add_free_part(&mut self, block: u32, offset: u16, order: u8) {
        let parts = self.get_or_create_partial_pageblock(block);
        let content = parts.content_of_block(offset, order);
        let part = FreeBlock { offset, order, content };
        // The tree is slow beside the rest: it changes with a pageblock's first and last part.
        let first = parts.head_bits_of_free_blocks(order, content).is_empty();
        parts.set_block_head(part, true);
        let list = &mut self.lists[content.index()][usize::from(order)];
        list.count += 1;
        if first {
            list.blocks.insert(block);
        }
    }

    pub(in crate::memory) fn remove_free_part(&mut self, block: u32, part: FreeBlock) {
        let parts = self.get_or_create_partial_pageblock(block);
        parts.set_block_head(part, false);
        let last = parts.head_bits_of_free_blocks(part.order, part.content).is_empty();
        let list = &mut self.lists[part.content.index()][usize::from(part.order)];
        list.count -= 1;
        if last {
            list.blocks.remove(&block);
        }
    }

    pub(in crate::memory) fn partial_pageblock(&self, block: u32) -> Option<&PartialPageblock> {
        match self.blocks.get(block as usize)? {
            PageblockState::Parts(parts) => Some(parts),
            PageblockState::Free { .. } | PageblockState::Owned(_) => None,
        }
    }

    /// A pageblock in parts. One that was allocated as a whole is put in parts.
    pub(in crate::memory) fn get_or_create_partial_pageblock(
        &mut self,
        block: u32,
    ) -> &mut PartialPageblock {
        let state = &mut self.blocks[block as usize];
        if let PageblockState::Owned(owner) = *state {
            *state = PageblockState::Parts(Box::new(PartialPageblock::all_owned(owner)));
        }
        match state {
            PageblockState::Parts(parts) => parts,
            PageblockState::Free { .. } | PageblockState::Owned(_) => {
                unreachable!("a free pageblock is broken up before its frames are taken")
            }
        }
    }
}
