//! Heaps: mappings that the kernel puts one after the other, and memory beyond what was asked for.

use super::policies::HeapGrowth;
use super::{Backing, Kernel, Mapping, Space};
use crate::itanium::ItaniumError;
use crate::itanium::address::{REGION_LIMIT, offset_of};
use std::ops::Range;

/// The end of a process's heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heap {
    growth: HeapGrowth,
    /// The first page after what was asked for, and how many more are mapped from there.
    end: u64,
    surplus: u64,
    /// All of it so far.
    pages: u64,
}

impl Heap {
    /// The surplus, if there is any.
    fn surplus(&self) -> Range<u64> {
        self.end..self.end + self.surplus
    }
}

impl Space {
    /// A range has been unmapped or moved: if it is of the heap's surplus, nothing more is taken from that.
    pub(super) fn cut_heap(&mut self, first: u64, pages: u64) {
        let surplus = self.heap.surplus();
        if first < surplus.end && surplus.start < first + pages {
            self.heap = Heap::default();
        }
    }

    /// Pages of mappings of the same kind, side by side, around a page.
    pub(super) fn neighbours(&self, page: u64) -> Option<Range<u64>> {
        let (first, mapping) = self.mapping_of(page)?;
        let alike = |other: &Mapping| {
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
}

impl Kernel {
    /// Maps so many pages in a hole of the heap, or at its end; it gets larger pages as it grows. The first page. None if the policy has no
    /// heaps, or there is no room.
    pub(super) fn grow(
        &mut self,
        process: u32,
        pages: u64,
        preferred: u8,
        align: u64,
    ) -> Result<Option<u64>, ItaniumError> {
        let base = self.settings.base;
        let heap = self.space(process)?.heap;
        let mut growth = heap.growth;
        growth.preferred = growth.preferred.max(preferred);
        growth.growths += u32::from(pages < heap.pages);
        let Some(wanted) = self.settings.policy.rules().grow(&growth) else {
            return Ok(None);
        };
        let order = self.settings.orders.largest(0, u64::MAX, wanted);
        growth.preferred = order;
        let space = self.space_mut(process)?;
        let kind = |pages| Mapping {
            backing: Backing::Anonymous,
            pages,
            writable: true,
            preferred: order,
        };
        // What is mapped beyond what is asked for.
        let end_of = |first: u64| (first + pages).next_multiple_of(1 << order);
        let surplus = heap.surplus();
        let whole = space.mapping_of(heap.end);
        let usable = whole.is_some_and(|(first, m)| {
            first == surplus.start && m.pages == heap.surplus && m.writable
        });
        let inside = heap.surplus >= pages;
        let more = end_of(heap.end) - surplus.end.min(end_of(heap.end));
        let in_region = offset_of(base.address_of(end_of(heap.end))) <= REGION_LIMIT;
        let hole = space.place(base, pages, align);
        let (first, end) = if let Some(hole) = hole.filter(|hole| hole + pages <= heap.end) {
            // What was freed is used again before the heap grows.
            space.mappings.insert(hole, kind(pages));
            return Ok(Some(hole));
        } else if usable && inside {
            (heap.end, surplus.end)
        } else if usable && in_region && space.is_free(surplus.end, more) {
            (heap.end, end_of(heap.end))
        } else {
            let room = pages + (1 << order);
            match space.place(base, room, align) {
                Some(first) => (first, end_of(first)),
                None => return Ok(None),
            }
        };
        space.mappings.insert(first, kind(end - first));
        space.cut(first + pages);
        space.heap = Heap {
            growth,
            end: first + pages,
            surplus: end - first - pages,
            pages: heap.pages + pages,
        };
        Ok(Some(first))
    }
}
