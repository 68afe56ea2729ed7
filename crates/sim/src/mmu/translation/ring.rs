//! Keys of which any can be in any place, with exact least-recently-used replacement, made for more misses than
//! hits: a miss writes one place, and nothing is looked up by a hash.

/// No key: keys have at most 31 bits.
const EMPTY: u32 = u32::MAX;
/// Keys that are compared at a time.
const CHUNK: usize = 16;

/// Keys in order of use, from `newest` on, round to the place before it.
#[derive(Clone, Debug)]
pub(super) struct Ring {
    keys: Vec<[u32; CHUNK]>,
    places: usize,
    newest: usize,
}

impl Ring {
    /// Empty, with at least one place.
    pub(super) fn new(places: u32) -> Self {
        let places = places.max(1) as usize;
        Self {
            keys: vec![[EMPTY; CHUNK]; places.div_ceil(CHUNK)],
            places,
            newest: 0,
        }
    }

    /// Uses `key`; true if it was there. It is the newest afterwards.
    #[inline(always)]
    pub(super) fn access(&mut self, key: u32) -> bool {
        let found = self.keys.iter().any(|keys| {
            keys.iter()
                .fold(false, |found, here| found | (*here == key))
        });
        if found {
            self.renew(key);
            return true;
        }
        // The place before the newest has the oldest.
        self.newest = self.newest.checked_sub(1).unwrap_or(self.places - 1);
        self.keys.as_flattened_mut()[self.newest] = key;
        false
    }

    /// Makes a key that is there the newest: those that were newer move on by one place.
    #[inline(never)]
    fn renew(&mut self, key: u32) {
        let keys = &mut self.keys.as_flattened_mut()[..self.places];
        let newest = self.newest;
        if keys[newest] == key {
            return;
        }
        let (older, newer) = keys.split_at_mut(newest);
        if let Some(place) = newer.iter().position(|here| *here == key) {
            newer.copy_within(..place, 1);
        } else if let Some(place) = older.iter().position(|here| *here == key) {
            older.copy_within(..place, 1);
            if let (Some(first), Some((last, _))) = (older.first_mut(), newer.split_last()) {
                *first = *last;
            }
            newer.copy_within(..newer.len() - 1, 1);
        }
        newer[0] = key;
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.keys.fill([EMPTY; CHUNK]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against a list in order of use.
        #[test]
        fn as_a_plain_list(
            places in 1u32..80,
            keys in proptest::collection::vec((0u32..120, 0u32..200), 1..600),
        ) {
            let mut fast = Ring::new(places);
            let mut plain: Vec<u32> = Vec::new();
            for (key, drop) in keys {
                if drop == 0 {
                    fast.clear();
                    plain.clear();
                }
                let found = plain.iter().position(|other| *other == key);
                if let Some(at) = found {
                    plain.remove(at);
                }
                plain.insert(0, key);
                plain.truncate(places as usize);
                prop_assert_eq!(fast.access(key), found.is_some());
            }
        }
    }
}
