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
        match self {
            Self::Split(by_size) if by_size.iter().all(|tags| tags.vectors() == 1) => {
                keep(pages, |page, size| {
                    !by_size[size as usize].access_vectors::<1>(number(page, size), size)
                });
            }
            Self::Split(by_size) => keep(pages, |page, size| {
                !by_size[size as usize].access(number(page, size), size)
            }),
            Self::Shared(tags) => {
                keep(pages, |page, size| !tags.access(number(page, size), size));
            }
        }
    }

    pub(super) fn retain(&mut self, keep: impl Fn(u32, LeafSize) -> bool) {
        match self {
            Self::Split(by_size) => by_size.iter_mut().for_each(|tags| tags.retain(&keep)),
            Self::Shared(tags) => tags.retain(keep),
        }
    }
}

/// Leaves those that `is_kept` is true for. Without a branch, as nobody can foresee which these are; and in two
/// passes, because the host's loads wait for earlier stores as long as it does not know where these go.
#[inline(always)]
fn keep(pages: &mut Vec<Miss>, mut is_kept: impl FnMut(u32, LeafSize) -> bool) {
    let mut kept = [false; BATCH];
    for (page, kept) in pages.iter().zip(&mut kept) {
        *kept = is_kept(page.page(), page.state().entry());
    }
    let mut count = 0;
    for (index, kept) in (0..pages.len()).zip(kept) {
        pages[count] = pages[index];
        count += usize::from(kept);
    }
    pages.truncate(count);
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

    /// Uses the page of this size that `page` belongs to; true if it was there.
    pub(super) fn access(&mut self, page: u32, size: LeafSize) -> bool {
        self.access_vectors::<0>(page, size)
    }

    /// Uses the pages of misses, and leaves those that were not there.
    pub(super) fn filter(&mut self, misses: &mut Vec<Miss>) {
        match self.shared.vectors() {
            2 => self.filter_vectors::<2>(misses),
            3 => self.filter_vectors::<3>(misses),
            4 => self.filter_vectors::<4>(misses),
            6 => self.filter_vectors::<6>(misses),
            _ => self.filter_vectors::<0>(misses),
        }
    }

    fn filter_vectors<const VECTORS: usize>(&mut self, misses: &mut Vec<Miss>) {
        keep(misses, |page, size| !self.access_vectors::<VECTORS>(page, size));
    }

    /// As [`access`](Self::access), where the vectors of a set are known when this is compiled, or 0.
    #[inline(always)]
    fn access_vectors<const VECTORS: usize>(&mut self, page: u32, size: LeafSize) -> bool {
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
            return self.shared.access_vectors::<VECTORS>(number(page, size), size);
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
