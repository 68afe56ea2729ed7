//! Two levels of TLB for data.

use super::coalesced_page_groups::CoalescedPageGroups;
use super::lru_sets::SetShape;
use super::translation::{EntryOrders, EntrySize, FirstLevelTlb, SecondLevelTlb};
use hawkeye_policy::BASE_PAGE_BYTES;
use serde::{Deserialize, Serialize};

/// First level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum L1TlbSpec {
    /// One TLB for each page size.
    Split {
        /// For base pages.
        base: SetShape,
        /// For huge pages.
        huge: SetShape,
        /// For pages of 1 GiB.
        giant: SetShape,
    },
    /// One TLB for all pages.
    Shared(SetShape),
}

/// Second level, which holds pages of both sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct L2TlbSpec {
    /// Its size.
    pub shape: SetShape,
    /// Shape of a separate part for all entries of more than one base page, if there is one. The
    /// fields below on huge pages and pages of 1 GiB are ignored then.
    #[serde(default)]
    pub large: Option<SetShape>,
    /// Ways of a set that huge pages may take (1 to all).
    pub huge_ways: u32,
    /// Where it holds pages of 1 GiB.
    pub giant: GiantPages,
    /// Extra latency of a hit, over a hit in the first level, in cycles.
    pub hit_cycles: u32,
}

/// Where the second level holds pages of 1 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum GiantPages {
    /// Nowhere: a miss in the first level causes a walk.
    Nowhere,
    /// Among the others, in a limited number of ways of a set.
    Among {
        /// Most ways of a set (1 to all).
        ways: u32,
    },
    /// In a TLB of their own.
    Own(SetShape),
    /// Among the others, as pieces of 2 MiB that count as huge pages ("smashed").
    AsHuge,
}

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
