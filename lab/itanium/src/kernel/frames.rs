//! Frames: allocation and release, and memory that no simulated process owns.

use super::ItaniumMachine;
use super::policies::HugePagePoolSettings;
use crate::address::REGION_BITS;
use crate::error::{ItaniumError, ModelContradiction, Result};
use crate::mmu::RegionRegisters;
use hawkeye_sim::rng::SimulationRng;
use std::collections::BTreeSet;

/// The region of mappings on pool pages, if the pool has a region (`RGN_HPAGE`, `asm-ia64/page.h`).
const POOL_REGION: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct HugePagePool {
    pub(super) settings: HugePagePoolSettings,
    pub(super) first: u32,
    /// Free frames of the pool, numbered from `first`.
    buddy: BuddyAllocator,
}

impl HugePagePool {
    /// Sets the pool aside at the end of `frames` frames.
    pub(super) fn new(settings: HugePagePoolSettings, frames: u32) -> Result<Self> {
        let size = u64::from(settings.pages) << settings.order;
        let fits = size <= u64::from(frames / 2);
        let what = "memory set aside for large pages";
        ItaniumError::require_setting(fits, what, "at most half of all memory")?;
        let first = (frames - size as u32) & !((1 << settings.order) - 1);
        Ok(Self { settings, first, buddy: BuddyAllocator::new(frames - first) })
    }

    pub(super) fn allocate_page(&mut self) -> Option<u32> {
        let frame = self.buddy.allocate_block(self.settings.order)?;
        Some(self.first + frame)
    }

    pub(super) fn is_address_in_own_region(&self, address: u64) -> bool {
        self.settings.own_region && address >> REGION_BITS == POOL_REGION as u64
    }

    pub(super) fn own_region_start(&self) -> Option<u64> {
        let start = (POOL_REGION as u64) << REGION_BITS;
        self.settings.own_region.then_some(start)
    }

    /// Sets the pool's page size in a process's registers.
    pub(super) fn registers_with_pool_region(&self, registers: RegionRegisters) -> RegionRegisters {
        if self.settings.own_region {
            registers.with_preferred_order_in(POOL_REGION, self.settings.order)
        } else {
            registers
        }
    }
}

impl ItaniumMachine {
    /// Number of free frames, including those of the pool.
    pub fn count_free_frames(&self) -> u32 {
        self.buddy_allocators().map(|(buddy, _)| buddy.count_free_frames()).sum()
    }

    /// Number of frames outside of the pool that can be allocated one by one.
    pub(super) fn count_available_frames(&self) -> u32 {
        self.buddy.count_free_frames() + self.reservations.unused
    }

    /// Allocates 2^order neighbouring frames; gives up reservations if none is left.
    pub(super) fn allocate_frames(&mut self, order: u8) -> Option<u32> {
        loop {
            let found = self.buddy.allocate_block(order);
            if found.is_some() || order > 0 || !self.release_oldest_reservation() {
                return found;
            }
        }
    }

    pub(super) fn drop_frame_owner(&mut self, frame: u32) {
        match self.shared.get_mut(&frame) {
            Some(1) => {
                self.shared.remove(&frame);
            }
            Some(more) => *more -= 1,
            None => match &mut self.pool {
                Some(pool) if frame >= pool.first => pool.buddy.free_range(frame - pool.first, 1),
                _ => self.buddy.free_range(frame, 1),
            },
        }
    }

    /// Removes this owner of the memory of `pages` pages.
    pub(super) fn drop_owner_of_present_pages(
        &mut self,
        process: u32,
        first: u64,
        pages: u64,
    ) -> Result {
        for page in first..first + pages {
            let entry = self.process_space(process)?.table.entry_or_empty(page);
            if entry.present {
                self.drop_frame_owner(entry.frame);
            }
        }
        Ok(())
    }

    pub(super) fn is_pool_frame(&self, frame: u32) -> bool {
        self.pool.as_ref().is_some_and(|pool| frame >= pool.first)
    }

    pub(super) fn count_all_frames(&self) -> u32 {
        self.buddy_allocators().map(|(buddy, _)| buddy.count_all_frames()).sum()
    }

    /// Free memory outside of the pool, in per cent.
    pub(super) fn free_memory_percent(&self) -> u64 {
        u64::from(self.count_available_frames()) * 100
            / u64::from(self.buddy.count_all_frames().max(1))
    }

