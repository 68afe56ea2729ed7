//! What a page walk has to load: the tables of four levels, and the caches of their upper entries.

use super::lru::{LruSets, Shape};
use super::page::PageSize;
use serde::{Deserialize, Serialize};

/// Entries of one level's tables in one cache line: 64 bytes of 8 each.
const ENTRIES_PER_LINE: u32 = 8;
/// Address bits below the entries of each level, from the page table up: PTE, PDE, PDPTE, PML4E.
const LEVEL_SHIFTS: [u32; 4] = [12, 21, 30, 39];
const PTE: usize = 0;
const PDE: usize = 1;

/// Caches of the entries that lead to tables ("paging-structure caches"), each fully associative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkCacheSizes {
    /// Entries of page directories: a hit leaves one load, the page-table entry.
    pub pde: u32,
    /// Entries of page-directory-pointer tables.
    pub pdpte: u32,
    /// Entries of the topmost table; 0 where there is no such cache.
    pub pml4e: u32,
}

/// The cache lines that a walk loads one after the other, by their number in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Walk {
    lines: [u64; LEVEL_SHIFTS.len()],
    loads: usize,
}

impl Walk {
    pub(crate) fn lines(&self) -> &[u64] {
        &self.lines[..self.loads]
    }
}

/// The page tables of an address space and the walk caches in front of them.
#[derive(Clone, Debug)]
pub(crate) struct PageTables {
    /// By level from the page directory up; none where there is no cache.
    caches: [Option<LruSets>; 3],
    /// First line of each level's tables.
    begins: [u64; LEVEL_SHIFTS.len()],
}

impl PageTables {
    /// Tables for `bytes` of memory, which lie behind it. Tables of one level are neighbours.
    pub(crate) fn new(sizes: WalkCacheSizes, bytes: u64, line_bytes: u64) -> Self {
        let cache = |entries| {
            let shape = Shape::fully_associative(entries);
            (entries > 0).then(|| LruSets::new(shape))
        };
        let mut next = bytes / line_bytes;
        let begins = LEVEL_SHIFTS.map(|shift| {
            let begin = next;
            next += (bytes >> shift) / u64::from(ENTRIES_PER_LINE) + 1;
            begin
        });
        Self {
            caches: [sizes.pde, sizes.pdpte, sizes.pml4e].map(cache),
            begins,
        }
    }

    /// Walks for the byte at `offset`, mapped by a page of this size. Upper entries that it loads
    /// are cached afterwards.
    #[inline]
    pub(crate) fn walk(&mut self, offset: u64, size: PageSize) -> Walk {
        let leaf = match size {
            PageSize::Base => PTE,
            PageSize::Huge => PDE,
        };
        let hit = (leaf + 1..LEVEL_SHIFTS.len()).find(|level| {
            let entry = offset >> LEVEL_SHIFTS[*level];
            let cache = &mut self.caches[*level - 1];
            let cache = cache.as_mut();
            cache.is_some_and(|cache| cache.access(0, entry as u32).is_hit())
        });
        let mut walk = Walk::default();
        for level in (leaf..hit.unwrap_or(LEVEL_SHIFTS.len())).rev() {
            let entry = offset >> LEVEL_SHIFTS[level];
            walk.lines[walk.loads] = self.begins[level] + entry / u64::from(ENTRIES_PER_LINE);
            walk.loads += 1;
        }
        walk
    }

    /// Forgets all upper entries, as every flush of a page does (Intel SDM, volume 3A, 4.10.4.1:
    /// INVLPG "invalidates all entries in all paging-structure caches").
    pub(crate) fn flush(&mut self) {
        for cache in self.caches.iter_mut().flatten() {
            cache.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn tables() -> PageTables {
        let sizes = WalkCacheSizes {
            pde: 2,
            pdpte: 1,
            pml4e: 0,
        };
        PageTables::new(sizes, 4 * GIB, 64)
    }

    fn loads(tables: &mut PageTables, offset: u64) -> usize {
        tables.walk(offset, PageSize::Base).lines().len()
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
        tables.flush();
        assert_eq!(loads(&mut tables, 2 * MIB), 4);
    }

    #[test]
    fn a_walk_for_a_huge_page_ends_a_level_earlier() {
        let mut tables = tables();
        assert_eq!(tables.walk(0, PageSize::Huge).lines().len(), 3);
        assert_eq!(tables.walk(2 * MIB, PageSize::Huge).lines().len(), 1);
        assert_eq!(tables.walk(GIB, PageSize::Huge).lines().len(), 3);
    }

    #[test]
    fn a_line_holds_eight_entries_and_belongs_to_one_level() {
        let mut tables = tables();
        let first = tables.walk(0, PageSize::Base);
        let mut lines = first.lines().to_vec();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|line| *line >= 4 * GIB / 64));
        let leaf = |tables: &mut PageTables, page: u64| {
            let walk = tables.walk(page * 4096, PageSize::Base);
            walk.lines().last().copied()
        };
        let zero = leaf(&mut tables, 0);
        assert_eq!(leaf(&mut tables, 7), zero);
        assert_eq!(leaf(&mut tables, 8), zero.map(|line| line + 1));
    }
}
