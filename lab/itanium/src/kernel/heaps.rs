//! Heaps: mappings that the kernel places one after the other, and memory mapped beyond the
//! request.

use super::policies::HeapGrowth;
use super::{ItaniumMachine, PageMapping, ProcessSpace};
use crate::address::{BasePage, REGION_LIMIT, offset_of};
use crate::error::Result;
use std::ops::Range;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeapState {
    growth: HeapGrowth,
    /// The first page after the requested memory. `surplus` counts the pages mapped from there.
    end: u64,
    surplus: u64,
    pages: u64,
}

impl HeapState {
    fn surplus(&self) -> Range<u64> {
        self.end..self.end + self.surplus
    }
}

impl ProcessSpace {
    /// A range was unmapped or moved: a heap takes nothing more from a surplus that overlaps it.
    pub(super) fn forget_heap_surplus(&mut self, first: u64, pages: u64) {
        let surplus = self.heap.surplus();
        if first < surplus.end && surplus.start < first + pages {
            self.heap = HeapState::default();
        }
    }

    /// Pages of mappings of the same kind, side by side, around a page.
    pub(super) fn neighbours(&self, page: u64) -> Option<Range<u64>> {
        let (first, mapping) = self.mapping_of(page)?;
        let alike = |other: &PageMapping| {
            (other.backing, other.writable) == (mapping.backing, mapping.writable)
        };
        let mut around = first..first + mapping.pages;
        for (start, other) in self.mappings.range(..first).rev() {
            if start + other.pages != around.start || !alike(other) {
                break;
            }
            around.start = *start;
        }
        for (start, other) in self.mappings.range(around.end..) {
            if *start != around.end || !alike(other) {
                break;
            }
            around.end = start + other.pages;
        }
        Some(around)
    }
    /// Finds a place for `pages` pages in a heap that has pages of this order at its end. Returns
    /// the first page and, for a place at the heap's end, the end of what is mapped then. A hole
    /// that was freed has no such end.
    fn find_heap_range(
        &self,
        base: BasePage,
        pages: u64,
        order: u8,
        align: u64,
    ) -> Option<(u64, Option<u64>)> {
        let hole = self.find_free_range(base, pages, align);
        if let Some(hole) = hole.filter(|hole| hole + pages <= self.heap.end) {
            return Some((hole, None));
        }
        let end_of = |first: u64| (first + pages).next_multiple_of(1 << order);
        let surplus = self.heap.surplus();
        let after = self.mapping_of(surplus.start);
        let usable = after.is_some_and(|(first, mapping)| {
            (first, mapping.pages) == (surplus.start, self.heap.surplus) && mapping.writable
        });
        let end = surplus.end.max(end_of(surplus.start));
        let in_region = offset_of(base.address_of(end)) <= REGION_LIMIT;
        if usable && in_region && self.is_free(surplus.end, end - surplus.end) {
            return Some((surplus.start, Some(end)));
        }
        let first = self.find_free_range(base, pages + (1 << order), align)?;
        Some((first, Some(end_of(first))))
    }
}

impl ItaniumMachine {
    /// Maps `pages` pages in a hole of the heap, or at its end. `None`: no heaps, or no room.
    pub(super) fn map_on_heap(
        &mut self,
        process: u32,
        pages: u64,
        preferred: u8,
        align: u64,
    ) -> Result<Option<u64>> {
        let base = self.base();
        let heap = self.space(process)?.heap;
        let mut growth = heap.growth;
        growth.preferred = growth.preferred.max(preferred);
        growth.growths += u32::from(pages < heap.pages);
        let Some(wanted) = self.rules().heap_order(&growth) else {
            return Ok(None);
        };
        let order = self.orders().largest_order(0, u64::MAX, wanted);
        growth.preferred = order;
        let space = self.space_mut(process)?;
        let Some((first, end)) = space.find_heap_range(base, pages, order, align) else {
            return Ok(None);
        };
        let mapping = PageMapping::anonymous(end.unwrap_or(first + pages) - first, order);
        space.mappings.insert(first, mapping);
        if let Some(end) = end {
            space.split_mapping(first + pages);
            space.heap = HeapState {
                growth,
                end: first + pages,
                surplus: end - first - pages,
                pages: heap.pages + pages,
            };
        }
        Ok(Some(first))
    }
}
