//! Loads of a walk that are skipped because an upper entry is cached.

use super::dense_page_numbers::{ChunkUpperEntries, chunk_of_page};
use super::fully_associative_key_cache::FullyAssociativeKeyCache;
use super::missed_pages::{MAX_LEVELS, MissedPage, WalkKind};
use crate::mmu::WalkCacheSizes;
use crate::mmu::tag_vectors::access_or_insert_if_counted;
use wide::u32x4;

/// Pairs of walks that are compared to decide whether walks repeat.
const LOOKED_AT: usize = 64;

/// Caches of upper entries, by level from the page directory up; `None` where there is no cache.
#[derive(Clone, Debug)]
pub(in crate::mmu) struct UpperEntryCaches([Option<FullyAssociativeKeyCache>; 3]);

impl UpperEntryCaches {
    pub(in crate::mmu) fn new(sizes: WalkCacheSizes) -> Self {
        Self([sizes.pde, sizes.pdpte, sizes.pml4e].map(FullyAssociativeKeyCache::new))
    }

    /// Number of levels that a walk loads, including the leaf. Caches the missing entries.
    #[inline(always)]
    pub(in crate::mmu) fn find_walk_start(
        &mut self,
        entries: &[u32; MAX_LEVELS],
        leaf: usize,
        levels: usize,
    ) -> usize {
        let [pde, pdpte, pml4e] = &mut self.0;
        if leaf < 1 && access_if_level_has_cache(pde, entries[1]) {
            1
        } else if leaf < 2 && access_if_level_has_cache(pdpte, entries[2]) {
            2
        } else if access_if_level_has_cache(pml4e, entries[3]) {
            3
        } else {
            levels
        }
    }

    /// The same for many walks, level by level: which walks access a cache depends only on the
    /// caches below it. Skips what [`small_pdpte_cache`](Self::small_pdpte_cache) covers.
    #[inline(never)]
    pub(super) fn find_walk_starts(
        &mut self,
        kind: &impl WalkKind,
        walks: &[MissedPage],
        places: &[ChunkUpperEntries],
        levels: u8,
        asked: &mut WalkStartLevels,
    ) {
        asked.first.clear();
        asked.first.resize(walks.len(), levels);
        let in_turn = self.small_pdpte_cache().is_some();
        let [pde, pdpte, pml4e] = &mut self.0;
        asked.look_up_level::<1>(kind, pde, walks, |walk| walk.page() >> 9);
        if in_turn {
            return;
        }
        // Equivalent to the number of the entry: each piece has exactly one.
        asked.look_up_level::<2>(kind, pdpte, walks, |walk| chunk_of_page(walk.page()) as u32);
        asked.look_up_level::<3>(kind, pml4e, walks, |walk| {
            places[chunk_of_page(walk.page())].upper[1]
        });
    }

    /// The PDPTEs, if they are few and no later cache exists. Each use waits for the one before, so
    /// it takes no time beside the loads of the walk, but much time on its own.
    pub(super) fn small_pdpte_cache(&mut self) -> Option<SmallPdpteCache<'_>> {
        match &mut self.0 {
            [_, Some(FullyAssociativeKeyCache::Four([keys])), None] => {
                Some(SmallPdpteCache { now: *keys, keys })
            }
            _ => None,
        }
    }

    pub(in crate::mmu) fn clear(&mut self) {
        self.0.iter_mut().flatten().for_each(FullyAssociativeKeyCache::clear);
    }
}

/// A few PDPTEs, used walk by walk.
pub(super) struct SmallPdpteCache<'a> {
    now: u32x4,
    keys: &'a mut u32x4,
}

impl SmallPdpteCache<'_> {
    /// Level from which a walk starts: `first`, or 2 if its PDPTE is cached. `first` must be
    /// `levels`, or a level from which the walk needs no PDPTE.
    #[inline(always)]
    pub(super) fn find_walk_start(
        &mut self,
        walk: MissedPage,
        leaf: usize,
        first: usize,
        levels: usize,
    ) -> usize {
        let asks = (first > 2) & (leaf < 2);
        let here =
            access_or_insert_if_counted(&mut self.now, chunk_of_page(walk.page()) as u32, asks);
        // Without a branch: the result is unpredictable.
        first - usize::from(here != 0) * (levels - 2)
    }

    pub(super) fn write_back(self) {
        *self.keys = self.now;
    }
}

/// Uses an entry, if its level has a cache; true if it was there.
#[inline(always)]
fn access_if_level_has_cache(cache: &mut Option<FullyAssociativeKeyCache>, entry: u32) -> bool {
    cache.as_mut().is_some_and(|cache| cache.access(entry))
}

#[derive(Clone, Debug, Default)]
pub(super) struct WalkStartLevels {
    /// Number of levels to load, by walk.
    pub(super) first: Vec<u8>,
    /// Walks that access a cache, by number.
    walks: Vec<u16>,
    /// By walk, whether a cache has the entry: nonzero.
    found: Vec<u8>,
}

impl WalkStartLevels {
    /// Looks up all walks without a cached entry below in the cache of a level. Which walks these
    /// are, and the results, are unpredictable: written without branches.
    #[inline(always)]
    fn look_up_level<const LEVEL: u8>(
        &mut self,
        kind: &impl WalkKind,
        cache: &mut Option<FullyAssociativeKeyCache>,
        walks: &[MissedPage],
        key: impl Fn(MissedPage) -> u32,
    ) {
        let asks = |walk: MissedPage, first: u8| {
            (LEVEL == 1 || first > LEVEL) & (kind.leaf(walk) < usize::from(LEVEL))
        };
        let is_base = kind.uniform_walk().is_some_and(|(leaf, _)| leaf == 0);
        match cache {
            None => {}
            Some(FullyAssociativeKeyCache::Four([keys])) => {
                self.found.resize(walks.len(), 0);
                let (first, found) = (&mut self.first[..], &mut self.found[..walks.len()]);
                let mut now = *keys;
                for ((walk, first), found) in walks.iter().zip(&*first).zip(&mut *found) {
                    let asks = asks(*walk, *first);
                    *found = access_or_insert_if_counted(&mut now, key(*walk), asks);
                }
                *keys = now;
                // In its own loop, because compilers turn it into a branch in the loop above.
                for (first, found) in first.iter_mut().zip(found) {
                    *first = if *found == 0 { *first } else { LEVEL };
                }
            }
            Some(FullyAssociativeKeyCache::Any(keys))
                if LEVEL == 1 && is_base && !have_equal_neighbours(walks, &key) =>
            {
                let first = &mut self.first[..walks.len()];
                keys.access_each(walks.iter().map(|walk| key(*walk)), |number| {
                    first[number] = LEVEL;
                });
            }
            Some(FullyAssociativeKeyCache::Any(keys)) => {
                self.walks.resize(walks.len(), 0);
                let (asking, first) =
                    (&mut self.walks[..walks.len()], &mut self.first[..walks.len()]);
                // The entry that was used last is cached and stays the most recent.
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
                    |number| first[usize::from(asking[number])] = LEVEL,
                );
            }
        }
    }
}

/// Whether two neighbours among the first walks have the same key: then others probably do too. The
/// result is the same either way.
fn have_equal_neighbours(walks: &[MissedPage], key: impl Fn(MissedPage) -> u32) -> bool {
    let pairs = walks.iter().zip(walks.iter().skip(1)).take(LOOKED_AT);
    pairs.fold(false, |any, (one, next)| any | (key(*one) == key(*next)))
}
