//! Which loads of a walk are left out because an upper entry is known.

use super::keys::Keys;
use crate::mmu::WalkCacheSizes;

/// Levels of tables, from the lowest: PTE, PDE, PDPTE, PML4E, PML5E.
pub(super) const MAX_LEVELS: usize = 5;

/// Caches of upper entries, by level from the page directory up; none where there is no cache.
#[derive(Clone, Debug)]
pub(super) struct UpperEntries([Option<Keys>; 3]);

impl UpperEntries {
    pub(super) fn new(sizes: WalkCacheSizes) -> Self {
        Self([sizes.pde, sizes.pdpte, sizes.pml4e].map(Keys::new))
    }

    /// How many levels have to be loaded, the leaf's included, of a walk through these entries. Those that
    /// are not known are afterwards.
    #[inline(always)]
    pub(super) fn first_level(
        &mut self,
        entries: &[u32; MAX_LEVELS],
        leaf: usize,
        levels: usize,
    ) -> usize {
        let [pde, pdpte, pml4e] = &mut self.0;
        if leaf < 1 && known(pde, entries[1]) {
            1
        } else if leaf < 2 && known(pdpte, entries[2]) {
            2
        } else if known(pml4e, entries[3]) {
            3
        } else {
            levels
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.iter_mut().flatten().for_each(Keys::clear);
    }
}

/// Uses an entry, if there is a cache of its level; true if it was there.
#[inline(always)]
fn known(cache: &mut Option<Keys>, entry: u32) -> bool {
    cache.as_mut().is_some_and(|cache| cache.access(entry))
}
