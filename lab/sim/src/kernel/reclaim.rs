//! Reclaim: takes back reservations first, then the page cache (pages of files), then what can be
//! swapped.

use super::costs::times;
use super::space::RegionId;
use super::{Result, SimulatedKernel, SpaceId};
use crate::bits::PageBits;
use crate::memory::{FrameOwner, FrameRun, ValueRun};
use crate::rng::SimulationRng;
use hawkeye_policy::{PAGES_PER_REGION, PageOrder};
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
        let Some(order) = self.region(at).and_then(|found| found.multi_region) else {
            return false;
        };
        for region in regions_around(at.region, order) {
            if let Some(found) = self.region_mut(RegionId { region, ..at }) {
                found.multi_region = None;
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

/// Least recently used first (`vm_rvq_partpop`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Reservations {
    /// Regions by the time at which a page was last populated.
    queue: BTreeMap<u64, RegionId>,
    clock: u64,
    pub(crate) broken: u64,
}

impl Reservations {
    pub(crate) fn len(&self) -> u64 {
        self.queue.len() as u64
    }
}

impl SimulatedKernel {
    /// Pages of a region were mapped: its reservation moves to the end of the queue, and becomes a
    /// huge page when it is fully populated.
    pub(crate) fn on_pages_mapped(&mut self, at: RegionId, time: &mut Duration) {
        let Some(owned) = self.spaces.get_mut(&at.space) else {
            return;
        };
        let found = owned.table.get_or_create(at.region);
        let Some(reservation) = &mut found.reservation else {
            return;
        };
        let Reservations { queue, clock, .. } = &mut self.huge_frames.reservations;
        queue.remove(&reservation.used);
        let block = reservation.block;
        let frames = FrameRun::of_block(block);
        if found
            .frames
            .is_exactly_run(ValueRun::new(0, PAGES_PER_REGION, frames.first.into()))
        {
            found.reservation = None;
            found.become_huge(block);
            owned.huge += 1;
            let (space, page) = (at.space.0, at.page(0));
            self.memory
                .change_frame_owner(frames, FrameOwner::Anonymous { space, page });
            // The page table is scanned once.
            *time += times(1, self.costs.read_region_ns);
        } else {
            *clock += 1;
            reservation.used = *clock;
            queue.insert(*clock, at);
        }
    }

    /// Frees unused frames, least recently used first, until `want` are free; returns their number.
    pub(crate) fn break_reservations(&mut self, want: u64) -> u64 {
        let mut freed = 0;
        while freed < want {
            let Some((_, at)) = self.huge_frames.reservations.queue.first_key_value() else {
                break;
            };
            freed += self.break_reservation(*at);
            self.huge_frames.reservations.broken += 1;
        }
        freed
    }

    /// Ends the reservation of a region, if it has one; returns the number of unused frames that
    /// this frees. It also ends when pages of it are unmapped: FreeBSD puts these back into the
    /// reservation and keeps it while a page is populated.
    pub(crate) fn break_reservation(&mut self, at: RegionId) -> u64 {
        let found = self.region_mut(at);
        let Some(reservation) = found.and_then(|found| found.reservation.take()) else {
            return 0;
        };
        let queue = &mut self.huge_frames.reservations.queue;
        queue.remove(&reservation.used);
        let unused = self.memory.reserved_frames(reservation.block);
        for (first, count) in unused.each_run() {
            let frames = FrameRun::within_pageblock(reservation.block, first, count);
            self.memory.free(frames);
        }
        unused.count().into()
    }
}

impl crate::memory::PhysicalMemory {
    pub(super) fn reserved_frames(&self, block: u32) -> PageBits {
        let start = FrameRun::of_block(block).first;
        let mut reserved = PageBits::EMPTY;
        for place in 0..PAGES_PER_REGION {
            let owner = self.owner(start + u32::from(place));
            if matches!(owner, Some(FrameOwner::Reserved { .. })) {
                reserved.insert(place);
            }
        }
        reserved
    }
}
