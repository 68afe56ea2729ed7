//! The page cache: pages of files, which the kernel frees when a program needs memory.

use super::SimulatedKernel;
use super::kernel_costs::time_of_operations;
use crate::memory::{FrameOwner, FrameRun};
use crate::rng::SimulationRng;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug, Default)]
pub(crate) struct PageCache {
    /// Frames by page; pages are numbered in the order in which the cache was filled.
    pub(crate) frames: BTreeMap<u64, u32>,
    next: u64,
}

impl PageCache {
    pub(crate) fn count_pages(&self) -> u64 {
        self.frames.len() as u64
    }
}

impl SimulatedKernel {
    /// Drops up to `want` of the oldest cached pages; returns how many.
    pub(crate) fn drop_oldest_cached_pages(&mut self, want: u64, time: &mut Duration) -> u64 {
        let cache = &mut self.reclaim_state.cache;
        let oldest = std::iter::from_fn(|| cache.frames.pop_first());
        let mut pages = 0;
        for (_, frame) in oldest.take(want as usize) {
            self.memory.free(FrameRun::new(frame, 1));
            pages += 1;
        }
        *time += time_of_operations(pages, self.costs.drop_cache_ns);
        pages
    }

    /// Breaks up free memory by pages of files (paper, section 4). Takes one random frame in each
    /// of the free huge pages, one after the other at random. Stops when the fragmentation index is
    /// at least `fmfi` (0-1) or no free huge page is left. Returns the number of frames taken. The
    /// same seed takes the same frames.
    pub fn fragment_free_memory(&mut self, fmfi: f64, seed: u64) -> u64 {
        let mut rng = SimulationRng::new(seed, 0);
        let mut taken = 0;
        while self.memory.unusable_free_index() < fmfi {
            let Some(frame) = self.memory.random_frame_in_free_pageblock(&mut rng) else {
                break;
            };
            let cache = &mut self.reclaim_state.cache;
            let page = cache.next;
            let owner = FrameOwner::Cache { page };
            if self.memory.allocate_at(frame, 1, owner).is_none() {
                break;
            }
            cache.frames.insert(page, frame);
            cache.next += 1;
            taken += 1;
        }
        self.assert_consistent_in_debug();
        taken
    }
}
