//! Which loads of a walk are left out because an upper entry is known.

use super::keys::Keys;
use super::miss::{Kind, Miss};
use super::place::{Place, chunk_of};
use crate::mmu::WalkCacheSizes;
use crate::mmu::vectors::touch_in_turn;

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
    #[inline(never)]
    pub(super) fn first_levels(
        &mut self,
        kind: &impl Kind,
        walks: &[Miss],
        places: &[Place],
        levels: u8,
        asked: &mut Asked,
    ) {
        asked.first.clear();
        asked.first.resize(walks.len(), levels);
        let [pde, pdpte, pml4e] = &mut self.0;
        asked.ask::<1>(kind, pde, walks, |walk| walk.page() >> 9);
        // As good as the number of the entry: one leads to each piece, and to no other.
        asked.ask::<2>(kind, pdpte, walks, |walk| chunk_of(walk.page()) as u32);
        asked.ask::<3>(kind, pml4e, walks, |walk| {
            places[chunk_of(walk.page())].upper[1]
        });
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

/// What caches of upper entries are asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// Levels that have to be loaded, by walk.
    pub(super) first: Vec<u8>,
    /// Walks that ask a cache, by number.
    walks: Vec<u16>,
    /// By walk, whether a cache has the entry: not 0.
    found: Vec<u8>,
}

impl Asked {
    /// Asks the cache of a level for all walks that have not found an entry below it. Nobody can foresee which these
    /// are, nor what is found: written without branches.
    #[inline(always)]
    fn ask<const LEVEL: u8>(
        &mut self,
        kind: &impl Kind,
        cache: &mut Option<Keys>,
        walks: &[Miss],
        key: impl Fn(Miss) -> u32,
    ) {
        let asks = |walk: Miss, first: u8| {
            (LEVEL == 1 || first > LEVEL) & (kind.leaf(walk) < usize::from(LEVEL))
        };
        match cache {
            None => {}
            Some(Keys::Four([keys])) => {
                self.found.resize(walks.len(), 0);
                let (first, found) = (&mut self.first[..], &mut self.found[..walks.len()]);
                let mut now = *keys;
                for ((walk, first), found) in walks.iter().zip(&*first).zip(&mut *found) {
                    let asks = asks(*walk, *first);
                    *found = touch_in_turn(&mut now, key(*walk), asks);
                }
                *keys = now;
                // On its own, as in the loop above compilers make a branch of it.
                for (first, found) in first.iter_mut().zip(found) {
                    *first = if *found == 0 { *first } else { LEVEL };
                }
            }
            Some(Keys::Any(keys)) if LEVEL == 1 && kind.is_base() && !repeats(walks, &key) => {
                self.found.resize(walks.len(), 0);
                let found = &mut self.found[..walks.len()];
                keys.access_each(walks.iter().map(|walk| key(*walk)), |number, here| {
                    found[number] = u8::from(here);
                });
                for (first, found) in self.first.iter_mut().zip(found) {
                    *first = if *found == 0 { *first } else { LEVEL };
                }
            }
            Some(Keys::Any(keys)) => {
                self.walks.resize(walks.len(), 0);
                let (asking, first) = (
                    &mut self.walks[..walks.len()],
                    &mut self.first[..walks.len()],
                );
                // The entry that was used last is known and stays the last.
                let (mut count, mut last) = (0, u32::MAX);
                for (number, (walk, first)) in walks.iter().zip(&mut *first).enumerate() {
                    let (key, asks) = (key(*walk), asks(*walk, *first));
                    let again = asks & (key == last);
                    asking[count] = number as u16;
                    count += usize::from(asks & !again);
                    last = if asks { key } else { last };
                    *first = if again { LEVEL } else { *first };
                }
                let asking = &asking[..count];
                keys.access_each(
                    asking.iter().map(|number| key(walks[usize::from(*number)])),
                    |number, here| {
                        let first = &mut first[usize::from(asking[number])];
                        *first = if here { LEVEL } else { *first };
                    },
                );
            }
        }
    }
}

/// Whether two walks, one after the other, have the same key.
fn repeats(walks: &[Miss], key: impl Fn(Miss) -> u32) -> bool {
    let pairs = walks.iter().zip(walks.iter().skip(1));
    pairs.fold(false, |any, (one, next)| any | (key(*one) == key(*next)))
}
