//! An address space: its mappings, and the place of the next one.

use super::heaps::HeapState;
use super::page_table::PageTable;
use crate::address::{BasePage, REGION_BITS, REGION_LIMIT};
use crate::mmu::RegionRegisters;
use std::collections::BTreeMap;

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
pub struct PageMapping {
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

impl PageMapping {
    pub(super) fn anonymous(pages: u64, preferred: u8) -> Self {
        Self {
            backing: MappingBacking::Anonymous,
            pages,
            writable: true,
            preferred,
        }
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
    pub mappings: BTreeMap<u64, PageMapping>,
    pub(super) heap: HeapState,
}

impl ProcessSpace {
    /// A space without mappings.
    pub fn new(base: BasePage, registers: RegionRegisters) -> Self {
        Self {
            registers,
            table: PageTable::new(base),
            mappings: BTreeMap::new(),
            heap: HeapState::default(),
        }
    }

    /// The mapping that holds a page: its first page, and itself.
    pub fn mapping_of(&self, page: u64) -> Option<(u64, PageMapping)> {
        let (first, mapping) = self.mappings.range(..=page).next_back()?;
        (page < first + mapping.pages).then_some((*first, *mapping))
    }

    /// Whether nothing is mapped in a range of pages.
    pub fn is_free(&self, first: u64, pages: u64) -> bool {
        let before = self.mappings.range(..first + pages).next_back();
        before.is_none_or(|(start, mapping)| start + mapping.pages <= first)
    }

    /// The first page of the range that isn't mapped.
    pub fn first_unmapped(&self, first: u64, pages: u64) -> Option<u64> {
        let mut at = first;
        while at < first + pages {
            let Some((start, mapping)) = self.mapping_of(at) else {
                return Some(at);
            };
            at = start + mapping.pages;
        }
        None
    }

    /// Finds the lowest place for `pages` pages. Each mapping begins at a multiple of `align` pages
    /// after the one before (`arch_get_unmapped_area` and `superpage_vm_align`, thesis, section
    /// 5.5.4). `None` if the region is full.
    pub fn find_free_range(&self, base: BasePage, pages: u64, align: u64) -> Option<u64> {
        self.find_free_range_from(base, FIRST_MAPPING, pages, align)
    }

    /// As [`Self::find_free_range`], in another region or from another address on.
    pub fn find_free_range_from(
        &self,
        base: BasePage,
        start: u64,
        pages: u64,
        align: u64,
    ) -> Option<u64> {
        let aligned = |page: u64| page.next_multiple_of(align.max(1));
        let mut at = aligned(base.page_of(start));
        for (first, mapping) in self.mappings.range(base.page_of(start)..) {
            if at + pages <= *first {
                break;
            }
            at = at.max(aligned(first + mapping.pages));
        }
        let end = base.page_of((start & !((1 << REGION_BITS) - 1)) + REGION_LIMIT);
        (at + pages <= end).then_some(at)
    }

    /// Cuts the mapping around a page, so that one mapping begins at the page.
    pub fn split_mapping(&mut self, page: u64) {
        if let Some((first, mapping)) = self.mapping_of(page).filter(|(first, _)| *first < page) {
            let of = |pages| PageMapping { pages, ..mapping };
            self.mappings.insert(page, of(first + mapping.pages - page));
            self.mappings.insert(first, of(page - first));
        }
    }
}
