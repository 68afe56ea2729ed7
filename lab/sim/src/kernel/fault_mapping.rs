//! Maps pages at faults, of any size (`alloc_anon_folio` of `mm/memory.c`), in frames from free
//! memory, or else from reclaim and compaction.

use super::costs::times;
use super::fault_policies::{FirstTouchPolicy, ZeroingPolicy};
use super::faults::SizedTouchResult;
use super::region::Reservation;
use super::space::RegionId;
use super::{KernelError, Result, SimulatedKernel, SpaceId, TouchedPages};
use crate::bits::PageBits;
use crate::memory::{AllocatedFrames, FrameContent, FrameOwner, FrameRun, HUGE_ORDER, block_of};
use hawkeye_policy::{PAGES_PER_REGION, PageOrder, PageOrders};
use std::time::Duration;

impl SimulatedKernel {
    /// How to map a region: the policy's choice while it is empty, and base pages after that.
    pub(super) fn first_touch_of(&mut self, at: RegionId) -> Result<FirstTouchPolicy> {
        let first_touch = self.faults.first_touch;
        let space = self.space_mut(at.space)?;
        let untouched = space.table.get_or_create(at.region).untouched;
        let chosen = untouched && space.holds_region(at.region);
        Ok(if chosen {
            first_touch
        } else {
            FirstTouchPolicy::Base
        })
    }

    pub(super) fn map_zero_page(
        &mut self,
        at: RegionId,
        (first, count): (u16, u16),
        choice: FirstTouchPolicy,
        sum: &mut TouchedPages,
    ) -> Result<u16> {
        let fault_ns = self.costs.base_fault_ns;
        let found = self.get_or_create_region(at)?;
        if matches!(choice, FirstTouchPolicy::Huge { .. }) {
            found.zero_mapped = PageBits::FULL;
            found.huge_zero = true;
            sum.faults.zero_page += 1;
            sum.time += times(1, fault_ns);
        } else {
            found.zero_mapped = found.zero_mapped.or(PageBits::range(first, count));
            found.untouched = false;
            sum.faults.zero_page += u64::from(count);
            sum.time += times(count.into(), fault_ns);
        }
        Ok(count)
    }

    pub(super) fn map_huge(&mut self, at: RegionId, sum: &mut TouchedPages) -> Result<bool> {
        let FirstTouchPolicy::Huge { compact } = self.first_touch_of(at)? else {
            return Ok(false);
        };
        let owner = self.owner(at, 0)?;
        let got = self.allocate_huge_frame(FrameContent::Zeroed, owner, compact, &mut sum.time);
        let Some(got) = got else {
            sum.faults.count_size_fallback(PageOrder::HUGE);
            return Ok(false);
        };
        sum.time += times(1, self.costs.huge_fault_ns);
        let cold = self.zero_in_fault(&got, true, sum);
        sum.faults.huge += 1;
        self.map_region_huge(at, block_of(got.frames.first), cold)?;
        Ok(true)
    }

