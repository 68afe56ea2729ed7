//! Page sizes and the address of a huge-page-sized region.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Size of a base page, in bytes: 4 KiB, or 16 KiB in a build with the feature `base-pages-16-kib`
/// for kernels that have such pages. All other sizes follow from it. Documents and comments give
/// the figures for 4 KiB.
pub const BASE_PAGE_BYTES: u64 =
    if cfg!(feature = "base-pages-16-kib") { 16 << 10 } else { 4 << 10 };
/// Base pages in one region. A last-level page table fills a base page with entries of 8 bytes.
pub const PAGES_PER_REGION: u16 = if cfg!(feature = "base-pages-16-kib") { 2048 } else { 512 };
/// Size of a huge page, in bytes: the range that one last-level page table maps.
pub const HUGE_PAGE_BYTES: u64 = BASE_PAGE_BYTES * PAGES_PER_REGION as u64;

const _: () = assert!(BASE_PAGE_BYTES == PAGES_PER_REGION as u64 * 8);

/// The power of two of the base pages in `bytes`, which is a power of two.
#[expect(clippy::cast_possible_truncation, reason = "a u64 has 64 bits")]
const fn log2_pages_in(bytes: u64) -> u8 {
    (bytes / BASE_PAGE_BYTES).trailing_zeros() as u8
}

/// A page size as the power of two of the base pages in it: 4 for 64 KiB, 9 for 2 MiB, 18 for 1
/// GiB.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "u8", into = "u8")]
pub struct PageOrder(u8);

impl PageOrder {
    /// 4 KiB.
    pub const BASE: Self = Self(0);
    /// 64 KiB, or 2 MiB with base pages of 16 KiB: one TLB entry where an architecture has
    /// contiguous page-table entries.
    pub const CONTIGUOUS: Self =
        Self(log2_pages_in(if BASE_PAGE_BYTES == 4 << 10 { 64 << 10 } else { 2 << 20 }));
    /// 2 MiB: a huge page.
    pub const HUGE: Self = Self(log2_pages_in(HUGE_PAGE_BYTES));
    /// 32 MiB: sixteen contiguous huge pages. With base pages of 16 KiB they are 32, 1 GiB.
    pub const HUGE_CONTIGUOUS: Self =
        Self(log2_pages_in(if BASE_PAGE_BYTES == 4 << 10 { 32 << 20 } else { 1 << 30 }));
    /// 1 GiB, the largest: what a table of the level above maps.
    pub const GIANT: Self = Self(2 * Self::HUGE.0);

    /// The size of 2^`order` base pages (`order`: 0-18).
    pub const fn new(order: u8) -> Option<Self> {
        if order <= Self::GIANT.0 { Some(Self(order)) } else { None }
    }

    /// The size of a page of `bytes` bytes; `None` if there is none.
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        if bytes.is_power_of_two() && bytes >= BASE_PAGE_BYTES {
            Self::new(log2_pages_in(bytes))
        } else {
            None
        }
    }

    /// The size for a region when only its hugeness is known.
    pub const fn base_or_huge(huge: bool) -> Self {
        if huge { Self::HUGE } else { Self::BASE }
    }

    /// The power of two (0-18).
    pub const fn log2_pages(self) -> u32 {
        self.0 as u32
    }

    /// Base pages in it.
    pub const fn pages(self) -> u64 {
        1 << self.0
    }

    /// Its size in bytes.
    pub const fn bytes(self) -> u64 {
        BASE_PAGE_BYTES << self.0
    }

    /// Regions that a page of this size maps: one for sizes up to 2 MiB.
    pub const fn regions_per_page(self) -> u64 {
        if self.0 > Self::HUGE.0 { 1 << (self.0 - Self::HUGE.0) } else { 1 }
    }
}

impl TryFrom<u8> for PageOrder {
    type Error = String;

    fn try_from(order: u8) -> Result<Self, String> {
        Self::new(order).ok_or_else(|| format!("there is no page of 2^{order} base pages"))
    }
}

impl From<PageOrder> for u8 {
    fn from(order: PageOrder) -> Self {
        order.0
    }
}

impl fmt::Display for PageOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = self.bytes() >> 10;
        match kib {
            0..1024 => write!(f, "{kib} KiB"),
            1024..1_048_576 => write!(f, "{} MiB", kib >> 10),
            _ => write!(f, "{} GiB", kib >> 20),
        }
    }
}

/// A set of page sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PageOrderSet(u32);

impl PageOrderSet {
    /// No size.
    pub const NONE: Self = Self(0);
    /// Huge pages only.
    pub const HUGE: Self = Self(1 << PageOrder::HUGE.0);

    /// The set with one more size.
    #[must_use]
    pub const fn with(self, order: PageOrder) -> Self {
        Self(self.0 | 1 << order.0)
    }

    /// Sizes that are in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Sizes in the set up to and including this one.
    #[must_use]
    pub const fn up_to(self, order: PageOrder) -> Self {
        Self(self.0 & ((2 << order.0) - 1))
    }

    /// Whether a size is in it.
    pub const fn contains(self, order: PageOrder) -> bool {
        self.0 & 1 << order.0 != 0
    }

    /// Whether no size is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The sizes in the set, the smallest first.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = PageOrder> {
        (0..=PageOrder::GIANT.0).map(PageOrder).filter(move |order| self.contains(*order))
    }

    /// The largest size in the set.
    pub fn largest(self) -> Option<PageOrder> {
        self.iter().next_back()
    }
}

impl FromIterator<PageOrder> for PageOrderSet {
    fn from_iter<I: IntoIterator<Item = PageOrder>>(orders: I) -> Self {
        orders.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Display for PageOrderSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let names: Vec<String> = self.iter().map(|order| order.to_string()).collect();
        f.write_str(&names.join(", "))
    }
}

/// Start of a 2 MiB aligned part of an address space: the unit that is promoted or split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RegionAddr(u64);

impl RegionAddr {
    /// The region that holds `address`.
    pub const fn containing(address: u64) -> Self {
        Self(address & !(HUGE_PAGE_BYTES - 1))
    }

    /// First byte of the region.
    pub const fn start(self) -> u64 {
        self.0
    }

    /// First byte after the region.
    pub const fn end(self) -> u64 {
        self.0 + HUGE_PAGE_BYTES
    }
}

impl fmt::Display for RegionAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_in_the_usual_units() {
        for (order, name) in
            [(0, "4 KiB"), (2, "16 KiB"), (9, "2 MiB"), (13, "32 MiB"), (18, "1 GiB")]
        {
            let shown = PageOrder::new(order).map(|order| order.to_string());
            assert_eq!(shown.as_deref(), Some(name));
        }
        assert_eq!(PageOrder::new(19), None);
        assert_eq!(PageOrder::from_bytes(64 << 10), Some(PageOrder::CONTIGUOUS));
        assert_eq!(PageOrder::from_bytes(96 << 10), None);
        assert_eq!(PageOrder::from_bytes(2048), None);
    }

    #[test]
    fn sets_are_in_ascending_order_and_cut_at_a_size() {
        let set: PageOrderSet = [PageOrder::HUGE, PageOrder::CONTIGUOUS].into_iter().collect();
        assert_eq!(set.to_string(), "64 KiB, 2 MiB");
        assert_eq!(set.largest(), Some(PageOrder::HUGE));
        assert_eq!(set.up_to(PageOrder::HUGE), set);
        let cut = set.up_to(PageOrder::CONTIGUOUS);
        assert_eq!(cut.largest(), Some(PageOrder::CONTIGUOUS));
        assert!(set.up_to(PageOrder::BASE).is_empty());
    }
}
