//! Reclaim: takes back reservations first, then the page cache, then what can be swapped.

use super::address_space::RegionId;
use super::{Result, SimulatedKernel, SpaceId};
use crate::memory::{AscendingRun, FrameRun};
use hawkeye_policy::PageOrder;
use std::ops::Range;
use std::time::Duration;

impl SimulatedKernel {
    /// Frees about `want` frames at most; returns their number, and adds its time to `time`.
    pub(crate) fn reclaim(&mut self, want: u64, time: &mut Duration) -> u64 {
        let mut freed = self.break_oldest_reservations(want);
        if freed < want {
            freed += self.drop_oldest_cached_pages(want - freed, time);
        }
        if freed < want {
            freed += self.swap_out(want - freed, time);
        }
        freed
    }

    /// Frees the frames of pages that were unmapped; `run.value` is the first one.
    pub(crate) fn release_unmapped_frames(&mut self, run: AscendingRun) {
        self.memory.free(FrameRun::new(run.value as u32, run.count.into()));
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
        found.split_huge_page();
        space.huge -= 1;
        Ok(1 + u64::from(larger))
    }

    /// Turns the larger page that a region is part of into huge pages, in the same frames. Returns
    /// whether there was one.
    pub(crate) fn split_multi_region_page(&mut self, at: RegionId) -> bool {
        let Some(order) = self.region(at).and_then(|found| found.multi_region) else {
            return false;
        };
        for region in regions_of_same_page(at.region, order) {
            if let Some(found) = self.region_mut(RegionId { region, ..at }) {
                found.multi_region = None;
            }
        }
        true
    }
}

/// The regions that one page of this size maps, including this one.
pub(crate) fn regions_of_same_page(region: u64, order: PageOrder) -> Range<u64> {
    let first = region & !(order.regions_per_page() - 1);
    first..first + order.regions_per_page()
}
