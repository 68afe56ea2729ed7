//! Frames: where they come from and go to.

use super::policies::Pool;
use super::{Buddy, Kernel};
use crate::ItaniumError;
use crate::address::REGION_BITS;
use crate::error::Contradiction;
use crate::mmu::RegionRegisters;

/// The region of mappings on pool pages, if they have one of their own (`RGN_HPAGE`, `asm-ia64/page.h`).
const POOL_REGION: usize = 4;

/// Memory set aside for large pages: the end of it all.
#[derive(Clone, Debug)]
pub(super) struct ReservedPool {
    settings: Pool,
    first: u32,
    /// By frame less `first`.
    buddy: Buddy,
}

impl ReservedPool {
    /// From the end of so many frames.
    ///
    /// # Errors
    /// It takes more than half of memory.
    pub(super) fn new(settings: Pool, frames: u32) -> Result<Self, ItaniumError> {
        let size = u64::from(settings.pages) << settings.order;
        let wrong = ItaniumError::Setup {
            what: "memory set aside for large pages",
            allowed: "at most half of all",
        };
        if size > u64::from(frames / 2) {
            return Err(wrong);
        }
        let first = (frames - size as u32) & !((1 << settings.order) - 1);
        Ok(Self {
            settings,
            first,
            buddy: Buddy::new(frames - first),
        })
    }

    pub(super) fn first(&self) -> u32 {
        self.first
    }

    pub(super) fn order(&self) -> u8 {
        self.settings.order
    }

    pub(super) fn allocate(&mut self) -> Option<u32> {
        let frame = self.buddy.allocate(self.settings.order)?;
        Some(self.first + frame)
    }

    /// Whether an address is for mappings on it alone.
    pub(super) fn has_region(&self, address: u64) -> bool {
        self.settings.own_region && address >> REGION_BITS == POOL_REGION as u64
    }

    /// First byte of its region, if it has one.
    pub(super) fn region_start(&self) -> Option<u64> {
        let start = (POOL_REGION as u64) << REGION_BITS;
        self.settings.own_region.then_some(start)
    }

    /// A process's registers with its page size.
    pub(super) fn region(&self, registers: RegionRegisters) -> RegionRegisters {
        if self.settings.own_region {
            registers.preferring(POOL_REGION, self.settings.order)
        } else {
            registers
        }
    }
}

impl Kernel {
    /// Free frames, those of the pool among them.
    pub fn free_frames(&self) -> u32 {
        let pool = self.pool.as_ref();
        self.buddy.free_frames() + pool.map_or(0, |pool| pool.buddy.free_frames())
    }

    /// Frames outside of the pool that can be had one by one.
    pub(super) fn available(&self) -> u32 {
        self.buddy.free_frames() + self.reservations.unused()
    }

    /// Neighbouring frames, 2^order of them. Where not one is left, reservations are given up.
    pub(super) fn allocate(&mut self, order: u8) -> Option<u32> {
        loop {
            let found = self.buddy.allocate(order);
            if found.is_some() || order > 0 || !self.give_up_oldest() {
                return found;
            }
        }
    }

    /// One owner less.
    pub(super) fn release(&mut self, frame: u32) {
        match self.shared.get_mut(&frame) {
            Some(1) => {
                self.shared.remove(&frame);
            }
            Some(more) => *more -= 1,
            None => self.free(frame),
        }
    }

    fn free(&mut self, frame: u32) {
        match &mut self.pool {
            Some(pool) if frame >= pool.first => pool.buddy.free(frame - pool.first, 1),
            _ => self.buddy.free(frame, 1),
        }
    }

    /// Whether a frame is of the pool.
    pub(super) fn in_pool(&self, frame: u32) -> bool {
        self.pool.as_ref().is_some_and(|pool| frame >= pool.first)
    }

    /// All frames.
    pub(super) fn frames(&self) -> u32 {
        let pool = self.pool.as_ref();
        self.buddy.frames() + pool.map_or(0, |pool| pool.buddy.frames())
    }

    /// Free memory outside of the pool, in per cent.
    pub(super) fn free_percent(&self) -> u64 {
        u64::from(self.available()) * 100 / u64::from(self.buddy.frames().max(1))
    }

    /// Notes how much memory is out of others' reach now. What is only reserved is not: it can be had.
    pub(super) fn note_use(&mut self) {
        let others = self.held + self.movable.len() as u32;
        let used = self.frames() - self.available() - others;
        let statistics = &mut self.statistics;
        statistics.most_frames = statistics.most_frames.max(used);
        statistics.most_reserved = statistics.most_reserved.max(self.reservations.unused());
    }

    /// Checks free memory.
    pub(super) fn check_free(&self) -> Result<(), Contradiction> {
        self.buddy.check()?;
        self.pool.as_ref().map_or(Ok(()), |pool| pool.buddy.check())
    }

    /// Free blocks: first frame and order.
    pub(super) fn free_blocks(&self) -> impl Iterator<Item = (u32, u8)> {
        let pool = self.pool.iter().flat_map(|pool| {
            let blocks = pool.buddy.blocks();
            blocks.map(|(block, order)| (block + pool.first, order))
        });
        self.buddy.blocks().chain(pool)
    }
}
