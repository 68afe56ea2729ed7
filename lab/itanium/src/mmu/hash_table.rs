//! The long format: a hash table of translations, one for all processes.

use super::tlb::TlbEntry;

/// The table. Collisions are not chained: the kernel overwrites the entry (`VHPT_INSERT` of the
/// patches for the long format), and the walker reads one entry only.
#[derive(Clone, Debug)]
pub struct HashedPageTable {
    /// Each with the base page, in its region, under which it is entered.
    entries: Vec<Option<(u64, TlbEntry)>>,
}

impl HashedPageTable {
    /// An empty table. The number of entries is a power of two.
    pub fn new(entries: u32) -> Self {
        Self {
            entries: vec![None; entries as usize],
        }
    }

    /// Index of the entry for a base page of a region (thesis, section 3.4).
    fn index(&self, rid: u32, page: u64) -> usize {
        (page ^ u64::from(rid)) as usize & (self.entries.len() - 1)
    }

    /// The translation that the walker finds for a base page.
    pub fn find(&self, rid: u32, page: u64) -> Option<TlbEntry> {
        let (entered, translation) = self.entries[self.index(rid, page)]?;
        (translation.rid == rid && entered == page).then_some(translation)
    }

    /// Enters a translation under a base page. Returns true if that removed another page's
    /// translation.
    pub fn enter(&mut self, page: u64, translation: TlbEntry) -> bool {
        let index = self.index(translation.rid, page);
        let before = self.entries[index].replace((page, translation));
        before.is_some_and(|(other, it)| (it.rid, other) != (translation.rid, page))
    }

    /// Makes the entry of a base page invalid, of whichever process it is: the kernel does not
    /// check that (`flush_vhpt_page`).
    pub fn invalidate(&mut self, rid: u32, page: u64) {
        let index = self.index(rid, page);
        self.entries[index] = None;
    }

    /// All translations in the table.
    pub fn translations(&self) -> impl Iterator<Item = TlbEntry> {
        self.entries
            .iter()
            .flatten()
            .map(|(_, translation)| *translation)
    }
}
