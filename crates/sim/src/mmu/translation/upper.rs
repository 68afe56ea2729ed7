//! Which loads of a walk are left out because an upper entry is known.

use super::keys::Keys;
use super::miss::Miss;
use super::place::{Place, chunk_of};
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

    /// The same of many walks, one level after the other: which walks a cache is asked for depends on the
    /// caches below it only.
    pub(super) fn first_levels(
        &mut self,
        walks: &[Miss],
        places: &[Place],
        levels: u8,
        asked: &mut Asked,
    ) {
        asked.first.clear();
        asked.first.resize(walks.len(), levels);
        let [pde, pdpte, pml4e] = &mut self.0;
        let upper = |walk: Miss, level: usize| places[chunk_of(walk.page())].upper[level - 2];
        asked.ask::<1>(pde, walks, |walk| walk.page() >> 9);
        asked.ask::<2>(pdpte, walks, |walk| upper(walk, 2));
        asked.ask::<3>(pml4e, walks, |walk| upper(walk, 3));
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

/// What a cache of upper entries is asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// Levels that have to be loaded, by walk.
    pub(super) first: Vec<u8>,
    /// Walks that ask, by number, and what for.
    walks: Vec<u32>,
    keys: Vec<u32>,
    here: Vec<bool>,
}

impl Asked {
    /// Asks the cache of a level for all walks that have not found an entry below it.
    #[inline(always)]
    fn ask<const LEVEL: u8>(
        &mut self,
        cache: &mut Option<Keys>,
        walks: &[Miss],
        key: impl Fn(Miss) -> u32,
    ) {
        let Some(cache) = cache else { return };
        for asked in [&mut self.walks, &mut self.keys] {
            asked.resize(walks.len(), 0);
        }
        self.here.resize(walks.len(), false);
        let (asking, keys) = (
            &mut self.walks[..walks.len()],
            &mut self.keys[..walks.len()],
        );
        let first = &mut self.first[..walks.len()];
        // Nobody can foresee which these are: written without a branch. The entry that was used last is known
        // and stays the last.
        let (mut count, mut last) = (0, u32::MAX);
        for (number, (walk, first)) in walks.iter().zip(&mut *first).enumerate() {
            let key = key(*walk);
            let asks = *first > LEVEL && (walk.state().leaf() as u8) < LEVEL;
            let again = asks && key == last;
            asking[count] = number as u32;
            keys[count] = key;
            count += usize::from(asks && !again);
            last = if asks { key } else { last };
            *first = if again { LEVEL } else { *first };
        }
        let here = &mut self.here[..count];
        cache.access_each(&keys[..count], here);
        for (walk, here) in asking.iter().zip(here) {
            let first = &mut first[*walk as usize];
            *first = if *here { LEVEL } else { *first };
        }
    }
}
