//! Two levels of TLB for data.

use super::coalesced_page_groups::CoalescedPageGroups;
use super::tlb_spec::{L1TlbSpec, L2TlbSpec};
use super::translation::{EntryOrders, EntrySize, FirstLevelTlb, SecondLevelTlb};
use hawkeye_policy::BASE_PAGE_BYTES;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlbLookup {
    L1,
    L2,
    Nowhere,
}

/// An entry of the second level: its number among entries of its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TlbEntryId {
    pub(crate) number: u32,
    pub(crate) size: EntrySize,
}

/// Both levels. A looked-up page is in both; one evicted from the second may stay in the first.
#[derive(Clone, Debug)]
pub(crate) struct TwoLevelTlb {
    first: FirstLevelTlb,
    second: SecondLevelTlb,
    l1_orders: EntryOrders,
    orders: EntryOrders,
}

impl TwoLevelTlb {
    pub(crate) fn new(l1: L1TlbSpec, l2: L2TlbSpec, groups: CoalescedPageGroups) -> Self {
        Self {
            first: FirstLevelTlb::new(l1),
            second: SecondLevelTlb::new(l2),
            l1_orders: EntryOrders::of_first_level(groups),
            orders: EntryOrders::new(groups),
        }
    }

    #[inline]
    pub(crate) fn entry_id(&self, offset: u64, size: EntrySize) -> TlbEntryId {
        TlbEntryId { number: self.orders.entry_number(page_number(offset), size), size }
    }

    pub(crate) fn entry_bytes(&self, size: EntrySize) -> u64 {
        self.orders.bytes(size)
    }

    #[inline]
    pub(crate) fn look_up(&mut self, offset: u64, size: EntrySize) -> TlbLookup {
        let page = page_number(offset);
        let in_l1 = self.l1_orders.entry_number(page, size);
        if self.first.tlb_part_for_size_mut(size).access(in_l1, size) {
            TlbLookup::L1
        } else if self.second.access(page, size, self.orders) {
            TlbLookup::L2
        } else {
            TlbLookup::Nowhere
        }
    }
}

#[inline]
fn page_number(offset: u64) -> u32 {
    (offset / BASE_PAGE_BYTES) as u32
}

#[cfg(test)]
mod tests {
    use super::super::lru_sets::SetShape;
    use super::super::tlb_spec::GiantPages;
    use super::*;

    #[test]
    fn worked_by_hand() {
        // Two sets of one way, and two sets of two ways.
        let l1 = L1TlbSpec::Split {
            base: SetShape::new(2, 1),
            huge: SetShape::new(1, 1),
            giant: SetShape::new(1, 1),
        };
        let l2 = L2TlbSpec {
            shape: SetShape::new(4, 2),
            large: None,
            huge_ways: 2,
            giant: GiantPages::Nowhere,
            hit_cycles: 7,
        };
        let mut tlb = TwoLevelTlb::new(l1, l2, CoalescedPageGroups::NONE);
        let steps = [
            (0, TlbLookup::Nowhere),
            (0, TlbLookup::L1),
            (2, TlbLookup::Nowhere), // pushes 0 out of the first level
            (0, TlbLookup::L2),
            (1, TlbLookup::Nowhere), // another set
            (0, TlbLookup::L1),
            (4, TlbLookup::Nowhere), // third page of set 0: 2 was used before 0
            (2, TlbLookup::Nowhere),
            (0, TlbLookup::Nowhere),
            (1, TlbLookup::L1),
        ];
        for (step, (page, found)) in steps.into_iter().enumerate() {
            let looked_up = tlb.look_up(page << 12, EntrySize::Base);
            assert_eq!(looked_up, found, "step {step}: {page}");
        }
    }
}