    /// Frames that are only reserved do not count, because the kernel can still allocate them.
    pub(super) fn update_peak_memory(&mut self) {
        let others = self.held + self.movable.len() as u32;
        let used = self.count_all_frames() - self.count_available_frames() - others;
        let statistics = &mut self.statistics;
        statistics.most_frames = statistics.most_frames.max(used);
        statistics.most_reserved = statistics.most_reserved.max(self.reservations.unused);
    }

    /// All buddy systems, and the first frame of each.
    pub(super) fn buddy_allocators(&self) -> impl Iterator<Item = (&BuddyAllocator, u32)> {
        let pool = self.pool.iter().map(|pool| (&pool.buddy, pool.first));
        std::iter::once((&self.buddy, 0)).chain(pool)
    }

    /// Free blocks: first frame and order.
    pub(super) fn free_blocks(&self) -> impl Iterator<Item = (u32, u8)> {
        self.buddy_allocators().flat_map(|(buddy, first)| {
            let blocks = buddy.free_blocks();
            blocks.map(move |(block, order)| (first + block, order))
        })
    }
}

/// Blocks of free memory in which other memory holds one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitialFragmentation {
    /// Order of the blocks. If all are broken, no larger block is free.
    pub order: u8,
    /// Share of blocks that are broken, in per cent.
    pub broken_percent: u32,
    /// Share of the broken blocks in which that page can be moved, in per cent.
    pub movable_percent: u32,
}

impl InitialFragmentation {
    /// No page of this order or more is available, and moving pages does not help.
    pub const fn with_all_blocks_broken(order: u8) -> Self {
        Self { order, broken_percent: 100, movable_percent: 0 }
    }
}

impl ItaniumMachine {
    /// Takes the first frame of the broken blocks, which the seed selects.
    pub(super) fn fragment_free_memory(&mut self, how: InitialFragmentation, seed: u64) {
        let mut rng = SimulationRng::new(seed, 0xf4a6);
        for block in (0..self.buddy.count_all_frames()).step_by(1 << how.order.min(31)) {
            let broken = rng.draw_below(100) < how.broken_percent.into();
            let movable = rng.draw_below(100) < how.movable_percent.into();
            if !broken || !self.buddy.take_frame_if_free(block) {
                continue;
            }
            if movable {
                self.movable.insert(block);
            } else {
                self.held += 1;
            }
        }
    }
}

// Frames: a buddy system with as many orders as the processor has page sizes.
//
// The allocator of the x86 simulation ([`hawkeye_sim::memory`]) hands out at most 4 MiB. It takes
// them from pageblocks of 2 MiB of 4 KiB frames, which it sorts by content. Here a block can have
// 4 GiB, and the allocator records only that it is free. The thesis leaves allocation to the
// kernel as it is (section 5.6).

/// Orders of blocks: up to 2^20 frames, 4 GiB of 4 KiB each.
const ORDERS: u8 = 21;

#[derive(Clone, Debug)]
pub(super) struct BuddyAllocator {
    /// First frames of free blocks, by order.
    free: Vec<BTreeSet<u32>>,
    frames: u32,
    free_frames: u32,
}

impl BuddyAllocator {
    pub(super) fn new(frames: u32) -> Self {
        let mut buddy = Self { free: vec![BTreeSet::new(); ORDERS.into()], frames, free_frames: 0 };
        buddy.free_range(0, frames);
        buddy
    }

    pub(super) fn count_free_frames(&self) -> u32 {
        self.free_frames
    }

    pub(super) fn count_all_frames(&self) -> u32 {
        self.frames
    }

    /// Takes the lowest of the smallest free blocks that hold 2^order aligned frames.
    pub(super) fn allocate_block(&mut self, order: u8) -> Option<u32> {
        let (found, block) = (order..ORDERS)
            .find_map(|larger| Some((larger, self.free[usize::from(larger)].pop_first()?)))?;
        for rest in order..found {
            self.insert_free_block(block + (1 << rest), rest);
        }
        self.free_frames -= 1 << order;
        Some(block)
    }

