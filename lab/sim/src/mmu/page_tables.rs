//! Loads of a page walk: four levels of tables, caches of upper entries, and the host's.

use super::data_cache_hierarchy::CACHE_LINE_BYTES;
use super::tlb_spec::{NestedCacheSizes, WalkCacheSizes};
use super::translation::{FullyAssociativeKeyCache, LeafSize, MAX_LEVELS, UpperEntryCaches};
use hawkeye_policy::BASE_PAGE_BYTES;

/// Entries of one level's tables in one cache line: 64 bytes of 8 each.
const ENTRIES_PER_LINE: u64 = 8;
const ENTRIES_PER_TABLE: u64 = 512;
/// Address bits below the entries of each level, from the page table up: PTE, PDE, PDPTE, PML4E.
const LEVEL_SHIFTS: [u32; 4] = [12, 21, 30, 39];

/// The page tables of an address space (and its host) and the walk caches before them.
#[derive(Clone, Debug)]
pub(crate) struct PageTables {
    tables: FourLevelTables,
    host: Option<HostTables>,
}

impl PageTables {
    /// Tables for `bytes` of memory, placed after it. Tables of one level are neighbours.
    pub(crate) fn new(sizes: WalkCacheSizes, bytes: u64) -> Self {
        Self { tables: FourLevelTables::new(sizes, bytes / CACHE_LINE_BYTES, bytes), host: None }
    }

    /// Makes them a guest's tables: the host maps its memory and tables by pages of this size.
    pub(crate) fn in_guest(mut self, caches: NestedCacheSizes, backed_by: LeafSize) -> Self {
        self.host = Some(HostTables::new(caches, backed_by, self.tables.end));
        self
    }

    /// Walks for the byte at `offset`, mapped by a page of this size. Calls `load` with the number
    /// of each cache line that it loads, and caches the upper entries among them.
    #[inline]
    pub(crate) fn walk(&mut self, offset: u64, size: LeafSize, load: &mut impl FnMut(u64)) {
        let leaf = size as usize;
        let first = self.tables.levels_to_load(offset, leaf);
        for level in (leaf..first).rev() {
            let entry = offset >> LEVEL_SHIFTS[level];
            if let Some(host) = &mut self.host {
                host.translate_table(level, entry / ENTRIES_PER_TABLE, load);
            }
            load(self.tables.entry_line(level, offset));
        }
        if let Some(host) = &mut self.host {
            host.walk(offset, load);
        }
    }
}

/// Tables of four levels, and the caches of their upper entries.
#[derive(Clone, Debug)]
struct FourLevelTables {
    upper: UpperEntryCaches,
    /// First line of each level's tables.
    begins: [u64; LEVEL_SHIFTS.len()],
    end: u64,
}

impl FourLevelTables {
    fn new(sizes: WalkCacheSizes, begin: u64, bytes: u64) -> Self {
        let mut end = begin;
        let begins = LEVEL_SHIFTS.map(|shift| {
            let begin = end;
            end += (bytes >> shift) / ENTRIES_PER_LINE + 1;
            begin
        });
        Self { upper: UpperEntryCaches::new(sizes), begins, end }
    }

    /// Number of levels to load, including the leaf. Caches the missing entries.
    #[inline]
    fn levels_to_load(&mut self, address: u64, leaf: usize) -> usize {
        let mut entries = [0; MAX_LEVELS];
        for (entry, shift) in entries.iter_mut().zip(LEVEL_SHIFTS) {
            *entry = (address >> shift) as u32;
        }
        let levels = LEVEL_SHIFTS.len();
        self.upper.find_walk_start(&entries, leaf, levels)
    }

    #[inline]
    fn entry_line(&self, level: usize, address: u64) -> u64 {
        self.begins[level] + (address >> LEVEL_SHIFTS[level]) / ENTRIES_PER_LINE
    }
}

/// First guest-physical page of each level of a guest's tables, far behind everything else.
const GUEST_TABLES: [u64; LEVEL_SHIFTS.len()] = [
    1 << 30,
    (1 << 30) + (1 << 22),
    (1 << 30) + (1 << 22) + (1 << 13),
    (1 << 30) + (1 << 22) + (2 << 13),
];
const GUEST_END: u64 = 1 << (12 + 31);

/// The host's tables for a guest's memory (its program's first), and the core's caches of them.
#[derive(Clone, Debug)]
struct HostTables {
    backed_by: LeafSize,
    tlb: Option<FullyAssociativeKeyCache>,
    tables: FourLevelTables,
}

impl HostTables {
    fn new(caches: NestedCacheSizes, backed_by: LeafSize, begin: u64) -> Self {
        Self {
            backed_by,
            tlb: FullyAssociativeKeyCache::new(caches.tlb),
            tables: FourLevelTables::new(caches.walk_caches, begin, GUEST_END),
        }
    }

    /// Translates the address of a guest's table, given by its level and number.
    #[inline]
    fn translate_table(&mut self, level: usize, number: u64, load: &mut impl FnMut(u64)) {
        let address = (GUEST_TABLES[level] + number) * BASE_PAGE_BYTES;
        let page = address / self.backed_by.bytes();
        let tlb = self.tlb.as_mut();
        if tlb.is_some_and(|tlb| tlb.access(page as u32)) {
            return;
        }
        self.walk(address, load);
    }

    #[inline]
    fn walk(&mut self, address: u64, load: &mut impl FnMut(u64)) {
        let leaf = self.backed_by as usize;
        let first = self.tables.levels_to_load(address, leaf);
        for level in (leaf..first).rev() {
            load(self.tables.entry_line(level, address));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn tables() -> PageTables {
        let sizes = WalkCacheSizes::new(2, 1, 0);
        PageTables::new(sizes, 4 * GIB)
    }

    fn lines(tables: &mut PageTables, offset: u64, size: LeafSize) -> Vec<u64> {
        let mut lines = Vec::new();
        tables.walk(offset, size, &mut |line| lines.push(line));
        lines
    }

    fn loads(tables: &mut PageTables, offset: u64) -> usize {
        lines(tables, offset, LeafSize::Base).len()
    }

    #[test]
    fn upper_entries_are_loaded_once() {
        let mut tables = tables();
        assert_eq!(loads(&mut tables, 0), 4);
        assert_eq!(loads(&mut tables, 4096), 1, "same page directory entry");
        assert_eq!(loads(&mut tables, 2 * MIB), 2, "same PDPTE");
        assert_eq!(loads(&mut tables, 0), 1, "two PDEs are cached");
        assert_eq!(loads(&mut tables, GIB), 4, "another PDPTE, nothing above");
        assert_eq!(loads(&mut tables, 2 * MIB), 4, "one PDPTE is cached");
    }

    #[test]
    fn a_line_holds_eight_entries_and_belongs_to_one_level() {
        let mut tables = tables();
        let mut first = lines(&mut tables, 0, LeafSize::Base);
        first.sort_unstable();
        first.dedup();
        assert_eq!(first.len(), 4);
        assert!(first.iter().all(|line| *line >= 4 * GIB / 64));
        let leaf = |tables: &mut PageTables, page: u64| {
            lines(tables, page * 4096, LeafSize::Base).last().copied()
        };
        let zero = leaf(&mut tables, 0);
        assert_eq!(leaf(&mut tables, 7), zero);
        assert_eq!(leaf(&mut tables, 8), zero.map(|line| line + 1));
    }
}
