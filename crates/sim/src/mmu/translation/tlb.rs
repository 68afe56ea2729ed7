//! The TLBs of a core.

use super::miss::{BATCH, Miss};
use super::place::Place;
use super::state::LeafSize;
use super::tags::Tags;
use crate::mmu::{GiantPages, L1Tlb, L2Tlb};
use std::ops::Range;

/// The number of a page of this size, given one of its base pages.
#[inline]
const fn number(page: u32, size: LeafSize) -> u32 {
    page >> (9 * size as u32)
}

/// The first level.
#[derive(Clone, Debug)]
pub(super) enum FirstLevel {
    Split([Tags; 3]),
    Shared(Tags),
}

impl FirstLevel {
    pub(super) fn new(tlb: L1Tlb) -> Self {
        match tlb {
            L1Tlb::Split { base, huge, giant } => Self::Split([base, huge, giant].map(Tags::new)),
            L1Tlb::Shared(shape) => Self::Shared(Tags::new(shape)),
        }
    }

    /// Uses pages, and leaves those that were not there.
    pub(super) fn filter(&mut self, pages: &mut Vec<Miss>) {
        let mut here = [false; BATCH];
        let here = &mut here[..pages.len()];
        if let Some(size) = one_size(pages) {
            let numbers = pages.iter().map(|page| number(page.page(), size));
            self.of_size(size).access_each(numbers, size, here);
        } else {
            for (page, here) in pages.iter().zip(&mut *here) {
                let size = page.state().entry();
                *here = self.of_size(size).access(number(page.page(), size), size);
            }
        }
        leave_missed(pages, here);
    }

    #[inline]
    fn of_size(&mut self, size: LeafSize) -> &mut Tags {
        match self {
            Self::Split(by_size) => &mut by_size[size as usize],
            Self::Shared(tags) => tags,
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(u32, LeafSize) -> bool) {
        match self {
            Self::Split(by_size) => by_size.iter_mut().for_each(|tags| tags.retain(&keep)),
            Self::Shared(tags) => tags.retain(keep),
        }
    }
}

/// The size of all entries, if they have one.
fn one_size(pages: &[Miss]) -> Option<LeafSize> {
    let size = pages.first()?.state().entry();
    let other = pages
        .iter()
        .fold(false, |other, page| other | (page.state().entry() != size));
    (!other).then_some(size)
}

/// Drops pages that were there. Without a branch, as nobody can foresee which these are.
fn leave_missed(pages: &mut Vec<Miss>, here: &[bool]) {
    let mut missed = 0;
    for (index, here) in (0..pages.len()).zip(here) {
        pages[missed] = pages[index];
        missed += usize::from(!here);
    }
    pages.truncate(missed);
}

/// The second level.
#[derive(Clone, Debug)]
pub(super) struct SecondLevel {
    shared: Tags,
    ways: u32,
    huge_ways: u32,
    giant: Giants,
}

#[derive(Clone, Debug)]
enum Giants {
    Nowhere,
    Among(u32),
    Own(Tags),
    AsHuge,
}

impl SecondLevel {
    pub(super) fn new(tlb: L2Tlb) -> Self {
        Self {
            shared: Tags::new(tlb.shape),
            ways: tlb.shape.ways,
            huge_ways: tlb.huge_ways,
            giant: match tlb.giant {
                GiantPages::Nowhere => Giants::Nowhere,
                GiantPages::Among { ways } => Giants::Among(ways),
                GiantPages::Own(shape) => Giants::Own(Tags::new(shape)),
                GiantPages::AsHuge => Giants::AsHuge,
            },
        }
    }

    /// Uses the pages of misses, and leaves those that were not there.
    pub(super) fn filter(&mut self, misses: &mut Vec<Miss>) {
        let mut here = [false; BATCH];
        let here = &mut here[..misses.len()];
        match one_size(misses) {
            Some(size)
                if size == LeafSize::Base
                    || size == LeafSize::Huge && self.huge_ways == self.ways =>
            {
                let numbers = misses.iter().map(|miss| number(miss.page(), size));
                self.shared.access_each(numbers, size, here);
            }
            _ => {
                for (miss, here) in misses.iter().zip(&mut *here) {
                    *here = self.access(miss.page(), miss.state().entry());
                }
            }
        }
        leave_missed(misses, here);
    }

    /// Uses the page of this size that `page` belongs to; true if it was there.
    pub(super) fn access(&mut self, page: u32, size: LeafSize) -> bool {
        let (size, ways) = match (size, &mut self.giant) {
            (LeafSize::Base, _) => (size, self.ways),
            (LeafSize::Huge, _) | (LeafSize::Giant, Giants::AsHuge) => {
                (LeafSize::Huge, self.huge_ways)
            }
            (LeafSize::Giant, Giants::Among(ways)) => (size, *ways),
            (LeafSize::Giant, Giants::Nowhere) => return false,
            (LeafSize::Giant, Giants::Own(tags)) => return tags.access(number(page, size), size),
        };
        if ways == self.ways {
            return self.shared.access(number(page, size), size);
        }
        let number = number(page, size);
        self.shared.access_within(number, size, ways as usize)
    }

    pub(super) fn retain(&mut self, keep: impl Fn(u32, LeafSize) -> bool) {
        self.shared.retain(&keep);
        if let Giants::Own(tags) = &mut self.giant {
            tags.retain(keep);
        }
    }
}

/// Whether a page of this number and size is of this address space and has bytes in `addresses`.
pub(super) fn is_in(
    places: &[Place],
    (number, size): (u32, LeafSize),
    space: u16,
    addresses: &Range<u64>,
) -> bool {
    let page = u64::from(number) << (9 * size as u32);
    let place = places
        .get((page >> 18) as usize)
        .copied()
        .unwrap_or_default();
    let begin = (u64::from(place.gib) << 30) + ((page & 0x3_ffff) << 12);
    place.space == space && begin < addresses.end && addresses.start < begin + size.bytes()
}
