//! An address space: its mappings, the place of the next one, its heap, and its page table.

use super::ItaniumMachine;
use super::policies::HeapGrowth;
use crate::address::{BasePageSize, REGION_BITS, REGION_LIMIT, offset_in_region};
use crate::error::Result;
use crate::mmu::{Pte, RegionRegisters};
use std::collections::BTreeMap;
use std::ops::Range;

/// Where programs' mappings begin: region 1 (`TASK_UNMAPPED_BASE`), behind the dynamic loader and
/// libraries. Their size is chosen (2,368 KiB); it decides alignment where the kernel pads nothing.
const FIRST_MAPPING: u64 = (1 << REGION_BITS) + 0x25_0000;

/// Backing of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingBacking {
    /// Anonymous memory, as from `malloc`.
    Anonymous,
    /// A file, as for a program's text and data. Never on large pages (thesis, section 5.5.2).
    File,
}

/// One call of `mmap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryMapping {
    /// Its backing.
    pub backing: MappingBacking,
    /// Number of pages.
    pub pages: u64,
    /// Whether writes are allowed.
    pub writable: bool,
    /// The order that its pages should have, if possible: as advised, or as a heap has reached it.
    /// 0 otherwise, and for policies that choose by themselves.
    pub preferred: u8,
}

impl MemoryMapping {
    pub(super) fn new_anonymous(pages: u64, preferred: u8) -> Self {
        Self { backing: MappingBacking::Anonymous, pages, writable: true, preferred }
    }
}

/// The memory of a process.
#[derive(Clone, Debug)]
pub struct ProcessSpace {
    /// Region registers of the process.
    pub registers: RegionRegisters,
    /// Page table of the process.
    pub table: PageTable,
    /// Mappings by first page.
    pub mappings: BTreeMap<u64, MemoryMapping>,
    pub(super) heap: HeapState,
}

impl ProcessSpace {
    /// A space without mappings.
    pub fn new(base: BasePageSize, registers: RegionRegisters) -> Self {
        Self {
            registers,
            table: PageTable::new(base),
            mappings: BTreeMap::new(),
            heap: HeapState::default(),
        }
    }

    /// The mapping that holds a page: its first page, and itself.
    pub fn mapping_around_page(&self, page: u64) -> Option<(u64, MemoryMapping)> {
        let (first, mapping) = self.mappings.range(..=page).next_back()?;
        (page < first + mapping.pages).then_some((*first, *mapping))
    }

    /// Whether nothing is mapped in a range of pages.
    pub fn is_range_unmapped(&self, first: u64, pages: u64) -> bool {
        let before = self.mappings.range(..first + pages).next_back();
        before.is_none_or(|(start, mapping)| start + mapping.pages <= first)
    }

    /// The first page of the range that isn't mapped.
    pub fn first_unmapped_page(&self, first: u64, pages: u64) -> Option<u64> {
        let mut at = first;
        while at < first + pages {
            let Some((start, mapping)) = self.mapping_around_page(at) else {
                return Some(at);
            };
            at = start + mapping.pages;
        }
        None
    }

    /// Finds the lowest place for `pages` pages. Each mapping begins at a multiple of `align` pages
    /// after the one before (`arch_get_unmapped_area` and `superpage_vm_align`, thesis, section
    /// 5.5.4). `None` if the region is full.
    pub fn find_free_range(&self, base: BasePageSize, pages: u64, align: u64) -> Option<u64> {
        self.find_free_range_from(base, FIRST_MAPPING, pages, align)
    }

    /// As [`Self::find_free_range`], in another region or from another address on.
    pub fn find_free_range_from(
        &self,
        base: BasePageSize,
        start: u64,
        pages: u64,
        align: u64,
    ) -> Option<u64> {
        let aligned = |page: u64| page.next_multiple_of(align.max(1));
        let mut at = aligned(base.page_of_address(start));
        for (first, mapping) in self.mappings.range(base.page_of_address(start)..) {
            if at + pages <= *first {
                break;
            }
            at = at.max(aligned(first + mapping.pages));
        }
        let end = base.page_of_address((start & !((1 << REGION_BITS) - 1)) + REGION_LIMIT);
        (at + pages <= end).then_some(at)
    }

    /// Cuts the mapping around a page, so that one mapping begins at the page.
    pub fn split_mapping_at(&mut self, page: u64) {
        if let Some((first, mapping)) =
            self.mapping_around_page(page).filter(|(first, _)| *first < page)
        {
            let of = |pages| MemoryMapping { pages, ..mapping };
            self.mappings.insert(page, of(first + mapping.pages - page));
            self.mappings.insert(first, of(page - first));
        }
    }
}

/// The levels above hold only pointers (thesis, section 5.2) and are not modelled.
#[derive(Clone, Debug)]
struct LeafPageTable {
    frame: u32,
    entries: Box<[Option<Pte>]>,
}

/// Leaves by number. They stay until the process ends.
#[derive(Clone, Debug)]
pub struct PageTable {
    shift: u32,
    leaves: BTreeMap<u64, LeafPageTable>,
}

impl PageTable {
    /// An empty table for pages of this size.
    pub fn new(base: BasePageSize) -> Self {
        Self { shift: base.table_entries_shift(), leaves: BTreeMap::new() }
    }

