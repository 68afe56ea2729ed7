//! First touches that map a page between a base and a huge page (`alloc_anon_folio` of
//! `mm/memory.c`).

use super::address_space::RegionId;
use super::faults::NonHugeTouchResult;
use super::kernel_costs::time_of_operations;
use super::{KernelError, Result, SimulatedKernel, SpaceId, TouchResult};
use crate::memory::{AllocatedFrames, FrameContent};
use crate::page_bits::PageBits;
use hawkeye_policy::{PAGES_PER_REGION, PageOrder, PageOrderSet};

impl SimulatedKernel {
    /// Sets the page sizes of first touches in an address space, out of the
    /// [offered](super::fault_policies::FaultPolicy::offered_sizes) ones. None means base pages.
    ///
    /// # Errors
    /// No such address space, or a size that isn't offered.
    pub fn set_fault_sizes(&mut self, space: SpaceId, orders: PageOrderSet) -> Result<()> {
        if orders.intersection(self.faults.offered_sizes) != orders {
            return Err(KernelError::Sizes(orders));
        }
        self.space_mut(space)?.fault_sizes = Some(orders);
        Ok(())
    }

    /// Maps the largest page that is allowed and fits around `first`, for which memory is free.
    /// `first` is a page in empty memory of a region, and `count` pages from there on are touched.
    pub(super) fn try_map_sized_page(
        &mut self,
        at: RegionId,
        (first, count): (u16, u16),
        sum: &mut TouchResult,
    ) -> Result<NonHugeTouchResult> {
        let page = at.page_number(first);
        let space = self.space(at.space)?;
        let mapping = space.mapping_of_page(page);
        let own = space.fault_sizes.unwrap_or(self.faults.sizes);
        let allowed = mapping.as_ref().map_or(PageOrderSet::NONE, |_| own);
        let Some(smallest) = allowed.iter().next() else {
            // Another mapping may allow other sizes.
            let here = mapping.map_or(1, |mapping| mapping.end - page);
            return Ok(NonHugeTouchResult::Base(u64::from(count).min(here) as u16));
        };
        let found = self.get_or_create_region(at)?;
        if found.reservation.is_some() {
            return Ok(NonHugeTouchResult::Base(count));
        }
        let taken = found.present.or(found.zero_mapped).or(found.swapped);
        for order in allowed.iter().rev() {
            let block = page_bits_of_block_around(first, order);
            if !self.mapping_holds_block(at, first, order)? || !block.and(taken).is_empty() {
                continue;
            }
            let Some(got) = self.allocate_folio_frames(at, first, order)? else {
                sum.faults.record_size_fallback(order);
                continue;
            };
            self.map_folio(at, (first, order), got, sum)?;
            let end = (first | (order.pages() as u16 - 1)) + 1;
            return Ok(NonHugeTouchResult::Mapped(count.min(end - first)));
        }
        // In the smallest block around the first page, something is mapped now, or soon will be.
        let end = (first | (smallest.pages() as u16 - 1)) + 1;
        Ok(NonHugeTouchResult::Base(count.min(end - first)))
    }

    /// Whether one mapping holds the block of this size around a page (`thp_vma_suitable_order`).
    pub(super) fn mapping_holds_block(
        &self,
        at: RegionId,
        page: u16,
        order: PageOrder,
    ) -> Result<bool> {
        let start = at.page_number(page) & !(order.pages() - 1);
        let mapping = self.space(at.space)?.mapping_of_page(at.page_number(page));
        Ok(mapping.is_some_and(|m| m.start <= start && start + order.pages() <= m.end))
    }

    /// Frames for a page of this size, if more than the low watermark then remains free. It neither
    /// reclaims nor compacts memory (`vma_thp_gfp_mask` under `defrag`'s default).
    pub(super) fn allocate_folio_frames(
        &mut self,
        at: RegionId,
        page: u16,
        order: PageOrder,
    ) -> Result<Option<AllocatedFrames>> {
        let owner = self.new_anonymous_owner(at, page & !(order.pages() as u16 - 1))?;
        if self.memory.count_free_frames() < order.pages() + self.reclaim_state.watermarks.low {
            return Ok(None);
        }
        let order = order.log2_pages() as u8;
        Ok(self.memory.allocate(order, FrameContent::Zeroed, owner))
    }

    fn map_folio(
        &mut self,
        at: RegionId,
        (first, order): (u16, PageOrder),
        got: AllocatedFrames,
        sum: &mut TouchResult,
    ) -> Result<()> {
        // A huge page's fault takes longer than a base page's because of its pages: each
        // `struct page` of a folio is written (`prep_compound_page`). Here there are fewer.
        let (base, huge) = (self.costs.base_fault_ns, self.costs.huge_fault_ns);
        let more = huge.saturating_sub(base) * (order.pages() - 1);
        sum.time += time_of_operations(1, base + more / (u64::from(PAGES_PER_REGION) - 1));
        let cold = self.charge_zeroing_in_fault(&got, false, sum);
        if let Some(count) = sum.faults.sized.get_mut(order.log2_pages() as usize) {
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

pub(super) fn page_bits_of_block_around(page: u16, order: PageOrder) -> PageBits {
    let pages = order.pages() as u16;
    PageBits::range(page & !(pages - 1), pages)
}
