//! Measures the fragmentation of free memory, and fragments it.

use super::PhysicalMemory;
use super::buddy::PageblockState;
use super::frame_run::first_frame_of_pageblock;
use crate::rng::SimulationRng;
use hawkeye_policy::PAGES_PER_REGION;

impl PhysicalMemory {
    /// Free memory fragmentation index for huge pages, 0-1: the share of free memory in blocks too
    /// small for one. It is Linux's `unusable_free_index`, which the manager reads on a running
    /// machine. Without any free memory: 1.
    pub fn unusable_free_index(&self) -> f64 {
        let free = self.count_free_frames();
        if free == 0 {
            return 1.0;
        }
        self.count_scattered_free_frames() as f64 / free as f64
    }

    /// A random frame in a random pageblock that is free as a whole. Allocation of that frame
    /// leaves 511 frames that make no huge page.
    pub(crate) fn random_frame_in_free_pageblock(&self, rng: &mut SimulationRng) -> Option<u32> {
        let blocks = self.blocks.len() as u64;
        let start = rng.draw_below(blocks) as u32;
        let free =
            |block: &u32| matches!(self.blocks[*block as usize], PageblockState::Free { .. });
        let block = (start..blocks as u32).chain(0..start).find(free)?;
        Some(first_frame_of_pageblock(block) + rng.draw_below(PAGES_PER_REGION.into()) as u32)
    }
}
