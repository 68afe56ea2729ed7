//! Entries of which any can hold anything, few or many of them.

use super::associative::Associative;
use crate::mmu::lru::{LruSets, Shape};

/// Up to this many entries it is faster to compare with each.
pub(super) const FEW: u32 = 16;

/// Keys of at most 31 bits, with exact LRU replacement.
#[derive(Clone, Debug)]
pub(super) enum Keys {
    Few(LruSets),
    Many(Box<Associative>),
}

impl Keys {
    /// None of no entries.
    pub(super) fn new(entries: u32) -> Option<Self> {
        match entries {
            0 => None,
            1..=FEW => Some(Self::Few(LruSets::new(Shape::fully_associative(entries)))),
            _ => Some(Self::Many(Box::new(Associative::new(entries)))),
        }
    }

    /// Uses a key; true if it was there.
    #[inline(always)]
    pub(super) fn access(&mut self, key: u32) -> bool {
        match self {
            Self::Few(keys) => keys.touch(0, key),
            Self::Many(keys) => keys.access(u64::from(key)),
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Few(keys) => keys.clear(),
            Self::Many(keys) => keys.clear(),
        }
    }
}
