//! Fully associative entries, few or many of them.

use super::miss_optimised_lru::MissOptimisedLru;
use crate::mmu::tag_vectors::{access_or_insert, empty};
use wide::u32x4;

/// Keys of at most 31 bits, with exact LRU replacement.
#[derive(Clone, Debug)]
pub(in crate::mmu) enum FullyAssociativeKeyCache {
    Four([u32x4; 1]),
    Any(MissOptimisedLru),
}

impl FullyAssociativeKeyCache {
    pub(in crate::mmu) fn new(entries: u32) -> Option<Self> {
        match entries {
            0 => None,
            4 => Some(Self::Four(empty())),
            _ => Some(Self::Any(MissOptimisedLru::new(entries))),
        }
    }

    /// Uses a key; true if it was there.
    #[inline(always)]
    pub(in crate::mmu) fn access(&mut self, key: u32) -> bool {
        match self {
            Self::Four(keys) => access_or_insert(keys, key),
            Self::Any(keys) => keys.access(key),
        }
    }

    pub(in crate::mmu) fn clear(&mut self) {
        match self {
            Self::Four(keys) => *keys = empty(),
            Self::Any(keys) => keys.clear(),
        }
    }
}
