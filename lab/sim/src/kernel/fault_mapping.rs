//! Maps pages at faults.

use super::address_space::RegionId;
use super::fault_policies::{FirstTouchPolicy, ZeroingPolicy};
use super::kernel_costs::time_of_operations;
use super::region_mapping::Reservation;
use super::{Result, SimulatedKernel, TouchResult};
use crate::memory::{AllocatedFrames, FrameContent, FrameOwner, FrameRun, pageblock_of_frame};
use crate::page_bits::PageBits;
use hawkeye_policy::PageOrder;
use std::time::Duration;

impl SimulatedKernel {
    /// How to map a region: the policy's choice while it is empty, and base pages after that.
    pub(super) fn first_touch_policy_of_region(
        &mut self,
        at: RegionId,
    ) -> Result<FirstTouchPolicy> {
        let first_touch = self.faults.first_touch;
        let space = self.space_mut(at.space)?;
        let untouched = space.table.get_or_create(at.region).untouched;
        let chosen = untouched && space.is_region_in_one_mapping(at.region);
        Ok(if chosen { first_touch } else { FirstTouchPolicy::Base })
    }

    pub(super) fn map_shared_zero_pages(
        &mut self,
        at: RegionId,
        (first, count): (u16, u16),
        choice: FirstTouchPolicy,
        sum: &mut TouchResult,
    ) -> Result<u16> {
        let fault_ns = self.costs.base_fault_ns;
        let found = self.get_or_create_region(at)?;
        if matches!(choice, FirstTouchPolicy::Huge { .. }) {
            found.zero_mapped = PageBits::FULL;
            found.huge_zero = true;
            sum.faults.zero_page += 1;
            sum.time += time_of_operations(1, fault_ns);
        } else {
            found.zero_mapped = found.zero_mapped.or(PageBits::range(first, count));
            found.untouched = false;
            sum.faults.zero_page += u64::from(count);
            sum.time += time_of_operations(count.into(), fault_ns);
        }
        Ok(count)
    }

    pub(super) fn try_huge_page_at_first_touch(
        &mut self,
        at: RegionId,
        sum: &mut TouchResult,
    ) -> Result<bool> {
        let FirstTouchPolicy::Huge { compact } = self.first_touch_policy_of_region(at)? else {
            return Ok(false);
        };
        let owner = self.new_anonymous_owner(at, 0)?;
        let got = self.allocate_huge_frame(FrameContent::Zeroed, owner, compact, &mut sum.time);
        let Some(got) = got else {
            sum.faults.record_size_fallback(PageOrder::HUGE);
            return Ok(false);
        };
        sum.time += time_of_operations(1, self.costs.huge_fault_ns);
        let cold = self.charge_zeroing_in_fault(&got, true, sum);
        sum.faults.huge += 1;
        self.map_region_huge(at, pageblock_of_frame(got.frames.first), cold)?;
        Ok(true)
    }

    /// Maps zeroed base pages, as many as there is memory for at once.
    pub(super) fn map_base_pages(
        &mut self,
        at: RegionId,
        (first, count): (u16, u16),
        sum: &mut TouchResult,
    ) -> Result<u16> {
        let owner = self.new_anonymous_owner(at, first)?;
        let reservation = self.get_or_create_region(at)?.reservation;
        let got = match reservation {
            Some(reservation) => {
                let frames = FrameRun::from_pageblock_offset(reservation.block, first, count);
                self.memory.change_frame_owner(frames, owner);
                let dirty = if reservation.zeroed { 0 } else { frames.count };
                AllocatedFrames { frames, dirty }
            }
            None => self.allocate_base_frames(
                at.space,
                count,
                FrameContent::Zeroed,
                owner,
                &mut sum.time,
            )?,
        };
        let frames = got.frames;
        sum.time += time_of_operations(frames.count.into(), self.costs.base_fault_ns);
        let cold = self.charge_zeroing_in_fault(&got, false, sum);
        let owned = self.space_mut(at.space)?;
        owned.resident += u64::from(frames.count);
        let found = owned.table.get_or_create(at.region);
        found.map_pages(first, frames);
        found.cold = cold;
        self.update_reservation_of_region(at, &mut sum.time);
        Ok(frames.count as u16)
    }

    /// Zeroes what a fault has to zero. Returns whether the mapped memory is in no cache.
    pub(super) fn charge_zeroing_in_fault(
        &self,
        got: &AllocatedFrames,
        huge: bool,
        sum: &mut TouchResult,
    ) -> bool {
        let all = match self.faults.zeroing {
            ZeroingPolicy::Never => 0,
            ZeroingPolicy::InFault => got.frames.count,
            ZeroingPolicy::InAdvance => got.dirty,
        };
        sum.time += self.zeroing_time(all, huge);
        sum.zeroed += u64::from(all);
        all == 0
    }

    pub(super) fn swap_in_leading_pages(
        &mut self,
        at: RegionId,
        (first, count): (u16, u16),
        sum: &mut TouchResult,
    ) -> Result<u16> {
        let owner = self.new_anonymous_owner(at, first)?;
        let got =
            self.allocate_base_frames(at.space, count, FrameContent::Dirty, owner, &mut sum.time)?;
        let pages = u64::from(got.frames.count);
        sum.time += time_of_operations(pages, self.costs.base_fault_ns + self.costs.swap_base_ns);
        sum.time += self.reclaim_state.swap.read_time(pages);
        sum.faults.swapped_in += pages;
        self.reclaim_state.swap.used -= pages;
        let space = self.space_mut(at.space)?;
        space.resident += pages;
        space.swapped -= pages;
        space.table.get_or_create(at.region).map_pages(first, got.frames);
        Ok(got.frames.count as u16)
    }

    pub(crate) fn new_anonymous_owner(&self, at: RegionId, page: u16) -> Result<FrameOwner> {
        let (space, page) = (self.space(at.space)?.id.0, at.page_number(page));
        Ok(FrameOwner::Anonymous { space, page })
    }

    /// Makes a reservation for a region that has none, if a huge frame is free.
    pub(super) fn reserve_huge_frame_for_region(&mut self, at: RegionId) {
        let (space, page) = (at.space.0, at.page_number(0));
        let owner = FrameOwner::Reserved { space, page };
        let mut nothing = Duration::ZERO;
        let got = self.allocate_huge_frame(FrameContent::Zeroed, owner, false, &mut nothing);
        if let (Some(got), Ok(found)) = (got, self.get_or_create_region(at)) {
            found.reservation = Some(Reservation {
                block: pageblock_of_frame(got.frames.first),
                zeroed: got.dirty == 0,
                used: 0,
            });
        }
    }
}
