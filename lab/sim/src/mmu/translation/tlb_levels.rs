//! The TLBs of a core.

use super::dense_page_numbers::ChunkUpperEntries;
use super::missed_pages::{MissedPage, UniformKind, retain_missed};
use super::sizes::{EntryOrders, EntrySize, LeafSize};
use super::tlb_entries::TlbEntries;
use crate::mmu::{GiantPages, L1TlbSpec, L2TlbSpec};
use std::ops::Range;

#[derive(Clone, Debug)]
pub(in crate::mmu) enum FirstLevelTlb {
    Split([TlbEntries; 3]),
    Shared(TlbEntries),
}

impl FirstLevelTlb {
    pub(in crate::mmu) fn new(tlb: L1TlbSpec) -> Self {
        match tlb {
            L1TlbSpec::Split { base, huge, giant } => {
                Self::Split([base, huge, giant].map(TlbEntries::new))
            }
            L1TlbSpec::Shared(shape) => Self::Shared(TlbEntries::new(shape)),
        }
    }

    /// Uses pages, moves those that missed to the front, and returns their number.
    #[inline(never)]
    pub(super) fn access_and_retain_l1_misses(
        &mut self,
        pages: &mut [MissedPage],
        kind: UniformKind,
        orders: EntryOrders,
    ) -> usize {
        match common_entry_size(pages, kind) {
            Some(EntrySize::Base) => {
                let tags = self.tlb_part_for_size_mut(EntrySize::Base);
                tags.retain_missed(pages, orders, |_| EntrySize::Base)
            }
            Some(size) => {
                let tags = self.tlb_part_for_size_mut(size);
                tags.retain_missed(pages, orders, move |_| size)
            }
            None => match self {
                Self::Shared(tags) => {
                    tags.retain_missed(pages, orders, |page| page.state().entry_size())
                }
                Self::Split(by_size) => retain_missed(pages, |page| {
                    let size = page.state().entry_size();
                    by_size[size.leaf() as usize]
                        .access(orders.entry_number(page.page(), size), size)
                }),
            },
        }
    }

    #[inline]
    pub(in crate::mmu) fn tlb_part_for_size_mut(&mut self, size: EntrySize) -> &mut TlbEntries {
        match self {
            Self::Split(by_size) => &mut by_size[size.leaf() as usize],
            Self::Shared(tags) => tags,
        }
    }

    pub(in crate::mmu) fn retain(&mut self, keep: impl Fn(u32, EntrySize) -> bool) {
        match self {
            Self::Split(by_size) => by_size.iter_mut().for_each(|tags| tags.retain(&keep)),
            Self::Shared(tags) => tags.retain(keep),
        }
    }
}

fn is_giant_entry(page: &MissedPage) -> bool {
    page.state().entry_size() == EntrySize::Giant
}

fn common_entry_size(pages: &[MissedPage], kind: UniformKind) -> Option<EntrySize> {
    match kind {
        Some((state, _)) => Some(state.entry_size()),
        None => {
            let size = pages.first()?.state().entry_size();
            let mut others = pages.iter().map(|page| page.state().entry_size() != size);
            (!others.any(|other| other)).then_some(size)
        }
    }
}

#[derive(Clone, Debug)]
pub(in crate::mmu) struct SecondLevelTlb {
    spec: L2TlbSpec,
    shared: TlbEntries,
    /// For pages of 1 GiB, if they have their own.
    giant: Option<TlbEntries>,
    /// For all but single base pages, if there is a separate part.
    large: Option<TlbEntries>,
}

impl SecondLevelTlb {
    pub(in crate::mmu) fn new(spec: L2TlbSpec) -> Self {
        let giant = match spec.giant {
            GiantPages::Own(shape) => Some(TlbEntries::new(shape)),
            _ => None,
        };
        Self {
            spec,
            shared: TlbEntries::new(spec.shape),
            giant,
            large: spec.large.map(TlbEntries::new),
        }
    }

    /// Uses the pages of misses, moves those that missed to the front, and returns their number.
    #[inline(never)]
    pub(super) fn access_and_retain_l2_misses(
        &mut self,
        misses: &mut [MissedPage],
        kind: UniformKind,
        orders: EntryOrders,
    ) -> usize {
        let all_ways = self.spec.huge_ways == self.spec.shape.ways;
        let own = |miss: MissedPage| miss.state().entry_size();
        match (common_entry_size(misses, kind), &mut self.large) {
            (Some(EntrySize::Base), _) => {
                let base = |_| EntrySize::Base;
                self.shared.retain_missed(misses, orders, base)
            }
            (Some(size), Some(large)) => large.retain_missed(misses, orders, move |_| size),
            (Some(EntrySize::BaseGroup), None) => {
                let group = |_| EntrySize::BaseGroup;
                self.shared.retain_missed(misses, orders, group)
            }
            (Some(size), None) if size.leaf() == LeafSize::Huge && all_ways => {
                self.shared.retain_missed(misses, orders, move |_| size)
            }
            (None, None) if all_ways && !misses.iter().any(is_giant_entry) => {
                self.shared.retain_missed(misses, orders, own)
            }
            _ => retain_missed(misses, |miss| self.access(miss.page(), own(miss), orders)),
        }
    }

    /// Uses the entry of this size that holds `page`; true if it was there.
    pub(in crate::mmu) fn access(
        &mut self,
        page: u32,
        size: EntrySize,
        orders: EntryOrders,
    ) -> bool {
        let number = orders.entry_number(page, size);
        if let (Some(large), true) = (&mut self.large, size != EntrySize::Base) {
            return large.access(number, size);
        }
        let all_ways = self.spec.shape.ways;
        let ways = match (size.leaf(), self.spec.giant) {
            (LeafSize::Base, _) => all_ways,
            (LeafSize::Huge, _) => self.spec.huge_ways,
            (LeafSize::Giant, GiantPages::AsHuge) => {
                return self.access(page, EntrySize::Huge, orders);
            }
            (LeafSize::Giant, GiantPages::Among { ways }) => ways,
            (LeafSize::Giant, GiantPages::Nowhere) => return false,
            (LeafSize::Giant, GiantPages::Own(_)) => {
                let own = self.giant.as_mut();
                return own.is_some_and(|tags| tags.access(number, size));
            }
        };
        if ways == all_ways {
            return self.shared.access(number, size);
        }
        self.shared.access_with_way_limit(number, size, ways as usize)
    }

    /// Uses the entry of base pages that holds `page` if it is there; true if it was.
    pub(in crate::mmu) fn access_if_present(
        &mut self,
        page: u32,
        size: EntrySize,
        orders: EntryOrders,
    ) -> bool {
        let tags = match &mut self.large {
            Some(large) if size != EntrySize::Base => large,
            _ => &mut self.shared,
        };
        tags.access_if_present(orders.entry_number(page, size), size)
    }

    pub(in crate::mmu) fn retain(&mut self, keep: impl Fn(u32, EntrySize) -> bool) {
        let others = self.giant.iter_mut().chain(&mut self.large);
        for tags in others.chain([&mut self.shared]) {
            tags.retain(&keep);
        }
    }
}

pub(super) fn entry_overlaps(
    places: &[ChunkUpperEntries],
    orders: EntryOrders,
    (number, size): (u32, EntrySize),
    addresses: &Range<u64>,
) -> bool {
    let page = u64::from(number) << orders.order_of(size);
    let place = places.get((page >> 18) as usize).copied().unwrap_or_default();
    let begin = (u64::from(place.gib) << 30) + ((page & 0x3_ffff) << 12);
    begin < addresses.end && addresses.start < begin + orders.bytes(size)
}