    /// The entry of a page, if it was ever set.
    #[inline]
    pub fn get_entry(&self, page: u64) -> Option<Pte> {
        let leaf = self.leaves.get(&(page >> self.shift))?;
        *leaf.entries.get(self.entry_index_in_leaf(page))?
    }

    /// The entry of a page. Without one, it counts as a base page without memory.
    #[inline]
    pub fn entry_or_empty(&self, page: u64) -> Pte {
        self.get_entry(page).unwrap_or(Pte::new_without_memory(0))
    }

    /// The frame of the leaf that holds a page's entry.
    pub fn leaf_frame_of_page(&self, page: u64) -> Option<u32> {
        Some(self.leaves.get(&(page >> self.shift))?.frame)
    }

    /// Adds the leaf for a page's entry.
    pub fn add_leaf_of_page(&mut self, page: u64, frame: u32) {
        let entries = vec![None; 1 << self.shift].into_boxed_slice();
        let leaf = LeafPageTable { frame, entries };
        self.leaves.insert(page >> self.shift, leaf);
    }

    /// Sets an entry. The leaf for it must exist.
    pub fn set_entry(&mut self, page: u64, entry: Option<Pte>) {
        let place = self.entry_index_in_leaf(page);
        let leaf = self.leaves.get_mut(&(page >> self.shift));
        debug_assert!(leaf.is_some() || entry.is_none(), "no leaf for page {page:#x}");
        if let Some(slot) = leaf.and_then(|leaf| leaf.entries.get_mut(place)) {
            *slot = entry;
        }
    }

    /// Changes the entries of `pages` pages, where there are any.
    pub fn update_entries(&mut self, first: u64, pages: u64, change: impl Fn(Pte) -> Pte) {
        for page in first..first + pages {
            self.set_entry(page, self.get_entry(page).map(&change));
        }
    }

    /// Frames of all leaves.
    pub fn leaf_frames(&self) -> impl Iterator<Item = u32> {
        self.leaves.values().map(|leaf| leaf.frame)
    }

    /// All entries, by page.
    pub fn entries(&self) -> impl Iterator<Item = (u64, Pte)> {
        let shift = self.shift;
        self.leaves.iter().flat_map(move |(number, leaf)| {
            let entries = leaf.entries.iter().zip(number << shift..);
            entries.filter_map(|(entry, page)| Some((page, (*entry)?)))
        })
    }

    fn entry_index_in_leaf(&self, page: u64) -> usize {
        (page & ((1 << self.shift) - 1)) as usize
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeapState {
    growth: HeapGrowth,
    /// The first page after the requested memory. `surplus` counts the pages mapped from there.
    end: u64,
    surplus: u64,
    pages: u64,
}

impl HeapState {
    fn surplus_pages(&self) -> Range<u64> {
        self.end..self.end + self.surplus
    }
}

impl ProcessSpace {
    /// A range was unmapped or moved: a heap takes nothing more from a surplus that overlaps it.
    pub(super) fn reset_heap_if_surplus_overlaps(&mut self, first: u64, pages: u64) {
        let surplus = self.heap.surplus_pages();
        if first < surplus.end && surplus.start < first + pages {
            self.heap = HeapState::default();
        }
    }

    /// Pages of mappings of the same kind, side by side, around a page.
    pub(super) fn range_of_like_mappings(&self, page: u64) -> Option<Range<u64>> {
        let (first, mapping) = self.mapping_around_page(page)?;
        let alike = |other: &MemoryMapping| {
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
        base: BasePageSize,
        pages: u64,
        order: u8,
        align: u64,
    ) -> Option<(u64, Option<u64>)> {
        let hole = self.find_free_range(base, pages, align);
        if let Some(hole) = hole.filter(|hole| hole + pages <= self.heap.end) {
            return Some((hole, None));
        }
        let end_of = |first: u64| (first + pages).next_multiple_of(1 << order);
        let surplus = self.heap.surplus_pages();
        let after = self.mapping_around_page(surplus.start);
        let usable = after.is_some_and(|(first, mapping)| {
            (first, mapping.pages) == (surplus.start, self.heap.surplus) && mapping.writable
        });
        let end = surplus.end.max(end_of(surplus.start));
        let in_region = offset_in_region(base.address_of_page(end)) <= REGION_LIMIT;
        if usable && in_region && self.is_range_unmapped(surplus.end, end - surplus.end) {
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
        let base = self.base_page_size();
        let heap = self.process_space(process)?.heap;
        let mut growth = heap.growth;
        growth.preferred = growth.preferred.max(preferred);
        growth.growths += u32::from(pages < heap.pages);
        let Some(wanted) = self.page_size_policy().order_of_grown_heap(&growth) else {
            return Ok(None);
        };
        let order = self.allowed_orders().largest_fitting_order(0, u64::MAX, wanted);
        growth.preferred = order;
        let space = self.process_space_mut(process)?;
        let Some((first, end)) = space.find_heap_range(base, pages, order, align) else {
            return Ok(None);
        };
        let mapping = MemoryMapping::new_anonymous(end.unwrap_or(first + pages) - first, order);
        space.mappings.insert(first, mapping);
        if let Some(end) = end {
            space.split_mapping_at(first + pages);
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
