//! Invariants of physical memory.

use super::buddy::PageblockState;
use super::partial_pageblock::PartialPageblock;
use super::{FrameContent, FrameOwner, HUGE_ORDER, ORDERS, PART_ORDERS, PhysicalMemory};
use crate::page_bits::PageBits;
use hawkeye_policy::PAGES_PER_REGION;

impl PhysicalMemory {
    /// Checks all counts and the state of every frame. A frame is either free, in exactly one free
    /// block, or has an owner. Free blocks can't be merged further, and are on the list of their
    /// content and order. Returns the rule that is broken.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let mut counts = [[0u64; ORDERS as usize]; 2];
        let (mut free, mut zeroed) = (0, 0);
        for (index, block) in self.blocks.iter().enumerate() {
            match block {
                PageblockState::Owned(_) => {}
                PageblockState::Free { order, zeroes } => {
                    free += u64::from(PAGES_PER_REGION);
                    zeroed += u64::from(zeroes.count());
                    let index = index as u32;
                    if *order == HUGE_ORDER || index % 2 == 0 {
                        let content = self.free_block_content(index, *order);
                        counts[content.index()][usize::from(*order)] += 1;
                        self.check_free_list_entry(index, content, *order, true)?;
                    }
                    self.check_buddies_merged(index, *order)?;
                }
                PageblockState::Parts(parts) => {
                    free += u64::from(parts.free.count());
                    zeroed += u64::from(parts.zero.count());
                    check_partial_pageblock(parts)?;
                    for content in FrameContent::BOTH {
                        for order in 0..PART_ORDERS {
                            let there =
                                u64::from(parts.head_bits_of_free_blocks(order, content).count());
                            counts[content.index()][usize::from(order)] += there;
                            self.check_free_list_entry(index as u32, content, order, there > 0)?;
                        }
                    }
                }
            }
        }
        if (free, zeroed) != (self.count_free_frames(), self.count_zeroed_frames()) {
            return Err("free or zeroed frames are miscounted");
        }
        for content in FrameContent::BOTH {
            for order in 0..ORDERS {
                let counted = counts[content.index()][usize::from(order)];
                if self.count_free_blocks(content, order) != counted {
                    return Err("a free list is miscounted");
                }
            }
        }
        Ok(())
    }

    pub(crate) fn count_kernel_frames(&self) -> u64 {
        let is_kernel = |packed| matches!(FrameOwner::unpack(packed), FrameOwner::Kernel { .. });
        let of = |state: &PageblockState| match state {
            PageblockState::Free { .. } => 0,
            PageblockState::Owned(owner) => {
                u64::from(PAGES_PER_REGION) * u64::from(is_kernel(*owner))
            }
            PageblockState::Parts(parts) => {
                let runs = parts.owners.iter().filter(|run| is_kernel(run.value));
                runs.map(|run| u64::from(run.count)).sum()
            }
        };
        self.blocks.iter().map(of).sum()
    }

    fn check_free_list_entry(
        &self,
        block: u32,
        content: FrameContent,
        order: u8,
        there: bool,
    ) -> Result<(), &'static str> {
        let list = &self.lists[content.index()][usize::from(order)];
        if list.blocks.contains(&block) == there {
            Ok(())
        } else {
            Err("a free block is on a wrong list")
        }
    }

    fn check_buddies_merged(&self, block: u32, order: u8) -> Result<(), &'static str> {
        let buddy = self.blocks.get((block ^ 1) as usize);
        let buddy_order = buddy.and_then(|buddy| match *buddy {
            PageblockState::Free { order, .. } => Some(order),
            PageblockState::Owned(_) | PageblockState::Parts(_) => None,
        });
        match (order, buddy_order) {
            (HUGE_ORDER, None) => Ok(()),
            (_, Some(other)) if order > HUGE_ORDER && other == order => Ok(()),
            _ => Err("two free buddies were not merged"),
        }
    }
}

fn check_partial_pageblock(parts: &PartialPageblock) -> Result<(), &'static str> {
    let mut covered = PageBits::EMPTY;
    let mut from = 0;
    while let Some(frame) = parts.free.next_page(from) {
        let Some(part) = parts.unique_free_block_at(frame) else {
            return Err("a free frame is in no free block, or in two");
        };
        let frames = PageBits::range(part.offset, 1 << part.order);
        if !frames.is_subset_of(parts.free)
            || part.content != parts.content_of_block(part.offset, part.order)
        {
            return Err("a free block holds frames that have an owner, or another content");
        }
        let buddy = part.offset ^ (1 << part.order);
        if parts.free_block_at(part.order, buddy).is_some() {
            return Err("two free buddies were not merged");
        }
        covered = covered.or(frames);
        from = part.offset + (1 << part.order);
    }
    let mut owned = PageBits::EMPTY;
    for run in parts.owners.iter() {
        owned = owned.or(PageBits::range(run.first, run.count));
    }
    if owned != PageBits::FULL.minus(parts.free) || covered != parts.free {
        return Err("a frame is both free and owned, or neither");
    }
    if !parts.zero.is_subset_of(parts.free) {
        return Err("a zeroed frame is not free");
    }
    if parts.free.is_full() {
        return Err("a pageblock that is all free is kept in parts");
    }
    Ok(())
}
