//! Sets with exact least-recently-used replacement, for TLBs, page-walk caches and data caches.
//!
//! The ways of a set lie in order of use, so that the order is the state: a hit moves its tag to
//! the front, and the tag at the end falls out.

use super::tag_vectors::{
    EMPTY, LANES, SetAndTag, access_or_insert, flat_lanes, flat_lanes_mut, retain_missed,
};
use serde::{Deserialize, Serialize};
use wide::u32x4;

/// Size of a set-associative structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetShape {
    /// Entries in total. `entries` over `ways` is a power of two.
    pub entries: u32,
    /// Entries in one set; equal to `entries` in a fully associative structure.
    pub ways: u32,
}

impl SetShape {
    /// `entries` in sets of `ways`.
    pub const fn new(entries: u32, ways: u32) -> Self {
        Self { entries, ways }
    }

    /// One set.
    pub const fn fully_associative(entries: u32) -> Self {
        Self::new(entries, entries)
    }

    /// Number of sets, if it is a whole power of two.
    pub fn sets(self) -> Option<u32> {
        let sets = self.entries.checked_div(self.ways)?;
        (sets.is_power_of_two() && sets * self.ways == self.entries).then_some(sets)
    }
}

/// Tags by set. The caller maps tags to sets.
#[derive(Clone, Debug)]
pub(crate) struct LruSets {
    /// Whole vectors for each set; lanes beyond its ways are [`EMPTY`].
    tags: Vec<u32x4>,
    pub(crate) ways: usize,
    vectors: usize,
    pub(crate) set_bits: u32,
}

impl LruSets {
    /// Empty. The number of sets must be a power of two; entries beyond that are left out.
    pub(crate) fn new(shape: SetShape) -> Self {
        let ways = shape.ways.max(1);
        let set_bits = (shape.entries / ways).max(1).ilog2();
        let vectors = (ways as usize).div_ceil(LANES);
        Self {
            tags: vec![u32x4::splat(EMPTY); vectors << set_bits],
            ways: ways as usize,
            vectors,
            set_bits,
        }
    }

    /// The lowest bits of `key` as its set, and the other bits.
    #[inline]
    pub(crate) fn split_key(&self, key: u64) -> (usize, u32) {
        let set = key & ((1 << self.set_bits) - 1);
        (set as usize, (key >> self.set_bits) as u32)
    }

    /// Uses `tag`, which becomes the most recently used one; `None` if it was there. If not, it
    /// evicts the least recently used one, which is returned: [`EMPTY`] if there was room.
    #[inline]
    pub(crate) fn access_or_evict(&mut self, set: usize, tag: u32) -> Option<u32> {
        let mut moved = tag;
        for way in self.set_tags(set) {
            std::mem::swap(way, &mut moved);
            if moved == tag {
                return None;
            }
        }
        Some(moved)
    }

    /// The same without the evicted tag: faster.
    #[inline]
    pub(crate) fn access_or_insert(&mut self, set: usize, tag: u32) -> bool {
        match self.ways {
            4 => self.access_or_insert_in_vectors::<1>(set, tag),
            8 => self.access_or_insert_in_vectors::<2>(set, tag),
            12 => self.access_or_insert_in_vectors::<3>(set, tag),
            16 => self.access_or_insert_in_vectors::<4>(set, tag),
            24 => self.access_or_insert_in_vectors::<6>(set, tag),
            _ => self.access_or_evict(set, tag).is_none(),
        }
    }

    /// As [`access_or_insert`](Self::access_or_insert), with the number of vectors known at compile
    /// time.
    #[inline(always)]
    fn access_or_insert_in_vectors<const VECTORS: usize>(&mut self, set: usize, tag: u32) -> bool {
        let first = set * VECTORS;
        let ways = self.tags.get_mut(first..first + VECTORS);
        match ways.and_then(|ways| <&mut [u32x4; VECTORS]>::try_from(ways).ok()) {
            Some(ways) => access_or_insert(ways, tag),
            None => false,
        }
    }

