//! Fully associative keys with exact least-recently-used replacement, optimised for more misses
//! than hits. A miss writes one slot, and the key's last bits usually suffice to recognise it.

use crate::mmu::tag_vectors::LANES;
use wide::u32x4;

/// Keys in order of use: the last ones of a growing row.
#[derive(Clone, Debug)]
pub(in crate::mmu) struct MissOptimisedLru {
    row: Vec<u32>,
    places: usize,
    /// Number of known keys by their last bits. For most unknown keys it is 0.
    endings: Box<[u16; ENDINGS]>,
}

/// No key: keys have at most 31 bits.
const EMPTY: u32 = u32::MAX;
/// Length at which the row is compacted.
const LONG: usize = 2048;
/// Many times the number of places.
const ENDINGS: usize = 1024;

const fn low_bits_of_key(key: u32) -> usize {
    key as usize % ENDINGS
}

impl MissOptimisedLru {
    pub(super) fn new(places: u32) -> Self {
        let places = places.clamp(1, u16::MAX.into()) as usize;
        let mut recent = Self {
            row: Vec::with_capacity(places + LONG),
            places,
            endings: Box::new([0; ENDINGS]),
        };
        recent.clear();
        recent
    }

    /// Uses `key`; true if it was there. It is the newest afterwards.
    #[inline(always)]
    pub(super) fn access(&mut self, key: u32) -> bool {
        if self.row.len() >= LONG {
            self.compact_row();
        }
        let oldest = self.row.len() - self.places;
        self.row.push(key);
        let known = &self.row[oldest..oldest + self.places];
        if self.endings[low_bits_of_key(key)] != 0 && contains(known, key) {
            move_up(&mut self.row[oldest..]);
            return true;
        }
        self.endings[low_bits_of_key(known[0])] -= 1;
        self.endings[low_bits_of_key(key)] += 1;
        false
    }

    /// Uses keys in order, and reports the indices of those that were there.
    #[inline(always)]
    pub(super) fn access_each(
        &mut self,
        keys: impl ExactSizeIterator<Item = u32>,
        is_here: impl FnMut(usize),
    ) {
        self.compact_row();
        let count = keys.len();
        // Writes all keys before the first comparison, so that no comparison reads a fresh write.
        self.row.extend(keys);
        match self.places {
            32 => self.access_batch::<32>(count, is_here),
            64 => self.access_batch::<64>(count, is_here),
            _ => self.access_batch_of(count, self.places, is_here),
        }
    }

    fn access_batch<const PLACES: usize>(&mut self, count: usize, is_here: impl FnMut(usize)) {
        self.access_batch_of(count, PLACES, is_here);
    }

    #[inline(always)]
    fn access_batch_of(&mut self, count: usize, places: usize, mut is_here: impl FnMut(usize)) {
        let mut done = 0;
        while let Some(known) = self.access_until_known(done, count, places) {
            move_up(&mut self.row[known..known + places + 1]);
            is_here(known);
            done = known + 1;
        }
    }

    /// Uses `count` keys from index `done` on, up to the first known one; returns its index.
    #[inline(always)]
    fn access_until_known(&mut self, done: usize, count: usize, places: usize) -> Option<usize> {
        let (row, endings) = (&self.row[done..count + places], &mut self.endings);
        let pairs = row.iter().zip(&row[places..]);
        for (number, (oldest, key)) in pairs.enumerate() {
            if endings[low_bits_of_key(*key)] != 0 && contains(&row[number..number + places], *key)
            {
                return Some(done + number);
            }
            endings[low_bits_of_key(*oldest)] -= 1;
            endings[low_bits_of_key(*key)] += 1;
        }
        None
    }

    pub(super) fn clear(&mut self) {
        self.row.clear();
        self.row.resize(self.places, EMPTY);
        self.endings.fill(0);
        self.endings[low_bits_of_key(EMPTY)] = self.places as u16;
    }

    fn compact_row(&mut self) {
        let oldest = self.row.len() - self.places;
        self.row.copy_within(oldest.., 0);
        self.row.truncate(self.places);
    }
}

#[inline(always)]
fn contains(keys: &[u32], key: u32) -> bool {
    let wanted = u32x4::splat(key);
    let mut vectors = keys.chunks_exact(LANES);
    let any = (&mut vectors).fold(u32x4::ZERO, |any, keys| {
        let keys: [u32; LANES] = std::array::from_fn(|lane| keys[lane]);
        any | u32x4::new(keys).cmp_eq(wanted)
    });
    any.any() | vectors.remainder().contains(&key)
}

/// Closes the gap that a known key (the last one) leaves when it is used again, from the oldest on.
#[inline(never)]
fn move_up(used: &mut [u32]) {
    if let Some((key, known)) = used.split_last_mut() {
        if let Some(at) = known.iter().rposition(|other| other == key) {
            known.copy_within(..at, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_a_plain_list(
            places in 1u32..80,
            groups in proptest::collection::vec(
                (proptest::collection::vec(0u32..120, 0..90), any::<bool>(), 0u32..20), 1..40),
        ) {
            for places in [places, 16, 32, 64] {
                let mut fast = MissOptimisedLru::new(places);
                let mut plain: Vec<u32> = Vec::new();
                for (keys, single, drop) in &groups {
                    if *drop == 0 {
                        fast.clear();
                        plain.clear();
                    }
                    let mut here = vec![false; keys.len()];
                    if *single {
                        here.iter_mut().zip(keys).for_each(|(here, key)| *here = fast.access(*key));
                    } else {
                        fast.access_each(keys.iter().copied(), |number| here[number] = true);
                    }
                    for (key, here) in keys.iter().zip(here) {
                        let found = plain.iter().position(|other| other == key);
                        if let Some(at) = found {
                            plain.remove(at);
                        }
                        plain.insert(0, *key);
                        plain.truncate(places as usize);
                        prop_assert_eq!(here, found.is_some());
                    }
                }
            }
        }
    }
}