    /// Maps zeroed base pages, as many as there is memory for at once.
    pub(super) fn map_base(
        &mut self,
        at: RegionId,
        (first, count): (u16, u16),
        sum: &mut TouchedPages,
    ) -> Result<u16> {
        let owner = self.owner(at, first)?;
        let reservation = self.get_or_create_region(at)?.reservation;
        let got = match reservation {
            Some(reservation) => {
                let frames = FrameRun::within_pageblock(reservation.block, first, count);
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
        sum.time += times(frames.count.into(), self.costs.base_fault_ns);
        let cold = self.zero_in_fault(&got, false, sum);
        let owned = self.space_mut(at.space)?;
        owned.resident += u64::from(frames.count);
        let found = owned.table.get_or_create(at.region);
        found.map(first, frames);
        found.cold = cold;
        self.on_pages_mapped(at, &mut sum.time);
        Ok(frames.count as u16)
    }

    /// Zeroes what a fault has to zero. Returns whether the mapped memory is in no cache.
    pub(super) fn zero_in_fault(
        &self,
        got: &AllocatedFrames,
        huge: bool,
        sum: &mut TouchedPages,
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

    pub(super) fn swap_in(
        &mut self,
        at: RegionId,
        (first, count): (u16, u16),
        sum: &mut TouchedPages,
    ) -> Result<u16> {
        let owner = self.owner(at, first)?;
        let got =
            self.allocate_base_frames(at.space, count, FrameContent::Dirty, owner, &mut sum.time)?;
        let pages = u64::from(got.frames.count);
        sum.time += times(pages, self.costs.base_fault_ns + self.costs.swap_base_ns);
        sum.time += self.reclaim_state.swap.read(pages);
        sum.faults.swapped_in += pages;
        self.reclaim_state.swap.used -= pages;
        let space = self.space_mut(at.space)?;
        space.resident += pages;
        space.swapped -= pages;
        space.table.get_or_create(at.region).map(first, got.frames);
        Ok(got.frames.count as u16)
    }

    pub(crate) fn owner(&self, at: RegionId, page: u16) -> Result<FrameOwner> {
        let (space, page) = (self.space(at.space)?.id.0, at.page(page));
        Ok(FrameOwner::Anonymous { space, page })
    }

    /// Makes a reservation for a region that has none, if a huge frame is free.
    pub(super) fn reserve_region_frames(&mut self, at: RegionId) {
        let (space, page) = (at.space.0, at.page(0));
        let owner = FrameOwner::Reserved { space, page };
        let mut nothing = Duration::ZERO;
        let got = self.allocate_huge_frame(FrameContent::Zeroed, owner, false, &mut nothing);
        if let (Some(got), Ok(found)) = (got, self.get_or_create_region(at)) {
            found.reservation = Some(Reservation {
                block: block_of(got.frames.first),
                zeroed: got.dirty == 0,
                used: 0,
            });
        }
    }
}

/// Frames that are reclaimed at a time (`SWAP_CLUSTER_MAX`).
pub(crate) const RECLAIM_BATCH: u64 = 32;

impl SimulatedKernel {
    /// Single frames, as many as single allocations would find side by side, at most `most` (1 or
    /// more). Reclaims when fewer frames than the lowest watermark are free, and adds the time for
    /// that to `time`.
    pub(crate) fn allocate_base_frames(
        &mut self,
        space: SpaceId,
        most: u16,
        prefer: FrameContent,
        owner: FrameOwner,
        time: &mut Duration,
    ) -> Result<AllocatedFrames> {
        loop {
            let spare = self
                .memory
                .free_frames()
                .saturating_sub(self.reclaim_state.watermarks.min);
            let most = u64::from(most).min(spare) as u16;
            if most > 0 {
                let got = self.memory.allocate_run(most, prefer, owner);
                return got.ok_or(KernelError::OutOfMemory(space));
            }
            if self.reclaim(RECLAIM_BATCH, time) == 0 {
                return Err(KernelError::OutOfMemory(space));
            }
        }
    }

    /// A huge frame, if more than the low watermark then remains free; `compact` may make one.
    pub(crate) fn allocate_huge_frame(
        &mut self,
        prefer: FrameContent,
        owner: FrameOwner,
        compact: bool,
        time: &mut Duration,
    ) -> Option<AllocatedFrames> {
        let needed = u64::from(PAGES_PER_REGION) + self.reclaim_state.watermarks.low;
        if self.memory.free_frames() < needed {
            return None;
        }
        let there = self.memory.has_free_huge_frame() || compact && self.compact(time);
        if !there {
            return None;
        }
        self.memory.allocate(HUGE_ORDER, prefer, owner)
    }

    /// Time to zero frames in a fault, of which `dirty` are dirty.
    pub(crate) fn zeroing_time(&self, dirty: u32, huge: bool) -> Duration {
        let dirty = u64::from(dirty);
        if huge {
            // A part of a huge page is zeroed at a huge page's speed.
            times(dirty, self.costs.zero_huge_ns) / u32::from(PAGES_PER_REGION)
        } else {
            times(dirty, self.costs.zero_base_ns)
        }
    }
}

impl SimulatedKernel {
    /// Sets the page sizes of first touches in an address space, out of the
    /// [offered](super::fault_policies::FaultPolicy::offered_sizes) ones. None means base pages.
    ///
    /// # Errors
    /// No such address space, or a size that isn't offered.
    pub fn set_fault_sizes(&mut self, space: SpaceId, orders: PageOrders) -> Result<()> {
        if orders.and(self.faults.offered_sizes) != orders {
            return Err(KernelError::Sizes(orders));
        }
        self.space_mut(space)?.fault_sizes = Some(orders);
        Ok(())
    }

    /// Maps the largest page that is allowed and fits around `first`, for which memory is free.
    /// `first` is a page in empty memory of a region, and `count` pages from there on are touched.
    pub(super) fn map_sized(
        &mut self,
        at: RegionId,
        (first, count): (u16, u16),
        sum: &mut TouchedPages,
    ) -> Result<SizedTouchResult> {
        let page = at.page(first);
        let space = self.space(at.space)?;
        let mapping = space.mapping(page);
        let own = space.fault_sizes.unwrap_or(self.faults.sizes);
        let allowed = mapping.as_ref().map_or(PageOrders::NONE, |_| own);
        let Some(smallest) = allowed.iter().next() else {
            // Another mapping may allow other sizes.
            let here = mapping.map_or(1, |mapping| mapping.end - page);
            return Ok(SizedTouchResult::Base(u64::from(count).min(here) as u16));
        };
        let found = self.get_or_create_region(at)?;
        if found.reservation.is_some() {
            return Ok(SizedTouchResult::Base(count));
        }
        let taken = found.present.or(found.zero_mapped).or(found.swapped);
        for order in allowed.iter().rev() {
            let block = block_around(first, order);
            if !self.mapping_holds_block(at, first, order)? || !block.and(taken).is_empty() {
                continue;
            }
            let Some(got) = self.sized_frames(at, first, order)? else {
                sum.faults.count_size_fallback(order);
                continue;
            };
            self.map_folio(at, (first, order), got, sum)?;
            let end = (first | (order.pages() as u16 - 1)) + 1;
            return Ok(SizedTouchResult::Mapped(count.min(end - first)));
        }
        // In the smallest block around the first page, something is mapped now, or soon will be.
        let end = (first | (smallest.pages() as u16 - 1)) + 1;
        Ok(SizedTouchResult::Base(count.min(end - first)))
    }

    /// Whether one mapping holds the block of this size around a page (`thp_vma_suitable_order`).
    pub(super) fn mapping_holds_block(
        &self,
        at: RegionId,
        page: u16,
        order: PageOrder,
    ) -> Result<bool> {
        let start = at.page(page) & !(order.pages() - 1);
        let mapping = self.space(at.space)?.mapping(at.page(page));
        Ok(mapping.is_some_and(|m| m.start <= start && start + order.pages() <= m.end))
    }

    /// Frames for a page of this size, if more than the low watermark then remains free. It neither
    /// reclaims nor compacts memory (`vma_thp_gfp_mask` under `defrag`'s default).
    pub(super) fn sized_frames(
        &mut self,
        at: RegionId,
        page: u16,
        order: PageOrder,
    ) -> Result<Option<AllocatedFrames>> {
        let owner = self.owner(at, page & !(order.pages() as u16 - 1))?;
        if self.memory.free_frames() < order.pages() + self.reclaim_state.watermarks.low {
            return Ok(None);
        }
        let order = order.number() as u8;
        Ok(self.memory.allocate(order, FrameContent::Zeroed, owner))
    }

    fn map_folio(
        &mut self,
        at: RegionId,
        (first, order): (u16, PageOrder),
        got: AllocatedFrames,
        sum: &mut TouchedPages,
    ) -> Result<()> {
        // A huge page's fault takes longer than a base page's because of its pages: each
        // `struct page` of a folio is written (`prep_compound_page`). Here there are fewer.
        let (base, huge) = (self.costs.base_fault_ns, self.costs.huge_fault_ns);
        let more = huge.saturating_sub(base) * (order.pages() - 1);
        sum.time += times(1, base + more / (u64::from(PAGES_PER_REGION) - 1));
        let cold = self.zero_in_fault(&got, false, sum);
        if let Some(count) = sum.faults.sized.get_mut(order.number() as usize) {
            *count += 1;
        }
        let owned = self.space_mut(at.space)?;
        owned.resident += order.pages();
        owned.many_sizes = true;
        let found = owned.table.get_or_create(at.region);
        found.map_folio(order, first & !(order.pages() as u16 - 1), got.frames);
        found.cold = cold;
        Ok(())
    }
}

pub(super) fn block_around(page: u16, order: PageOrder) -> PageBits {
    let pages = order.pages() as u16;
    PageBits::range(page & !(pages - 1), pages)
}
