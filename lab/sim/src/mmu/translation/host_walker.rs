//! The host's half of a walk in a virtual machine.

use super::dense_page_numbers::ChunkUpperEntries;
use super::fully_associative_key_cache::FullyAssociativeKeyCache;
use super::missed_pages::MAX_LEVELS;
use super::sizes::LeafSize;
use super::table_caches::TableCacheLine;
use super::translator_spec::PageTableLevels;
use super::upper_entry_caches::UpperEntryCaches;
use crate::mmu::NestedCacheSizes;

/// Kinds of lines: the tables of an address space or guest, those of the host for the guest's
/// memory, and those of the host for the guest's page tables.
const HOST_DATA: u32 = MAX_LEVELS as u32;
const HOST_TABLES: u32 = 2 * MAX_LEVELS as u32;

/// The guest's page tables are numbered consecutively, lowest level first: one for each region,
/// then one for each piece of 1 GiB, and so on.
const TABLES: [u32; MAX_LEVELS] =
    [0, 1 << 22, (1 << 22) + (1 << 13), (1 << 22) + (2 << 13), (1 << 22) + (3 << 13)];

/// Distinguishes entries that lead to page tables from those that lead to memory.
const TABLE_KEY: u32 = 1 << 30;

#[derive(Clone, Debug)]
pub(super) struct HostWalker {
    levels: usize,
    tables_backed_by: LeafSize,
    tlb: Option<FullyAssociativeKeyCache>,
    upper: UpperEntryCaches,
}

impl HostWalker {
    pub(super) fn new(
        caches: NestedCacheSizes,
        levels: PageTableLevels,
        tables_backed_by: LeafSize,
    ) -> Self {
        Self {
            levels: levels as usize,
            tables_backed_by: tables_backed_by.min(LeafSize::Huge),
            tlb: FullyAssociativeKeyCache::new(caches.tlb),
            upper: UpperEntryCaches::new(caches.walk_caches),
        }
    }

    /// Translates the address of the guest's table that holds a level's `entry`; `load` loads a
    /// line.
    #[inline]
    pub(super) fn translate_table(
        &mut self,
        level: usize,
        entry: u32,
        load: &mut impl FnMut(TableCacheLine),
    ) {
        let table = TABLES[level] + (entry >> 9);
        let leaf = self.tables_backed_by;
        let page = table >> (9 * leaf as u32);
        if self.tlb.as_mut().is_some_and(|tlb| tlb.access(page)) {
            return;
        }
        let entries = [table, table >> 9, table >> 18, 0, 0];
        let keys = entries.map(|entry| TABLE_KEY | entry);
        self.walk(HOST_TABLES, &entries, &keys, leaf, load);
    }

    #[inline]
    pub(super) fn translate_page(
        &mut self,
        page: u32,
        place: &ChunkUpperEntries,
        leaf: LeafSize,
        load: &mut impl FnMut(TableCacheLine),
    ) {
        let [pdpte, pml4e, pml5e] = place.upper;
        let entries = [page, page >> 9, pdpte, pml4e, pml5e];
        self.walk(HOST_DATA, &entries, &entries, leaf, load);
    }

    #[inline]
    fn walk(
        &mut self,
        kind: u32,
        entries: &[u32; MAX_LEVELS],
        keys: &[u32; MAX_LEVELS],
        leaf: LeafSize,
        load: &mut impl FnMut(TableCacheLine),
    ) {
        let leaf = leaf as usize;
        let first = self.upper.find_walk_start(keys, leaf, self.levels);
        for level in (leaf..first).rev() {
            load(TableCacheLine::of_entry(kind + level as u32, entries[level]));
        }
    }

    pub(super) fn clear(&mut self) {
        self.upper.clear();
        if let Some(tlb) = &mut self.tlb {
            tlb.clear();
        }
    }
}
