//! First touches that map a page between a base and a huge one (`alloc_anon_folio` of `mm/memory.c`).

use super::costs::times;
use super::fault_sum::Sum;
use super::space::first_page;
use super::{Kernel, KernelError, SpaceId};
use crate::bits::PageBits;
use crate::memory::{Allocated, Content, MigrateType, Owner};
use hawkeye_policy::{PAGES_PER_REGION, PageOrder, PageOrders};
use std::time::Duration;

/// What a first touch that gets no huge page gets.
pub(super) enum Sized {
    /// A page of some size, by which so many of the touched pages are there.
    Mapped(u16),
    /// Base pages, so many of the touched ones at the most: others may get larger ones.
    Base(u16),
}

impl Kernel {
    /// Has memory of an address space that is touched for the first time be given pages of these sizes, which are of those
    /// that the kernel [offers](super::fault_policies::FaultPolicy::offered_sizes); none: base pages.
    ///
    /// # Errors
    /// No such address space, or a size that isn't offered.
    pub fn set_fault_sizes(
        &mut self,
        space: SpaceId,
        orders: PageOrders,
    ) -> Result<(), KernelError> {
        if orders.and(self.faults.offered_sizes()) != orders {
            return Err(KernelError::Sizes(orders));
        }
        self.space_mut(space)?.fault_sizes = Some(orders);
        Ok(())
    }

    /// Maps the largest page that is allowed and fits around `first`, a page of a region in which nothing is, and for which
    /// memory is free; `count` pages from there on are touched.
    pub(super) fn map_sized(
        &mut self,
        space: SpaceId,
        region: u64,
        (first, count): (u16, u16),
        sum: &mut Sum,
    ) -> Result<Sized, KernelError> {
        let page = first_page(region) + u64::from(first);
        let allowed = self.allowed_sizes(space, page)?;
        let Some(smallest) = allowed.iter().next() else {
            let end = self.space(space)?.mapping(page).map(|(_, m)| m.end);
            // Another mapping may be given others.
            let here = end.map_or(1, |end| end - page);
            return Ok(Sized::Base(u64::from(count).min(here) as u16));
        };
        let found = self.space_mut(space)?.table.touch(region);
        if found.reservation.is_some() {
            return Ok(Sized::Base(count));
        }
        let taken = found.present.or(found.zero_mapped).or(found.swapped);
        for order in allowed.iter().rev() {
            let block = block_around(first, order);
            if !self.fits(space, page, order)? || !block.and(taken).is_empty() {
                continue;
            }
            let Some(got) = self.sized_frames(space, page, order)? else {
                sum.faults.fall_back(order);
                continue;
            };
            self.map_folio(space, region, (first, order), got, sum)?;
            let end = (first | (order.pages() as u16 - 1)) + 1;
            return Ok(Sized::Mapped(count.min(end - first)));
        }
        // Around the pages of the smallest block there is something now, or soon.
        let end = (first | (smallest.pages() as u16 - 1)) + 1;
        Ok(Sized::Base(count.min(end - first)))
    }

    fn allowed_sizes(&self, space: SpaceId, page: u64) -> Result<PageOrders, KernelError> {
        let space = self.space(space)?;
        let Some((_, mapping)) = space.mapping(page) else {
            return Ok(PageOrders::NONE);
        };
        let all = self.faults.sizes(mapping.advice);
        Ok(match space.fault_sizes {
            Some(_) if mapping.advice == super::HugeAdvice::NoHuge => PageOrders::NONE,
            Some(own) => own,
            None => all,
        })
    }

    /// Whether the mapping of a page holds all of the block of this size around it (`thp_vma_suitable_order`).
    pub(super) fn fits(
        &self,
        space: SpaceId,
        page: u64,
        order: PageOrder,
    ) -> Result<bool, KernelError> {
        let start = page & !(order.pages() - 1);
        let mapping = self.space(space)?.mapping(page);
        Ok(mapping
            .is_some_and(|(from, mapping)| from <= start && start + order.pages() <= mapping.end))
    }

    /// Frames for a page of this size, if that leaves more free than the low watermark: nobody reclaims or compacts for
    /// it (`vma_thp_gfp_mask` under `defrag`'s default).
    pub(super) fn sized_frames(
        &mut self,
        space: SpaceId,
        page: u64,
        order: PageOrder,
    ) -> Result<Option<Allocated>, KernelError> {
        let owner: Owner = self.owner(space, page & !(order.pages() - 1))?;
        if self.memory.free_frames() < order.pages() + self.reclaim_state.watermarks.low {
            return Ok(None);
        }
        let order = order.number() as u8;
        Ok(self
            .memory
            .allocate(order, MigrateType::Movable, Content::Zeroed, owner))
    }

    fn map_folio(
        &mut self,
        space: SpaceId,
        region: u64,
        (first, order): (u16, PageOrder),
        got: Allocated,
        sum: &mut Sum,
    ) -> Result<(), KernelError> {
        sum.time += self.sized_fault_time(order);
        let (cold, zeroed) = self.zero_in_fault(&got, false, &mut sum.time);
        sum.zeroed += zeroed;
        if let Some(count) = sum.faults.sized.get_mut(order.number() as usize) {
            *count += 1;
        }
        let owned = self.space_mut(space)?;
        owned.resident += order.pages();
        owned.many_sizes = true;
        let found = owned.table.touch(region);
        found.map_folio(order, first & !(order.pages() as u16 - 1), got.frames);
        found.cold = cold;
        Ok(())
    }

    /// A fault that maps a page of this size, without zeroing it: what a huge page's takes more than a base page's is for its
    /// pages (each `struct page` of a folio is written, `prep_compound_page`), and here there are fewer.
    fn sized_fault_time(&self, order: PageOrder) -> Duration {
        let (base, huge) = (self.costs.base_fault_ns, self.costs.huge_fault_ns);
        let pages = order.pages() - 1;
        times(
            1,
            base + huge.saturating_sub(base) * pages / (u64::from(PAGES_PER_REGION) - 1),
        )
    }
}

/// The naturally aligned block of this size around a page.
pub(super) fn block_around(page: u16, order: PageOrder) -> PageBits {
    let pages = order.pages() as u16;
    PageBits::range(page & !(pages - 1), pages)
}
