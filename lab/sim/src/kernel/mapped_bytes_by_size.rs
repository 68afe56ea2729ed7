//! The page sizes that map an address space, and mappings too small for a huge page.

use super::address_space::{RegionId, first_page, split_at_region_boundaries};
use super::{Result, SimulatedKernel, SpaceId};
use crate::page_bits::PageBits;
use hawkeye_policy::{
    BASE_PAGE_BYTES, MemoryOutsideRegions, PAGES_PER_REGION, PageOrder, RegionAddr,
};
use std::ops::Range;

/// Memory in bytes by the order of the pages that map it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappedBytesBySize([u64; Self::ORDERS]);

impl MappedBytesBySize {
    /// Orders that pages can have: 0 to this, exclusive.
    pub const ORDERS: usize = PageOrder::GIANT.log2_pages() as usize + 1;

    /// All sizes with the memory that they map, the smallest first.
    pub fn iter(&self) -> impl Iterator<Item = (PageOrder, u64)> {
        let orders = (0..Self::ORDERS as u8).filter_map(PageOrder::new);
        orders.zip(self.0)
    }

    fn add_pages(&mut self, order: PageOrder, pages: u64) {
        if let Some(bytes) = self.0.get_mut(order.log2_pages() as usize) {
            *bytes += pages * BASE_PAGE_BYTES;
        }
    }
}

impl SimulatedKernel {
    /// The memory of an address space, by the size of the pages that map it.
    ///
    /// # Errors
    /// No such address space.
    pub fn mapped_bytes_by_size(&self, space: SpaceId) -> Result<MappedBytesBySize> {
        let space = self.space(space)?;
        let mut mapped = MappedBytesBySize::default();
        if space.many_sizes {
            let sizes = space.table.iter().flat_map(|(_, region)| region.count_pages_by_size());
            for (order, pages) in sizes {
                mapped.add_pages(order, pages.into());
            }
        } else {
            let huge = space.huge * u64::from(PAGES_PER_REGION);
            mapped.add_pages(PageOrder::HUGE, huge);
            mapped.add_pages(PageOrder::BASE, space.resident - huge);
        }
        Ok(mapped)
    }

    /// Memory of mappings, or of their ends, that no whole region fits in.
    ///
    /// # Errors
    /// No such address space.
    pub fn memory_outside_regions(&self, space: SpaceId) -> Result<MemoryOutsideRegions> {
        let owned = self.space(space)?;
        let mut outside = MemoryOutsideRegions::default();
        for (start, last) in &owned.mappings {
            for end in pages_outside_whole_regions(*start..*last) {
                for (order, pages) in aligned_blocks(end.clone()) {
                    if let Some(bytes) = outside.mapped_bytes.get_mut(order as usize) {
                        *bytes += pages * BASE_PAGE_BYTES;
                    }
                }
                let pieces =
                    split_at_region_boundaries(end).filter_map(|(region, first, count)| {
                        let found = owned.table.get(region)?;
                        Some(found.present.and(PageBits::range(first, count)).count())
                    });
                let pages: u64 = pieces.map(u64::from).sum();
                outside.resident_bytes += pages * BASE_PAGE_BYTES;
            }
        }
        Ok(outside)
    }

    /// Whether one mapping holds all of a region.
    pub fn is_region_in_one_mapping(&self, space: SpaceId, region: RegionAddr) -> bool {
        let found = self.spaces.get(&space);
        found.is_some_and(|space| {
            space.is_region_in_one_mapping(RegionId::new(space.id, region).region)
        })
    }
}

/// The pages before the first whole region and behind the last; all pages without one.
fn pages_outside_whole_regions(pages: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let per_region = u64::from(PAGES_PER_REGION);
    let first = first_page(pages.start.div_ceil(per_region));
    let last = first_page(pages.end / per_region);
    let parts = if first < last {
        [pages.start..first, last..pages.end]
    } else {
        [pages.start..pages.end, pages.end..pages.end]
    };
    parts.into_iter().filter(|part| !part.is_empty())
}

/// The largest aligned blocks into which pages can be cut: order and pages of each.
fn aligned_blocks(pages: Range<u64>) -> impl Iterator<Item = (u32, u64)> {
    let mut from = pages.start;
    std::iter::from_fn(move || {
        let left = pages.end.checked_sub(from).filter(|left| *left > 0)?;
        let aligned = if from == 0 { u32::MAX } else { from.trailing_zeros() };
        let order = aligned.min(left.ilog2()).min(PageOrder::HUGE.log2_pages() - 1);
        from += 1 << order;
        Some((order, 1 << order))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_cut_into_aligned_blocks() {
        let parts: Vec<_> = pages_outside_whole_regions(500..1600).collect();
        assert_eq!(parts, [500..512, 1536..1600]);
        assert_eq!(pages_outside_whole_regions(512..1024).count(), 0);
        for whole in [520..1030, 1000..1040] {
            let parts: Vec<_> = pages_outside_whole_regions(whole.clone()).collect();
            assert_eq!(parts, std::slice::from_ref(&whole));
        }
        let cut: Vec<_> = aligned_blocks(500..520).collect();
        assert_eq!(cut, [(2, 4), (3, 8), (3, 8)]);
        let cut: Vec<_> = aligned_blocks(0..1024).map(|(order, _)| order).collect();
        assert_eq!(cut, [8; 4]);
    }
}
