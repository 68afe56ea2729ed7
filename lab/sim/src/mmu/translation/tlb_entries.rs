//! Pages and groups of one or more sizes in one structure.

use super::fully_associative_lru::{FullyAssociativeLru, MAX_ENTRIES};
use super::missed_pages::{MissedPage, retain_missed};
use super::sizes::{EntryOrders, EntrySize};
use crate::mmu::lru_sets::{LruSets, SetShape};

/// Entries by number and size; the numbers of each size count entries of that size.
#[derive(Clone, Debug)]
pub(in crate::mmu) enum TlbEntries {
    Sets(LruSets),
    Associative(Box<FullyAssociativeLru>),
}

/// Number of entries from which on a comparison with each is slower.
const FEW: u32 = 17;
const SIZE_BITS: u32 = 3;

impl TlbEntries {
    pub(in crate::mmu) fn new(shape: SetShape) -> Self {
        if shape.entries == shape.ways && (FEW..=MAX_ENTRIES).contains(&shape.entries) {
            Self::Associative(Box::new(FullyAssociativeLru::new(shape.entries)))
        } else {
            Self::Sets(LruSets::new(shape))
        }
    }

    #[inline]
    pub(in crate::mmu) fn access(&mut self, number: u32, size: EntrySize) -> bool {
        match self {
            Self::Sets(sets) => {
                let (set, tag) = set_and_tag(sets, number, size);
                sets.access_or_insert(set, tag)
            }
            Self::Associative(all) => all.access(entry_key(number, size)),
        }
    }

    /// Uses a page if it is there; true if it was.
    pub(in crate::mmu) fn access_if_present(&mut self, number: u32, size: EntrySize) -> bool {
        let known = match self {
            Self::Sets(sets) => {
                let (set, tag) = set_and_tag(sets, number, size);
                sets.count_chosen_tags(set, |other| other == tag) > 0
            }
            Self::Associative(all) => all.contains(entry_key(number, size)),
        };
        known && self.access(number, size)
    }

    /// Uses pages, moves those that missed to the front, and returns their number.
    #[inline(always)]
    pub(super) fn retain_missed(
        &mut self,
        pages: &mut [MissedPage],
        orders: EntryOrders,
        size: impl Fn(MissedPage) -> EntrySize + Copy,
    ) -> usize {
        if let Self::Sets(sets) = self {
            let set_bits = sets.set_bits;
            let set_mask = (1 << set_bits) - 1;
            let missed = sets.retain_missed(pages, move |page| {
                let size = size(page);
                let number = orders.entry_number(page.page(), size);
                let set = number & set_mask;
                (set, (number >> set_bits) << SIZE_BITS | size as u32)
            });
            if let Some(missed) = missed {
                return missed;
            }
        }
        retain_missed(pages, |page| {
            let size = size(page);
            self.access(orders.entry_number(page.page(), size), size)
        })
    }

    /// The same, where pages of this size, in groups or not, may take at most `ways` ways of a set.
    #[inline]
    pub(super) fn access_with_way_limit(
        &mut self,
        number: u32,
        size: EntrySize,
        ways: usize,
    ) -> bool {
        let Self::Sets(sets) = self else {
            return self.access(number, size);
        };
        let (set, tag) = set_and_tag(sets, number, size);
        let Some(evicted) = sets.access_or_evict(set, tag) else {
            return true;
        };
        let same = |tag: u32| size_in_tag(tag).leaf() == size.leaf();
        if sets.count_chosen_tags(set, same) > ways {
            sets.evict_chosen_instead(set, evicted, same);
        }
        false
    }

    /// Drops every page for which `keep` returns false.
    pub(in crate::mmu) fn retain(&mut self, keep: impl Fn(u32, EntrySize) -> bool) {
        match self {
            Self::Sets(sets) => {
                let set_bits = sets.set_bits;
                sets.retain(|set, tag| {
                    keep((tag >> SIZE_BITS) << set_bits | set as u32, size_in_tag(tag))
                });
            }
            Self::Associative(all) => {
                all.retain(|key| keep((key >> SIZE_BITS) as u32, size_in_tag(key as u32)));
            }
        }
    }
}

#[inline]
fn entry_key(number: u32, size: EntrySize) -> u64 {
    u64::from(number) << SIZE_BITS | size as u64
}

#[inline]
fn set_and_tag(sets: &LruSets, number: u32, size: EntrySize) -> (usize, u32) {
    let (set, high) = sets.split_key(u64::from(number));
    (set, high << SIZE_BITS | size as u32)
}

fn size_in_tag(tag: u32) -> EntrySize {
    EntrySize::from_bits(tag)
}