    /// Uses the tags of items, moves the items that missed to the front, and returns their number.
    /// `None` if sets don't consist of whole vectors; then it changes nothing.
    #[inline(always)]
    pub(crate) fn retain_missed<T: Copy>(
        &mut self,
        items: &mut [T],
        place: impl Fn(T) -> SetAndTag,
    ) -> Option<usize> {
        let tags = &mut self.tags[..];
        Some(match self.ways {
            4 => retain_missed::<1, T>(tags, items, place),
            8 => retain_missed::<2, T>(tags, items, place),
            12 => retain_missed::<3, T>(tags, items, place),
            16 => retain_missed::<4, T>(tags, items, place),
            24 => retain_missed::<6, T>(tags, items, place),
            _ => return None,
        })
    }

    /// After a miss: evicts the oldest tag that `choose` accepts, if any, instead of `evicted`.
    pub(crate) fn evict_chosen_instead(
        &mut self,
        set: usize,
        evicted: u32,
        choose: impl Fn(u32) -> bool,
    ) {
        let ways = self.set_tags(set);
        if let Some(way) = ways.iter().rposition(|tag| *tag != EMPTY && choose(*tag)) {
            ways.copy_within(way + 1.., way);
            if let Some(last) = ways.last_mut() {
                *last = evicted;
            }
        }
    }

    pub(crate) fn count_chosen_tags(&self, set: usize, choose: impl Fn(u32) -> bool) -> usize {
        let ways = &flat_lanes(&self.tags[set * self.vectors..][..self.vectors])[..self.ways];
        let chosen = ways.iter().filter(|tag| **tag != EMPTY && choose(**tag));
        chosen.count()
    }

    /// Drops every entry for which `keep` returns false; `keep` gets its set and tag.
    pub(crate) fn retain(&mut self, keep: impl Fn(usize, u32) -> bool) {
        for (set, ways) in self.tags.chunks_exact_mut(self.vectors).enumerate() {
            let ways = &mut flat_lanes_mut(ways)[..self.ways];
            let mut kept = 0;
            for way in 0..ways.len() {
                let tag = ways[way];
                if tag != EMPTY && keep(set, tag) {
                    ways[kept] = tag;
                    kept += 1;
                }
            }
            ways[kept..].fill(EMPTY);
        }
    }

    /// Tags of a set, the most recently used first.
    #[inline]
    fn set_tags(&mut self, set: usize) -> &mut [u32] {
        &mut flat_lanes_mut(&mut self.tags[set * self.vectors..][..self.vectors])[..self.ways]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_a_power_of_two_of_sets_is_a_shape() {
        assert_eq!(SetShape::new(1536, 12).sets(), Some(128));
        assert_eq!(SetShape::fully_associative(72).sets(), Some(1));
        for shape in [(0, 0), (0, 4), (4, 0), (12, 4), (10, 4)] {
            assert_eq!(SetShape::new(shape.0, shape.1).sets(), None, "{shape:?}");
        }
    }

    proptest! {
        /// A tag is there if fewer than `ways` other tags of its set were used since.
        #[test]
        fn as_the_definition_says(
            ways in 1u32..26,
            set_bits in 0u32..3,
            keys in proptest::collection::vec(0u64..64, 1..400),
        ) {
            let mut sets = LruSets::new(SetShape::new(ways << set_bits, ways));
            let mut touched = sets.clone();
            for (now, key) in keys.iter().enumerate() {
                let (set, tag) = sets.split_key(*key);
                let mut others = std::collections::BTreeSet::new();
                let before = keys[..now].iter().rev();
                let of_set = before.filter(|k| sets.split_key(**k).0 == set);
                let used = of_set.take_while(|k| *k != key).fold(0, |_, k| {
                    others.insert(*k);
                    others.len()
                });
                let expected = keys[..now].contains(key) && used < ways as usize;
                prop_assert_eq!(sets.access_or_evict(set, tag).is_none(), expected);
                prop_assert_eq!(touched.access_or_insert(set, tag), expected);
                prop_assert_eq!(&sets.tags, &touched.tags);
            }
        }
    }
}
