//! Zeroes free memory before it is allocated (paper, section 3.1).

use super::buddy::PageblockState;
use super::partial_pageblock::FreeBlock;
use super::{FrameContent, HUGE_ORDER, ORDERS, PhysicalMemory};
use crate::page_bits::PageBits;

/// The result of a round of zeroing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrezeroingResult {
    /// Frames that were zeroed.
    pub frames: u64,
    /// Whether no dirty free frame is left.
    pub all_done: bool,
}

impl PhysicalMemory {
    /// Zeroes up to `most` free frames. The largest free blocks come first, because they make huge
    /// pages. A block moves to the zeroed lists when all of it is zero.
    pub fn zero_free_frames(&mut self, most: u64) -> PrezeroingResult {
        let mut left = most;
        while left > 0 {
            let Some((block, order)) = self.largest_dirty_free_block() else {
                return PrezeroingResult { frames: most - left, all_done: true };
            };
            left -= if order >= HUGE_ORDER {
                self.zero_free_pageblock(block, order, left)
            } else {
                self.zero_free_block_in_pageblock(block, order, left)
            };
        }
        PrezeroingResult { frames: most, all_done: self.largest_dirty_free_block().is_none() }
    }

    fn largest_dirty_free_block(&self) -> Option<(u32, u8)> {
        let lists = &self.lists[FrameContent::Dirty.index()];
        let orders = (0..ORDERS).rev();
        orders.filter_map(|order| Some((*lists[usize::from(order)].blocks.first()?, order))).next()
    }

    fn zero_free_pageblock(&mut self, block: u32, order: u8, most: u64) -> u64 {
        self.remove_free_pageblock(block);
        let mut left = most;
        for member in block..=block + u32::from(order > HUGE_ORDER) {
            let before = self.zeroed_frame_bits_in(member);
            let dirty = PageBits::FULL.minus(before);
            let now = lowest_pages_of_set(dirty, left);
            left -= u64::from(now.count());
            if let PageblockState::Free { zeroes, .. } = &mut self.blocks[member as usize] {
                *zeroes = before.or(now);
            }
            self.record_zeroed_frames(member, now);
        }
        self.add_free_pageblock(block, order);
        self.zeroed += most - left;
        most - left
    }

    fn zero_free_block_in_pageblock(&mut self, block: u32, order: u8, most: u64) -> u64 {
        let Some(part) = self
            .partial_pageblock(block)
            .and_then(|p| p.first_free_block(order, FrameContent::Dirty))
        else {
            return most;
        };
        let FreeBlock { offset, .. } = part;
        self.remove_free_part(block, part);
        let parts = self.get_or_create_partial_pageblock(block);
        let dirty = PageBits::range(offset, 1 << order).minus(parts.zero);
        let now = lowest_pages_of_set(dirty, most);
        parts.mark_zeroed(now);
        self.add_free_part(block, offset, order);
        self.record_zeroed_frames(block, now);
        let zeroed = u64::from(now.count());
        self.zeroed += zeroed;
        zeroed
    }
}

fn lowest_pages_of_set(pages: PageBits, most: u64) -> PageBits {
    let mut left = most;
    let mut found = PageBits::EMPTY;
    for (first, count) in pages.runs() {
        let taken = u64::from(count).min(left);
        found = found.or(PageBits::range(first, taken as u16));
        left -= taken;
    }
    found
}
