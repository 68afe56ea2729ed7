//! Pages of one or more sizes in one structure.

use super::associative::{Associative, MAX_ENTRIES};
use super::miss::{Miss, leave_missed};
use super::state::LeafSize;
use crate::mmu::lru::{Lookup, LruSets, Shape};

/// Pages by number and size; the numbers of each size count pages of that size.
#[derive(Clone, Debug)]
pub(super) enum Tags {
    Sets(LruSets),
    Associative(Box<Associative>),
}

/// From so many entries on it is slower to compare with each.
const FEW: u32 = 17;
/// Bits of a tag that are the size.
const SIZE_BITS: u32 = 2;

impl Tags {
    pub(super) fn new(shape: Shape) -> Self {
        if shape.entries == shape.ways && (FEW..=MAX_ENTRIES).contains(&shape.entries) {
            Self::Associative(Box::new(Associative::new(shape.entries)))
        } else {
            Self::Sets(LruSets::new(shape))
        }
    }

    /// Uses a page; true if it was there.
    #[inline]
    pub(super) fn access(&mut self, number: u32, size: LeafSize) -> bool {
        match self {
            Self::Sets(sets) => {
                let (set, tag) = place(sets, number, size);
                sets.touch(set, tag)
            }
            Self::Associative(all) => all.access(key(number, size)),
        }
    }

    /// Uses pages, and leaves, at the begin, those that were not there: so many.
    #[inline(always)]
    pub(super) fn leave_missed(
        &mut self,
        pages: &mut [Miss],
        size: impl Fn(Miss) -> LeafSize + Copy,
    ) -> usize {
        if let Self::Sets(sets) = self {
            let set_bits = sets.set_bits();
            let set_mask = (1 << set_bits) - 1;
            let missed = sets.leave_missed(pages, move |page| {
                let size = size(page);
                let number = page.number(size);
                let set = number & set_mask;
                (set, (number >> set_bits) << SIZE_BITS | size as u32)
            });
            if let Some(missed) = missed {
                return missed;
            }
        }
        leave_missed(pages, |page| {
            let size = size(page);
            self.access(page.number(size), size)
        })
    }

    /// The same, where pages of this size may take only so many ways of a set.
    #[inline]
    pub(super) fn access_within(&mut self, number: u32, size: LeafSize, ways: usize) -> bool {
        let Self::Sets(sets) = self else {
            return self.access(number, size);
        };
        let (set, tag) = place(sets, number, size);
        let Lookup::Miss { evicted } = sets.access(set, tag) else {
            return true;
        };
        let same = |tag: u32| tag & 3 == size as u32;
        if sets.count(set, same) > ways {
            sets.evict_instead(set, evicted, same);
        }
        false
    }

    /// Drops every page for which `keep` is false.
    pub(super) fn retain(&mut self, keep: impl Fn(u32, LeafSize) -> bool) {
        match self {
            Self::Sets(sets) => {
                let set_bits = sets.set_bits();
                sets.retain(|set, tag| {
                    keep((tag >> SIZE_BITS) << set_bits | set as u32, size_of(tag))
                });
            }
            Self::Associative(all) => {
                all.retain(|key| keep((key >> SIZE_BITS) as u32, size_of(key as u32)));
            }
        }
    }
}

#[inline]
fn key(number: u32, size: LeafSize) -> u64 {
    u64::from(number) << SIZE_BITS | size as u64
}

/// Set and tag of a page.
#[inline]
fn place(sets: &LruSets, number: u32, size: LeafSize) -> (usize, u32) {
    let (set, high) = sets.split(u64::from(number));
    (set, high << SIZE_BITS | size as u32)
}

fn size_of(tag: u32) -> LeafSize {
    match tag & 3 {
        0 => LeafSize::Base,
        1 => LeafSize::Huge,
        _ => LeafSize::Giant,
    }
}
