//! A fully associative structure with exact least-recently-used replacement, at the same cost for
//! any number of entries.
//!
//! Entries are in slots from 1 on; slot 0 ends every list. One ring links all slots in order of
//! use, and short chains link slots with keys of the same hash.

/// Most entries: slots are bytes.
pub const MAX_ENTRIES: u32 = 255;
const SLOTS: usize = 256;
/// A few times the number of entries, so that chains are short.
const BUCKETS: usize = 1024;
const END: u8 = 0;

/// A set of keys of limited size that evicts the least recently used one.
#[derive(Clone, Debug)]
pub struct FullyAssociativeLru {
    keys: [u64; SLOTS],
    /// Towards the least recently used; of slot 0, the most recently used.
    older: [u8; SLOTS],
    /// Towards the most recently used; of slot 0, the least recently used.
    newer: [u8; SLOTS],
    /// The next slot of the same bucket.
    chain: [u8; SLOTS],
    buckets: [u8; BUCKETS],
    used: usize,
    entries: usize,
}

impl FullyAssociativeLru {
    /// Empty, with 1 to 255 entries.
    pub fn new(entries: u32) -> Self {
        Self {
            keys: [0; SLOTS],
            older: [END; SLOTS],
            newer: [END; SLOTS],
            chain: [END; SLOTS],
            buckets: [END; BUCKETS],
            used: 0,
            entries: entries.clamp(1, MAX_ENTRIES) as usize,
        }
    }

    /// Uses `key`; true if it was there. It is the most recently used one afterwards.
    #[inline]
    pub fn access(&mut self, key: u64) -> bool {
        let newest = self.older[0];
        if newest != END && self.keys[newest as usize] == key {
            return true;
        }
        let bucket = bucket(key);
        let mut slot = self.buckets[bucket];
        while slot != END {
            if self.keys[slot as usize] == key {
                self.unlink(slot);
                self.link(slot);
                return true;
            }
            slot = self.chain[slot as usize];
        }
        let slot = if self.used < self.entries {
            self.used += 1;
            self.used as u8
        } else {
            let oldest = self.newer[0];
            self.unlink(oldest);
            self.unchain(oldest);
            oldest
        };
        self.keys[slot as usize] = key;
        self.chain[slot as usize] = self.buckets[bucket];
        self.buckets[bucket] = slot;
        self.link(slot);
        false
    }

    /// Whether `key` is there. Does not count as a use.
    pub fn contains(&self, key: u64) -> bool {
        let mut slot = self.buckets[bucket(key)];
        while slot != END {
            if self.keys[slot as usize] == key {
                return true;
            }
            slot = self.chain[slot as usize];
        }
        false
    }

    /// Drops every key for which `keep` returns false.
    pub fn retain(&mut self, keep: impl Fn(u64) -> bool) {
        let mut kept = Vec::with_capacity(self.used);
        let mut slot = self.newer[0];
        while slot != END {
            let key = self.keys[slot as usize];
            if keep(key) {
                kept.push(key);
            }
            slot = self.newer[slot as usize];
        }
        self.clear();
        for key in kept {
            self.access(key);
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.used = 0;
        self.buckets.fill(END);
        self.older[0] = END;
        self.newer[0] = END;
    }

    #[inline]
    fn link(&mut self, slot: u8) {
        let newest = self.older[0];
        self.older[slot as usize] = newest;
        self.newer[slot as usize] = END;
        self.newer[newest as usize] = slot;
        self.older[0] = slot;
    }

    #[inline]
    fn unlink(&mut self, slot: u8) {
        let (older, newer) = (self.older[slot as usize], self.newer[slot as usize]);
        self.newer[older as usize] = newer;
        self.older[newer as usize] = older;
    }

    #[inline]
    fn unchain(&mut self, slot: u8) {
        let bucket = bucket(self.keys[slot as usize]);
        let next = self.chain[slot as usize];
        let mut before = self.buckets[bucket];
        if before == slot {
            self.buckets[bucket] = next;
            return;
        }
        while self.chain[before as usize] != slot {
            before = self.chain[before as usize];
        }
        self.chain[before as usize] = next;
    }
}

#[inline]
fn bucket(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BUCKETS.ilog2())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn as_a_plain_list(
            entries in 1u32..80,
            keys in proptest::collection::vec((0u64..120, 0u32..50), 1..600),
        ) {
            let mut fast = FullyAssociativeLru::new(entries);
            let mut plain: Vec<u64> = Vec::new();
            for (key, drop) in keys {
                if drop == 0 {
                    fast.retain(|other| other % 3 != key % 3);
                    plain.retain(|other| other % 3 != key % 3);
                }
                let found = plain.iter().position(|other| *other == key);
                if let Some(at) = found {
                    plain.remove(at);
                }
                plain.insert(0, key);
                plain.truncate(entries as usize);
                prop_assert_eq!(fast.contains(key), found.is_some());
                prop_assert_eq!(fast.access(key), found.is_some());
            }
        }
    }
}
