//! A pageblock that is neither free nor allocated as a whole: its free frames, their free blocks of
//! the buddy system, and the owners of the other frames.

use super::ascending_run_map::{AscendingRun, AscendingRunMap};
use super::{FrameContent, PART_ORDERS};
use crate::page_bits::PageBits;
use hawkeye_policy::PAGES_PER_REGION;

#[derive(Clone, Debug)]
pub(crate) struct PartialPageblock {
    /// First frames of free blocks, by order.
    heads: [PageBits; PART_ORDERS as usize],
    pub(super) free: PageBits,
    /// Those of them that are known to be zero.
    pub(super) zero: PageBits,
    /// Owners of the other frames, packed.
    pub(super) owners: AscendingRunMap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeBlock {
    /// In frames from the pageblock's start.
    pub(crate) offset: u16,
    pub(crate) order: u8,
    pub(crate) content: FrameContent,
}

impl PartialPageblock {
    /// A pageblock that is all free, with no heads yet; `zero` are its zeroed frames.
    pub(crate) fn all_free(zero: PageBits) -> Self {
        Self {
            heads: [PageBits::EMPTY; PART_ORDERS as usize],
            free: PageBits::FULL,
            zero,
            owners: AscendingRunMap::default(),
        }
    }

    /// A pageblock that was allocated as one.
    pub(crate) fn all_owned(owner: u64) -> Self {
        Self {
            free: PageBits::EMPTY,
            owners: AscendingRunMap::from_run(AscendingRun::new(0, PAGES_PER_REGION, owner)),
            ..Self::all_free(PageBits::EMPTY)
        }
    }

    pub(crate) fn content_of_block(&self, offset: u16, order: u8) -> FrameContent {
        let frames = PageBits::range(offset, 1 << order);
        FrameContent::zeroed_if(frames.is_subset_of(self.zero))
    }

    /// Whether these frames are all zeroed or all dirty.
    pub(crate) fn has_uniform_content(&self, part: FreeBlock) -> bool {
        let frames = PageBits::range(part.offset, 1 << part.order);
        part.content == FrameContent::Zeroed || frames.and(self.zero).is_empty()
    }

    /// First frames of the free blocks of this order and content.
    pub(crate) fn head_bits_of_free_blocks(&self, order: u8, content: FrameContent) -> PageBits {
        let heads = self.heads[usize::from(order)];
        // Of most orders there are no blocks, and mostly they have one content.
        if heads.is_empty() || self.zero.is_empty() && content == FrameContent::Dirty {
            return heads;
        }
        let zeroed = heads.and(self.zero.fully_covered_blocks(order.into()));
        match content {
            FrameContent::Zeroed => zeroed,
            FrameContent::Dirty => heads.minus(zeroed),
        }
    }

    pub(crate) fn first_free_block(&self, order: u8, content: FrameContent) -> Option<FreeBlock> {
        let offset = self.head_bits_of_free_blocks(order, content).next_page(0)?;
        Some(FreeBlock { offset, order, content })
    }

    pub(crate) fn free_block_at(&self, order: u8, offset: u16) -> Option<FreeBlock> {
        let there = self.heads[usize::from(order)].contains(offset);
        there.then(|| FreeBlock { offset, order, content: self.content_of_block(offset, order) })
    }

    pub(crate) fn free_block_with_frame(&self, frame: u16) -> Option<FreeBlock> {
        (0..PART_ORDERS).find_map(|order| self.free_block_at(order, frame >> order << order))
    }

    /// The only free block that starts at a frame.
    pub(crate) fn unique_free_block_at(&self, frame: u16) -> Option<FreeBlock> {
        let aligned = (0..PART_ORDERS).filter(|order| frame.trailing_zeros() >= u32::from(*order));
        let mut parts = aligned.filter_map(|order| self.free_block_at(order, frame));
        parts.next().filter(|_| parts.next().is_none())
    }

    pub(crate) fn set_block_head(&mut self, part: FreeBlock, there: bool) {
        let heads = &mut self.heads[usize::from(part.order)];
        match there {
            true => heads.insert(part.offset),
            false => heads.remove(part.offset),
        }
    }

    pub(crate) fn assign_free_frames(&mut self, first: u16, count: u16, owner: u64) {
        let frames = PageBits::range(first, count);
        debug_assert!(frames.is_subset_of(self.free));
        self.free = self.free.minus(frames);
        self.zero = self.zero.minus(frames);
        self.owners.insert(AscendingRun::new(first, count, owner));
    }

    pub(crate) fn change_frame_owner(&mut self, first: u16, count: u16, owner: u64) {
        self.owners.remove(first, count);
        self.owners.insert(AscendingRun::new(first, count, owner));
    }

    pub(crate) fn free_owned_frames(&mut self, first: u16, count: u16) {
        let frames = PageBits::range(first, count);
        debug_assert!(frames.and(self.free).is_empty());
        self.free = self.free.or(frames);
        self.owners.remove(first, count);
    }

    pub(crate) fn mark_zeroed(&mut self, frames: PageBits) {
        debug_assert!(frames.is_subset_of(self.free));
        self.zero = self.zero.or(frames);
    }
}

/// Frames `first..first + count` of a pageblock as the largest aligned blocks.
pub(crate) fn aligned_blocks(first: u16, count: u16) -> impl Iterator<Item = (u16, u8)> {
    let end = first + count;
    let mut from = first;
    std::iter::from_fn(move || {
        let left = end - from;
        let fits = left.checked_ilog2()?;
        let order = from.trailing_zeros().min(fits) as u8;
        let piece = (from, order);
        from += 1 << order;
        Some(piece)
    })
}
