//! Allocation and release of frames.

use super::policies::PoolSettings;
use super::{BuddyAllocator, ItaniumMachine};
use crate::address::REGION_BITS;
use crate::error::{ItaniumError, Result};
use crate::mmu::RegionRegisters;

/// The region of mappings on pool pages, if the pool has a region (`RGN_HPAGE`, `asm-ia64/page.h`).
const POOL_REGION: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct HugePagePool {
    pub(super) settings: PoolSettings,
    pub(super) first: u32,
    /// Free frames of the pool, numbered from `first`.
    buddy: BuddyAllocator,
}

impl HugePagePool {
    /// Sets the pool aside at the end of `frames` frames.
    ///
    /// # Errors
    /// The pool takes more than half of memory.
    pub(super) fn new(settings: PoolSettings, frames: u32) -> Result<Self> {
        let size = u64::from(settings.pages) << settings.order;
        let fits = size <= u64::from(frames / 2);
        let what = "memory set aside for large pages";
        ItaniumError::unless(fits, what, "at most half of all memory")?;
        let first = (frames - size as u32) & !((1 << settings.order) - 1);
        Ok(Self {
            settings,
            first,
            buddy: BuddyAllocator::new(frames - first),
        })
    }

    pub(super) fn allocate(&mut self) -> Option<u32> {
        let frame = self.buddy.allocate(self.settings.order)?;
        Some(self.first + frame)
    }

    pub(super) fn has_region(&self, address: u64) -> bool {
        self.settings.own_region && address >> REGION_BITS == POOL_REGION as u64
    }

    pub(super) fn region_start(&self) -> Option<u64> {
        let start = (POOL_REGION as u64) << REGION_BITS;
        self.settings.own_region.then_some(start)
    }

    /// Sets the pool's page size in a process's registers.
    pub(super) fn with_pool_region(&self, registers: RegionRegisters) -> RegionRegisters {
        if self.settings.own_region {
            registers.with_preferred_size(POOL_REGION, self.settings.order)
        } else {
            registers
        }
    }
}

impl ItaniumMachine {
    /// Number of free frames, including those of the pool.
    pub fn free_frames(&self) -> u32 {
        self.buddies().map(|(buddy, _)| buddy.free_frames()).sum()
    }

    /// Number of frames outside of the pool that can be allocated one by one.
    pub(super) fn available_frames(&self) -> u32 {
        self.buddy.free_frames() + self.reservations.unused
    }

    /// Allocates 2^order neighbouring frames; gives up reservations if none is left.
    pub(super) fn allocate(&mut self, order: u8) -> Option<u32> {
        loop {
            let found = self.buddy.allocate(order);
            if found.is_some() || order > 0 || !self.release_oldest_reservation() {
                return found;
            }
        }
    }

    pub(super) fn release_frame(&mut self, frame: u32) {
        match self.shared.get_mut(&frame) {
            Some(1) => {
                self.shared.remove(&frame);
            }
            Some(more) => *more -= 1,
            None => match &mut self.pool {
                Some(pool) if frame >= pool.first => pool.buddy.free(frame - pool.first, 1),
                _ => self.buddy.free(frame, 1),
            },
        }
    }

    /// Removes this owner of the memory of `pages` pages.
    pub(super) fn release_pages(&mut self, process: u32, first: u64, pages: u64) -> Result {
        for page in first..first + pages {
            let entry = self.space(process)?.table.entry(page);
            if entry.present {
                self.release_frame(entry.frame);
            }
        }
        Ok(())
    }

    pub(super) fn in_pool(&self, frame: u32) -> bool {
        self.pool.as_ref().is_some_and(|pool| frame >= pool.first)
    }

    pub(super) fn frames(&self) -> u32 {
        self.buddies().map(|(buddy, _)| buddy.frames()).sum()
    }

    /// Free memory outside of the pool, in per cent.
    pub(super) fn free_percent(&self) -> u64 {
        u64::from(self.available_frames()) * 100 / u64::from(self.buddy.frames().max(1))
    }

    /// Frames that are only reserved do not count, because the kernel can still allocate them.
    pub(super) fn update_peak_use(&mut self) {
        let others = self.held + self.movable.len() as u32;
        let used = self.frames() - self.available_frames() - others;
        let statistics = &mut self.statistics;
        statistics.most_frames = statistics.most_frames.max(used);
        statistics.most_reserved = statistics.most_reserved.max(self.reservations.unused);
    }

    /// All buddy systems, and the first frame of each.
    pub(super) fn buddies(&self) -> impl Iterator<Item = (&BuddyAllocator, u32)> {
        let pool = self.pool.iter().map(|pool| (&pool.buddy, pool.first));
        std::iter::once((&self.buddy, 0)).chain(pool)
    }

    /// Free blocks: first frame and order.
    pub(super) fn free_blocks(&self) -> impl Iterator<Item = (u32, u8)> {
        self.buddies().flat_map(|(buddy, first)| {
            let blocks = buddy.blocks();
            blocks.map(move |(block, order)| (first + block, order))
        })
    }
}