    /// Takes one frame, if it is free.
    pub(super) fn take_frame_if_free(&mut self, frame: u32) -> bool {
        let held = (0..ORDERS).find(|order| {
            let block = frame & !((1 << order) - 1);
            self.free[usize::from(*order)].remove(&block)
        });
        let Some(order) = held else {
            return false;
        };
        // The rest of the block, in halves around the frame.
        for half in 0..order {
            let pair = frame & !((1 << (half + 1)) - 1);
            let upper = frame & (1 << half) != 0;
            self.insert_free_block(if upper { pair } else { pair + (1 << half) }, half);
        }
        self.free_frames -= 1;
        true
    }

    /// Frees neighbouring frames; blocks merge with their free buddies.
    pub(super) fn free_range(&mut self, first: u32, count: u32) {
        let end = first + count;
        let mut at = first;
        while at < end {
            let aligned = at.trailing_zeros();
            let fits = (end - at).ilog2();
            let order = aligned.min(fits).min(u32::from(ORDERS) - 1) as u8;
            self.merge_freed_block(at, order);
            at += 1 << order;
        }
        self.free_frames += count;
    }

    fn merge_freed_block(&mut self, mut block: u32, mut order: u8) {
        while order + 1 < ORDERS {
            let buddy = block ^ 1 << order;
            if !self.free[usize::from(order)].remove(&buddy) {
                break;
            }
            block = block.min(buddy);
            order += 1;
        }
        self.insert_free_block(block, order);
    }

    fn insert_free_block(&mut self, block: u32, order: u8) {
        self.free[usize::from(order)].insert(block);
    }

    /// Free blocks: first frame and order.
    pub(super) fn free_blocks(&self) -> impl Iterator<Item = (u32, u8)> {
        let by_order = self.free.iter().zip(0..);
        by_order.flat_map(|(blocks, order)| blocks.iter().map(move |block| (*block, order)))
    }

    /// Blocks must be aligned, disjoint and merged, and the number of free frames right.
    pub(super) fn check_blocks(&self) -> Result<(), ModelContradiction> {
        let must = ModelContradiction::require_consistent;
        let mut sorted: Vec<(u32, u8)> = self.free_blocks().collect();
        sorted.sort_unstable();
        let mut end = 0;
        let mut total = 0;
        for (block, order) in &sorted {
            let size = 1 << order;
            let placed = block % size == 0 && *block >= end && block + size <= self.frames;
            must(placed, "a free block is misplaced", *block)?;
            let buddy = (block ^ size, *order);
            let merged = order + 1 == ORDERS || sorted.binary_search(&buddy).is_err();
            must(merged, "a free block has not merged with its buddy", *block)?;
            end = block + size;
            total += size;
        }
        must(total == self.free_frames, "free frames are counted wrong", 0u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_are_allocated_once_and_free_blocks_merge(
            frames in 1u32..5000,
            steps in proptest::collection::vec((0u8..3, 0u8..9, 0u32..5000), 1..200),
        ) {
            let mut buddy = BuddyAllocator::new(frames);
            let mut owned: BTreeSet<u32> = BTreeSet::new();
            let mut blocks: Vec<(u32, u32)> = Vec::new();
            for (what, order, number) in steps {
                match what {
                    0 => {
                        let size = 1u32 << order;
                        let free = |b: u32| (b..b + size).all(|f| f < frames && !owned.contains(&f));
                        let any = (0..frames).step_by(size as usize).any(free);
                        let got = buddy.allocate_block(order);
                        prop_assert_eq!(got.is_some(), any);
                        if let Some(block) = got {
                            prop_assert!(block % size == 0 && free(block));
                            owned.extend(block..block + size);
                            blocks.push((block, size));
                        }
                    }
                    1 => {
                        let frame = number % frames;
                        prop_assert_eq!(buddy.take_frame_if_free(frame), owned.insert(frame));
                        if !blocks.iter().any(|(b, c)| (*b..b + c).contains(&frame)) {
                            blocks.push((frame, 1));
                        }
                    }
                    _ if !blocks.is_empty() => {
                        let (block, count) = blocks.swap_remove(number as usize % blocks.len());
                        buddy.free_range(block, count);
                        owned.retain(|frame| !(block..block + count).contains(frame));
                    }
                    _ => {}
                }
                prop_assert_eq!(buddy.check_blocks(), Ok(()));
                prop_assert_eq!(buddy.count_free_frames() as usize, frames as usize - owned.len());
            }
        }
    }
}
