//! How fragmented free memory is, and how to make it so.

use super::frames::first_of;
use super::{Content, MigrateType, Owner, PhysicalMemory};
use crate::rng::Rng;
use hawkeye_policy::PAGES_PER_REGION;

/// What breaks up free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragmenter {
    /// Pages of files, which can be dropped and moved (the paper reads files in; section 4).
    PageCache,
    /// Memory of the kernel, which stays where it is.
    Kernel,
}

impl PhysicalMemory {
    /// Free memory fragmentation index for huge pages, 0-1: the share of free memory in blocks too small for one, as
    /// Linux's `unusable_free_index` and as the manager reads it on a running machine. Without any free memory: 1.
    pub fn fmfi(&self) -> f64 {
        let free = self.free_frames();
        if free == 0 {
            return 1.0;
        }
        self.scattered_frames() as f64 / free as f64
    }

    /// A random pageblock that is free as a whole, and a random frame in it: whoever takes that frame
    /// leaves 511 that make no huge page.
    pub(crate) fn spoilable_frame(&self, rng: &mut Rng) -> Option<u32> {
        let blocks = self.blocks.len() as u64;
        let start = rng.below(blocks) as u32;
        let free = |block: &u32| {
            let state = &self.blocks[*block as usize].state;
            matches!(state, super::buddy::State::Free { .. })
        };
        let block = (start..blocks as u32).chain(0..start).find(free)?;
        Some(first_of(block) + rng.below(PAGES_PER_REGION.into()) as u32)
    }

    /// Takes frames for the kernel for ever, one at a time, until free memory is as fragmented as this (0-1).
    /// Returns how many it took.
    pub(crate) fn pin_until(&mut self, fmfi: f64, rng: &mut Rng) -> u64 {
        let mut pinned = 0;
        while self.fmfi() < fmfi {
            let Some(frame) = self.spoilable_frame(rng) else {
                break;
            };
            let owner = Owner::Kernel {
                frame: frame.into(),
            };
            if self.allocate_at(frame, 1, owner).is_none() {
                break;
            }
            pinned += 1;
        }
        pinned
    }

    /// Memory for the kernel, in blocks of this order; returns how many blocks could be had.
    pub fn allocate_kernel(&mut self, order: u8, blocks: u64, migrate: MigrateType) -> u64 {
        let owner = Owner::Kernel { frame: 0 };
        (0..blocks)
            .take_while(|_| {
                let Some(got) = self.allocate(order, migrate, Content::Dirty, owner) else {
                    return false;
                };
                let frame = got.frames.first.into();
                self.hand_over(got.frames, Owner::Kernel { frame });
                true
            })
            .count() as u64
    }
}
