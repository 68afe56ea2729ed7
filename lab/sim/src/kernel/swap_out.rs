//! Swapping out: which regions are next by the [`ReclaimLists`], and which of their pages go.

use super::SimulatedKernel;
use super::address_space::RegionId;
use super::kernel_costs::time_of_operations;
use super::reclaim_lists::{ReclaimListEntry, ReclaimLists};
use super::simulated_kernel::ReclaimState;
use super::swap_device::{SwapDevice, SwapSpec};
use crate::page_bits::PageBits;
use hawkeye_policy::BASE_PAGE_BYTES;
use std::time::Duration;

/// Average visits to each region before nothing is left that could be swapped out. The first visit
/// finds that it was accessed, the second that it was not.
const MOST_LOOKS: usize = 2;

impl SimulatedKernel {
    /// Whether memory is so short that reclaim may look for old pages. That is so if less than this
    /// many times the high watermark is free, or if pages are in swap.
    pub(crate) fn is_memory_short(&self, times_high: u64) -> bool {
        let ReclaimState { watermarks, swap, .. } = &self.reclaim_state;
        self.memory.count_free_frames() < times_high * watermarks.high || swap.used > 0
    }

    /// Adds a swap device that nothing is on, or removes it.
    pub fn set_swap(&mut self, spec: Option<SwapSpec>) {
        self.reclaim_state.swap = SwapDevice::new(spec);
    }

    pub(crate) fn has_swap(&self) -> bool {
        self.reclaim_state.swap.is_configured()
    }

    /// Swaps out pages not accessed lately; returns their number. Splits huge pages first.
    pub(crate) fn swap_out(&mut self, want: u64, time: &mut Duration) -> u64 {
        let want = want.min(self.reclaim_state.swap.count_free_swap_pages());
        self.enlist_touched_regions();
        let mut done = 0;
        let mut looks = MOST_LOOKS * self.reclaim_state.recency.len();
        while done < want && looks > 0 {
            looks -= 1;
            let Some(at) = self.pop_inactive_region() else {
                break;
            };
            let (gone, more) = self.swap_out_region(at.region, want - done, time);
            done += gone;
            let recency = &mut self.reclaim_state.recency;
            if more {
                recency.inactive.push_front(at);
            } else {
                // It was accessed, or nothing of it can be swapped out.
                recency.active.push_back(at);
            }
        }
        done
    }

    /// Swaps out pages of a region; returns their number, and whether more are left.
    fn swap_out_region(&mut self, at: RegionId, want: u64, time: &mut Duration) -> (u64, bool) {
        let found = self.region_mut(at);
        let Some(found) = found.filter(|found| found.file.is_none()) else {
            return (0, false);
        };
        let accessed = std::mem::take(&mut found.accessed);
        let old = found.present.minus(accessed);
        if old.is_empty() || found.huge.is_some() && !accessed.is_empty() {
            return (0, false);
        }
        if u64::from(old.count()) > want {
            // The rest of it will be visited again.
            found.accessed = accessed;
        }
        let splits = self.split_huge(at).unwrap_or(0);
        *time += time_of_operations(splits, self.costs.split_ns);
        let mut left = want;
        for (first, count) in old.runs() {
            let count = u64::from(count).min(left) as u16;
            left -= u64::from(count);
            self.swap_out_run(at, first, count);
            if left == 0 {
                break;
            }
        }
        let pages = want - left;
        self.reports.remapped.record(at);
        *time += time_of_operations(pages, self.costs.swap_base_ns)
            + self.reclaim_state.swap.write_pages(pages);
        (pages, u64::from(old.count()) > pages)
    }

    fn swap_out_run(&mut self, at: RegionId, first: u16, count: u16) {
        let Some(space) = self.spaces.get_mut(&at.space) else {
            return;
        };
        let found = space.table.get_or_create(at.region);
        let pages = PageBits::range(first, count);
        let runs = found.unmap_pages(pages);
        found.swapped = found.swapped.or(pages);
        space.resident -= u64::from(count);
        space.swapped += u64::from(count);
        self.reclaim_state.swap.used += u64::from(count);
        for run in runs {
            self.release_unmapped_frames(run);
        }
        self.break_reservation(at);
    }

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
    fn pop_inactive_region(&mut self) -> Option<ReclaimListEntry> {
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
