//! Keys of which any can be in any place, with exact least-recently-used replacement, made for more misses than
//! hits: a miss writes one place, and nothing is looked up by a hash.

/// Keys that are compared before a branch is taken.
const CHUNK: usize = 16;

/// Keys in order of use: the last of a row that grows.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    row: Vec<u32>,
    places: usize,
}

/// No key: keys have at most 31 bits.
const EMPTY: u32 = u32::MAX;
/// Length of a row from which on it is begun anew.
const LONG: usize = 2048;

impl Recent {
    /// Empty, with at least one place.
    pub(super) fn new(places: u32) -> Self {
        let places = places.max(1) as usize;
        let mut row = Vec::with_capacity(places + LONG);
        row.resize(places, EMPTY);
        Self { row, places }
    }

    /// Uses `key`; true if it was there. It is the newest afterwards.
    #[inline(always)]
    pub(super) fn access(&mut self, key: u32) -> bool {
        let oldest = self.row.len() - self.places;
        let known = &self.row[oldest..];
        if !contains(known, key) {
            if self.row.len() >= LONG {
                self.begin_anew();
            }
            self.row.push(key);
            return false;
        }
        if let Some(at) = known.iter().rposition(|other| *other == key) {
            self.row[oldest + at..].rotate_left(1);
        }
        true
    }

    /// Uses keys one after the other, and says which were there.
    pub(super) fn access_each(&mut self, keys: &[u32], here: &mut [bool]) {
        self.begin_anew();
        // All are written before the first is compared, so that no comparison reads what was written just before.
        self.row.extend_from_slice(keys);
        let count = keys.len().min(here.len());
        match self.places {
            32 => self.use_each::<32>(&mut here[..count]),
            64 => self.use_each::<64>(&mut here[..count]),
            places => {
                for (first, here) in here[..count].iter_mut().enumerate() {
                    *here = self.use_next(first, places);
                }
            }
        }
    }

    #[inline(always)]
    fn use_each<const PLACES: usize>(&mut self, here: &mut [bool]) {
        for (first, here) in here.iter_mut().enumerate() {
            *here = self.use_next(first, PLACES);
        }
    }

    /// Uses the key that comes after the known ones, which are from `first` on. If it is one of them, those
    /// that were used before it move up to its place.
    #[inline(always)]
    fn use_next(&mut self, first: usize, places: usize) -> bool {
        let key = self.row[first + places];
        let known = &mut self.row[first..first + places];
        let found = contains(known, key);
        if found {
            move_up(known, key);
        }
        found
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.row.clear();
        self.row.resize(self.places, EMPTY);
    }

    /// Moves what is known to the begin of the row.
    fn begin_anew(&mut self) {
        let oldest = self.row.len() - self.places;
        self.row.copy_within(oldest.., 0);
        self.row.truncate(self.places);
    }
}

#[inline(always)]
fn contains(keys: &[u32], key: u32) -> bool {
    let any = |keys: &[u32]| {
        keys.iter()
            .fold(false, |found, other| found | (*other == key))
    };
    let mut chunks = keys.chunks_exact(CHUNK);
    (&mut chunks).fold(false, |found, chunk| found | any(chunk)) | any(chunks.remainder())
}

/// Closes the gap that `key` leaves, from the oldest on.
#[inline(never)]
fn move_up(known: &mut [u32], key: u32) {
    if let Some(at) = known.iter().rposition(|other| *other == key) {
        known.copy_within(..at, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list in order of use, one by one and many at a time.
        #[test]
        fn as_a_plain_list(
            places in 1u32..80,
            groups in proptest::collection::vec(
                (proptest::collection::vec(0u32..120, 0..90), any::<bool>(), 0u32..20), 1..40),
        ) {
            for places in [places, 16, 32, 64] {
                let mut fast = Recent::new(places);
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
                        fast.access_each(keys, &mut here);
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
