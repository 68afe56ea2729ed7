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
    #[inline]
    pub(super) fn first_level(
        &mut self,
        entries: &[u32; MAX_LEVELS],
        leaf: usize,
        levels: usize,
    ) -> usize {
        let [pde, pdpte, pml4e] = &mut self.0;
        let known = |cache: &mut Option<Keys>, level: usize| {
            let cache = cache.as_mut();
            leaf < level && cache.is_some_and(|cache| cache.access(entries[level]))
        };
        if known(pde, 1) {
            1
        } else if known(pdpte, 2) {
            2
        } else if known(pml4e, 3) {
            3
        } else {
            levels
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.iter_mut().flatten().for_each(Keys::clear);
    }
}
