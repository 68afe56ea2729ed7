//! The TLBs of a core.

use super::miss::{Miss, leave_missed, one_kind};
use super::place::{Place, number};
use super::state::LeafSize;
use super::tags::Tags;
use crate::mmu::{GiantPages, L1Tlb, L2Tlb};
use std::ops::Range;

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

    /// Uses pages, and leaves, at the begin, those that were not there: so many.
    #[inline(never)]
    pub(super) fn filter(&mut self, pages: &mut [Miss]) -> usize {
        match one_size(pages) {
            // Worked out when this is compiled.
            Some(LeafSize::Base) => {
                let tags = self.of_size(LeafSize::Base);
                tags.leave_missed(pages, |_| LeafSize::Base)
            }
            Some(size) => self.of_size(size).leave_missed(pages, move |_| size),
            None => match self {
                Self::Shared(tags) => tags.leave_missed(pages, |page| page.state().entry()),
                Self::Split(by_size) => leave_missed(pages, |page| {
                    let size = page.state().entry();
                    by_size[size as usize].access(page.number(size), size)
                }),
            },
        }
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

fn is_giant(page: &Miss) -> bool {
    page.state().entry() == LeafSize::Giant
}

/// The size of all entries, if they have one.
fn one_size(pages: &[Miss]) -> Option<LeafSize> {
    match one_kind(pages) {
        Some((state, _)) => Some(state.entry()),
        None => {
            let size = pages.first()?.state().entry();
            let mut others = pages.iter().map(|page| page.state().entry() != size);
            (!others.any(|other| other)).then_some(size)
        }
    }
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

    /// Uses the pages of misses, and leaves, at the begin, those that were not there: so many.
    #[inline(never)]
    pub(super) fn filter(&mut self, misses: &mut [Miss]) -> usize {
        match one_size(misses) {
            Some(LeafSize::Base) => self.shared.leave_missed(misses, |_| LeafSize::Base),
            Some(LeafSize::Huge) if self.huge_ways == self.ways => {
                self.shared.leave_missed(misses, |_| LeafSize::Huge)
            }
            None if self.huge_ways == self.ways && !misses.iter().any(is_giant) => self
                .shared
                .leave_missed(misses, |miss| miss.state().entry()),
            _ => leave_missed(misses, |miss| {
                self.access(miss.page(), miss.state().entry())
            }),
        }
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
