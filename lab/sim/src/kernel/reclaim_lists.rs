//! The order in which memory is swapped out: Linux's two lists of anonymous pages (`mm/vmscan.c` of
//! 4.3), by regions.
//!
//! Memory is listed as active at its first touch. While the inactive list is short
//! (`inactive_anon_is_low`), reclaim moves the oldest active memory to it and forgets its access
//! bits. Then reclaim takes the oldest inactive memory: what was accessed since becomes active
//! again, and the rest is swapped out. Memory that is no longer used therefore goes before memory
//! that came later. Memory that is seldom used goes if it is not accessed while it passes through
//! the inactive list.

use super::SimulatedKernel;
use super::address_space::RegionId;
use super::simulated_kernel::ReclaimState;
use crate::page_bits::PageBits;
use hawkeye_policy::BASE_PAGE_BYTES;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReclaimListEntry {
    pub(crate) region: RegionId,
    /// Its number from when it was listed; a new touch after an unmap gives another.
    number: u64,
}

/// The two lists, the oldest region first.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReclaimLists {
    pub(crate) active: VecDeque<ReclaimListEntry>,
    pub(crate) inactive: VecDeque<ReclaimListEntry>,
    count: u64,
}

impl ReclaimLists {
    pub(crate) fn len(&self) -> usize {
        self.active.len() + self.inactive.len()
    }
}

impl SimulatedKernel {
    pub(crate) fn enlist_touched_regions(&mut self) {
        let ReclaimState { recency, swap, .. } = &mut self.reclaim_state;
        for space in self.spaces.values_mut() {
            for region in space.table.take_created_regions() {
                let Some(found) = space.table.get_mut(region) else {
                    continue;
                };
                if found.listed.is_none() && swap.is_configured() {
                    recency.count += 1;
                    found.listed = Some(recency.count);
                    let (space, number) = (space.id, recency.count);
                    let region = RegionId { space, region };
                    recency.active.push_back(ReclaimListEntry { region, number });
                }
            }
        }
    }

    /// Removes and returns the region to swap out next, unless it was accessed.
    pub(crate) fn pop_inactive_region(&mut self) -> Option<ReclaimListEntry> {
        let memory_bytes = self.memory.count_all_frames() * BASE_PAGE_BYTES;
        // Active regions for each inactive one (`calculate_zone_inactive_ratio` of
        // `mm/page_alloc.c`).
        let ratio = (10 * (memory_bytes >> 30)).isqrt().max(1) as usize;
        loop {
            let ReclaimLists { active, inactive, .. } = &mut self.reclaim_state.recency;
            let low = inactive.is_empty() || inactive.len() * ratio < active.len();
            let at = if low { active } else { inactive }.pop_front()?;
            let found = self.region_mut(at.region);
            let Some(found) = found.filter(|found| found.listed == Some(at.number)) else {
                continue;
            };
            if !low {
                return Some(at);
            }
            found.accessed = PageBits::EMPTY;
            self.reclaim_state.recency.inactive.push_back(at);
        }
    }
}
