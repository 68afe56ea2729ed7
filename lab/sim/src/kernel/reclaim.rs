//! Reclaim: takes back reservations first, then the page cache (pages of files), then what can be
//! swapped.

use super::costs::times;
use super::space::RegionId;
use super::{Result, SimulatedKernel, SpaceId};
use crate::memory::{FrameOwner, FrameRun, ValueRun};
use crate::rng::SimulationRng;
use hawkeye_policy::PageOrder;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

impl SimulatedKernel {
    /// Frees about `want` frames at most; returns their number, and adds its time to `time`.
    pub(crate) fn reclaim(&mut self, want: u64, time: &mut Duration) -> u64 {
        let mut freed = self.break_reservations(want);
        if freed < want {
            freed += self.drop_cache(want - freed, time);
        }
        if freed < want {
            freed += self.swap_out(want - freed, time);
        }
        freed
    }

    /// Frees the frames of pages that were unmapped; `run.value` is the first one.
    pub(crate) fn release_unmapped_frames(&mut self, run: ValueRun) {
        self.memory
            .free(FrameRun::new(run.value as u32, run.count.into()));
    }

    /// The largest address space. Linux would kill it when no memory is left (`oom_badness`).
    pub fn out_of_memory_victim(&self) -> Option<SpaceId> {
        let spaces = self.spaces.values();
        let largest = spaces.max_by_key(|s| (s.resident + s.swapped, s.id));
        largest.map(|space| space.id)
    }

    /// Splits a region's huge page, after the larger page around it; returns the number of splits.
    pub(crate) fn split_huge(&mut self, at: RegionId) -> Result<u64> {
        let larger = self.split_multi_region_page(at);
        let space = self.space_mut(at.space)?;
        let found = space.table.get_mut(at.region);
        let Some(found) = found.filter(|found| found.huge.is_some()) else {
            return Ok(0);
        };
        found.split();
        space.huge -= 1;
        Ok(1 + u64::from(larger))
    }

    /// Turns the larger page that a region is part of into huge pages, in the same frames. Returns
    /// whether there was one.
    pub(crate) fn split_multi_region_page(&mut self, at: RegionId) -> bool {
        let Some(order) = self.region(at).and_then(|found| found.joined) else {
            return false;
        };
        for region in regions_around(at.region, order) {
            if let Some(found) = self.region_mut(RegionId { region, ..at }) {
                found.joined = None;
            }
        }
        true
    }
}

/// The regions that one page of this size maps, including this one.
pub(crate) fn regions_around(region: u64, order: PageOrder) -> Range<u64> {
    let first = region & !(order.regions() - 1);
    first..first + order.regions()
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PageCache {
    /// Frames by page; pages are numbered in the order in which the cache was filled.
    pub(crate) frames: BTreeMap<u64, u32>,
    next: u64,
}

impl PageCache {
    pub(crate) fn pages(&self) -> u64 {
        self.frames.len() as u64
    }
}

impl SimulatedKernel {
    /// Drops up to `want` of the oldest cached pages; returns how many.
    pub(crate) fn drop_cache(&mut self, want: u64, time: &mut Duration) -> u64 {
        let cache = &mut self.reclaim_state.cache;
        let oldest = std::iter::from_fn(|| cache.frames.pop_first());
        let mut pages = 0;
        for (_, frame) in oldest.take(want as usize) {
            self.memory.free(FrameRun::new(frame, 1));
            pages += 1;
        }
        *time += times(pages, self.costs.drop_cache_ns);
        pages
    }

    /// Breaks up free memory by pages of files (paper, section 4). Takes one random frame in each
    /// of the free huge pages, one after the other at random. Stops when the fragmentation index is
    /// at least `fmfi` (0-1) or no free huge page is left. Returns the number of frames taken. The
    /// same seed takes the same frames.
    pub fn fragment_free_memory(&mut self, fmfi: f64, seed: u64) -> u64 {
        let mut rng = SimulationRng::new(seed, 0);
        let mut taken = 0;
        while self.memory.fmfi() < fmfi {
            let Some(frame) = self.memory.spoilable_frame(&mut rng) else {
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
        self.debug_check();
        taken
    }
}
