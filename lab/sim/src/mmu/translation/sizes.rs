//! Sizes of pages and of TLB entries.

use super::super::coalesced_page_groups::{CoalescedPageGroup, CoalescedPageGroups};
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use serde::Serialize;

/// Size that one leaf entry of a page table maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum LeafSize {
    /// 4 KiB.
    Base = 0,
    /// 2 MiB.
    Huge = 1,
    /// 1 GiB.
    Giant = 2,
}

impl LeafSize {
    /// In bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Base => BASE_PAGE_BYTES,
            Self::Huge => HUGE_PAGE_BYTES,
            Self::Giant => 1 << 30,
        }
    }
}

/// Size that one TLB entry holds, ascending: a page, or a [group](crate::mmu::CoalescedPageGroup).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum EntrySize {
    /// 4 KiB.
    Base = 0,
    /// A group of base pages.
    BaseGroup = 1,
    /// 2 MiB.
    Huge = 2,
    /// A group of huge pages.
    HugeGroup = 3,
    /// 1 GiB.
    Giant = 4,
}

impl EntrySize {
    /// All sizes.
    pub const ALL: [Self; 5] =
        [Self::Base, Self::BaseGroup, Self::Huge, Self::HugeGroup, Self::Giant];

    /// The size of each of its pages.
    #[inline]
    pub const fn leaf(self) -> LeafSize {
        match self {
            Self::Base | Self::BaseGroup => LeafSize::Base,
            Self::Huge | Self::HugeGroup => LeafSize::Huge,
            Self::Giant => LeafSize::Giant,
        }
    }

    /// The size with this number in its lowest 3 bits; numbers from 5 on count as 4.
    #[inline]
    pub(crate) const fn from_bits(bits: u32) -> Self {
        // A table, because changing page sizes are unpredictable for branches.
        static SIZES: [EntrySize; 8] = {
            let [base, base_group, huge, huge_group, giant] = EntrySize::ALL;
            [base, base_group, huge, huge_group, giant, giant, giant, giant]
        };
        SIZES[(bits & 7) as usize]
    }
}

impl From<LeafSize> for EntrySize {
    fn from(size: LeafSize) -> Self {
        match size {
            LeafSize::Base => Self::Base,
            LeafSize::Huge => Self::Huge,
            LeafSize::Giant => Self::Giant,
        }
    }
}

/// log2 of the base pages in an entry of each size: by [`EntrySize`], a byte each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryOrders(u64);

impl EntryOrders {
    pub(crate) fn new(groups: CoalescedPageGroups) -> Self {
        Self::of_groups(groups, |_| true)
    }

    pub(crate) fn of_first_level(groups: CoalescedPageGroups) -> Self {
        Self::of_groups(groups, |group| group.in_l1)
    }

    fn of_groups(groups: CoalescedPageGroups, has: impl Fn(&CoalescedPageGroup) -> bool) -> Self {
        let order =
            |group: Option<CoalescedPageGroup>| group.filter(&has).map_or(0, |group| group.order);
        let orders = [0, order(groups.base), 9, 9 + order(groups.huge), 18];
        let bytes = orders.into_iter().zip(0..);
        Self(bytes.fold(0, |all, (order, byte)| all | u64::from(order) << (8 * byte)))
    }

    #[inline(always)]
    pub(crate) const fn order_of(self, size: EntrySize) -> u32 {
        // Constants where the size is known, for loops that are specialised for it.
        match size {
            EntrySize::Base => 0,
            _ => (self.0 >> (8 * size as u32)) as u32 & 0xff,
        }
    }

    /// The number of the entry of a size that holds a base page. Its last bits choose the set of a
    /// TLB. There may be more sets than entries in 1 GiB (256 sets and entries of 32 MiB, say).
    /// Then the set also depends on the order in which pieces of 1 GiB were first mapped.
    #[inline(always)]
    pub(crate) const fn entry_number(self, page: u32, size: EntrySize) -> u32 {
        page >> self.order_of(size)
    }

    pub(crate) const fn bytes(self, size: EntrySize) -> u64 {
        BASE_PAGE_BYTES << self.order_of(size)
    }
}
