//! FreeBSD's partly populated reservations, in the order of use.

use super::costs::times;
use super::space::first_page;
use super::{Kernel, SpaceId};
use crate::bits::PageBits;
use crate::memory::{FrameRun, Owner, Run};
use hawkeye_policy::PAGES_PER_REGION;
use std::collections::BTreeMap;
use std::time::Duration;

/// Least recently used first (`vm_rvq_partpop`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Reservations {
    /// Regions by the time at which a page was last populated.
    queue: BTreeMap<u64, (SpaceId, u64)>,
    clock: u64,
    /// Reservations that were broken because memory was short.
    pub(crate) broken: u64,
}

impl Reservations {
    pub(crate) fn len(&self) -> u64 {
        self.queue.len() as u64
    }
}

impl Kernel {
    /// Pages of a region were mapped: its reservation moves to the end of the queue, and becomes a
    /// huge page when it is fully populated.
    pub(crate) fn populated(&mut self, space: SpaceId, region: u64, time: &mut Duration) {
        let Some(owned) = self.spaces.get_mut(space) else {
            return;
        };
        let Some(found) = owned.table.get_mut(region) else {
            return;
        };
        let Some(reservation) = &mut found.reservation else {
            return;
        };
        self.huge_frames
            .reservations
            .queue
            .remove(&reservation.used);
        let frames = FrameRun::of_block(reservation.block);
        let whole = Run::new(0, PAGES_PER_REGION, frames.first.into());
        if found.frames.is(whole) {
            let block = reservation.block;
            found.reservation = None;
            found.become_huge(block);
            owned.huge += 1;
            let owner = Owner::Anonymous {
                space: space.0,
                page: first_page(region),
            };
            self.memory.hand_over(frames, owner);
            // The page table is scanned once.
            *time += times(1, self.costs.read_region_ns);
        } else {
            self.huge_frames.reservations.clock += 1;
            reservation.used = self.huge_frames.reservations.clock;
            self.huge_frames
                .reservations
                .queue
                .insert(reservation.used, (space, region));
        }
    }

    /// Gives the unused frames of reservations back, least recently used first, until `want` are
    /// free. Returns the number of frames.
    pub(crate) fn break_reservations(&mut self, want: u64) -> u64 {
        let mut freed = 0;
        while freed < want {
            let Some((_, (space, region))) = self.huge_frames.reservations.queue.first_key_value()
            else {
                break;
            };
            freed += self.break_reservation(*space, *region);
            self.huge_frames.reservations.broken += 1;
        }
        freed
    }

    /// Ends the reservation of a region, if it has one; returns the number of unused frames that
    /// this frees.
    pub(crate) fn break_reservation(&mut self, space: SpaceId, region: u64) -> u64 {
        let found = self.spaces.get_mut(space);
        let found = found.and_then(|space| space.table.get_mut(region));
        let Some(reservation) = found.and_then(|found| found.reservation.take()) else {
            return 0;
        };
        self.huge_frames
            .reservations
            .queue
            .remove(&reservation.used);
        let unused = self.memory.reserved_frames(reservation.block);
        let start = FrameRun::of_block(reservation.block).first;
        for (first, count) in unused.each_run() {
            self.memory
                .free(FrameRun::new(start + u32::from(first), count.into()));
        }
        unused.count().into()
    }

    /// Pages of a region were unmapped and their frames freed: the rest of its reservation ends.
    ///
    /// FreeBSD puts the freed pages back into the reservation and keeps it while a page is
    /// populated.
    pub(crate) fn leave_reservation(&mut self, space: SpaceId, region: u64) {
        self.break_reservation(space, region);
    }
}

impl crate::memory::PhysicalMemory {
    fn reserved_frames(&self, block: u32) -> PageBits {
        let start = FrameRun::of_block(block).first;
        let mut reserved = PageBits::EMPTY;
        for place in 0..PAGES_PER_REGION {
            let owner = self.owner(start + u32::from(place));
            if matches!(owner, Some(Owner::Reserved { .. })) {
                reserved.insert(place);
            }
        }
        reserved
    }
}
