//! A process's page table: pages full of entries, which are also those of the virtual linear table.

use crate::address::BasePage;
use crate::mmu::Pte;
use std::collections::BTreeMap;

/// The levels above hold only pointers (thesis, section 5.2) and are not modelled.
#[derive(Clone, Debug)]
struct LeafTable {
    frame: u32,
    entries: Box<[Option<Pte>]>,
}

/// Leaves by number. They stay until the process ends.
#[derive(Clone, Debug)]
pub struct PageTable {
    shift: u32,
    leaves: BTreeMap<u64, LeafTable>,
}

impl PageTable {
    /// An empty table for pages of this size.
    pub fn new(base: BasePage) -> Self {
        Self {
            shift: base.table_shift(),
            leaves: BTreeMap::new(),
        }
    }

    /// The entry of a page, if it was ever set.
    #[inline]
    pub fn get(&self, page: u64) -> Option<Pte> {
        let leaf = self.leaves.get(&(page >> self.shift))?;
        *leaf.entries.get(self.place_in_leaf(page))?
    }

    /// The entry of a page. Without one, it counts as a base page without memory.
    #[inline]
    pub fn entry(&self, page: u64) -> Pte {
        self.get(page).unwrap_or(Pte::without_memory(0))
    }

    /// The frame of the leaf that holds a page's entry.
    pub fn leaf_frame(&self, page: u64) -> Option<u32> {
        Some(self.leaves.get(&(page >> self.shift))?.frame)
    }

    /// Adds the leaf for a page's entry.
    pub fn add_leaf(&mut self, page: u64, frame: u32) {
        let entries = vec![None; 1 << self.shift].into_boxed_slice();
        let leaf = LeafTable { frame, entries };
        self.leaves.insert(page >> self.shift, leaf);
    }

    /// Sets an entry. The leaf for it must exist.
    pub fn set(&mut self, page: u64, entry: Option<Pte>) {
        let place = self.place_in_leaf(page);
        let leaf = self.leaves.get_mut(&(page >> self.shift));
        debug_assert!(
            leaf.is_some() || entry.is_none(),
            "no leaf for page {page:#x}"
        );
        if let Some(slot) = leaf.and_then(|leaf| leaf.entries.get_mut(place)) {
            *slot = entry;
        }
    }

    /// Changes the entries of `pages` pages, where there are any.
    pub fn update_entries(&mut self, first: u64, pages: u64, change: impl Fn(Pte) -> Pte) {
        for page in first..first + pages {
            self.set(page, self.get(page).map(&change));
        }
    }

    /// Frames of all leaves.
    pub fn frames(&self) -> impl Iterator<Item = u32> {
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

    fn place_in_leaf(&self, page: u64) -> usize {
        (page & ((1 << self.shift) - 1)) as usize
    }
}
