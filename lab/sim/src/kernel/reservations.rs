//! FreeBSD's partly populated reservations, in the order of use.

use super::SimulatedKernel;
use super::address_space::RegionId;
use super::kernel_costs::time_of_operations;
use crate::memory::{AscendingRun, FrameOwner, FrameRun};
use crate::page_bits::PageBits;
use hawkeye_policy::PAGES_PER_REGION;
use std::collections::BTreeMap;
use std::time::Duration;

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
    pub(crate) fn update_reservation_of_region(&mut self, at: RegionId, time: &mut Duration) {
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
        let frames = FrameRun::of_pageblock(block);
        if found.frames.is_exactly_run(AscendingRun::new(0, PAGES_PER_REGION, frames.first.into()))
        {
            found.reservation = None;
            found.map_huge_page(block);
            owned.huge += 1;
            let (space, page) = (at.space.0, at.page_number(0));
            self.memory.change_frame_owner(frames, FrameOwner::Anonymous { space, page });
            // The page table is scanned once.
            *time += time_of_operations(1, self.costs.read_region_ns);
        } else {
            *clock += 1;
            reservation.used = *clock;
            queue.insert(*clock, at);
        }
    }

    /// Frees unused frames, least recently used first, until `want` are free; returns their number.
    pub(crate) fn break_oldest_reservations(&mut self, want: u64) -> u64 {
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
        let unused = self.memory.reserved_frame_bits(reservation.block);
        for (first, count) in unused.runs() {
            let frames = FrameRun::from_pageblock_offset(reservation.block, first, count);
            self.memory.free(frames);
        }
        unused.count().into()
    }
}

impl crate::memory::PhysicalMemory {
    pub(super) fn reserved_frame_bits(&self, block: u32) -> PageBits {
        let start = FrameRun::of_pageblock(block).first;
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
