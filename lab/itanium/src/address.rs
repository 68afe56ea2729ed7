//! Addresses, regions and page sizes.

/// Address bits under the three that choose a region (thesis, section 3.1).
pub const REGION_BITS: u32 = 61;
/// First byte after what programs can map in a region. The three levels of tables over pages of 4
/// KiB reach 2^39 bytes, an eighth of it for each region (`arch/ia64/mm/init.c`). The same limit
/// holds here for larger base pages.
pub const REGION_LIMIT: u64 = 1 << 36;

/// Number of the region (0-7) of an address.
pub fn region_of_address(address: u64) -> usize {
    (address >> REGION_BITS) as usize
}

/// Offset of an address in its region.
pub fn offset_in_region(address: u64) -> u64 {
    address & ((1 << REGION_BITS) - 1)
}

/// The kernel's page size: the smallest one, and that of every table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BasePageSize {
    /// 4 KiB, as on x86.
    Kib4,
    /// 16 KiB, the default of Itanium Linux (thesis, section 4.2).
    Kib16,
    /// 64 KiB.
    Kib64,
}

/// Bytes of a page-table entry, as a power of two: the short format.
const ENTRY_SHIFT: u32 = 3;

impl BasePageSize {
    /// log2 of its bytes.
    pub const fn shift(self) -> u32 {
        match self {
            Self::Kib4 => 12,
            Self::Kib16 => 14,
            Self::Kib64 => 16,
        }
    }

    /// Bytes.
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }

    /// Number of the page that holds an address, counted from address 0 of region 0.
    pub const fn page_of_address(self, address: u64) -> u64 {
        address >> self.shift()
    }

    /// First byte of a page.
    pub const fn address_of_page(self, page: u64) -> u64 {
        page << self.shift()
    }

    /// Number of whole pages that hold `bytes`.
    pub const fn pages_for_bytes(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes())
    }

    /// log2 of the entries in one page of a page table.
    pub const fn table_entries_shift(self) -> u32 {
        self.shift() - ENTRY_SHIFT
    }

    /// Offset, in the region, of an address's entry in the virtual linear page table. The table
    /// lies at the region's end (`ia64_mmu_init`) and has one entry for every page of the region
    /// (section 3.3.3).
    pub const fn linear_table_entry_offset(self, offset: u64) -> u64 {
        /// As large as the table of the 2^51 bytes that Madison implements in a region.
        const IMPLEMENTED_BITS: u32 = 51;
        let table_bytes = 1 << (IMPLEMENTED_BITS - self.shift() + ENTRY_SHIFT);
        (1 << REGION_BITS) - table_bytes + ((offset >> self.shift()) << ENTRY_SHIFT)
    }
}

/// Page sizes of Itanium 2, as log2 of bytes: 4 KiB to 4 GiB (thesis, table 4.1).
pub const PAGE_SHIFTS: [u32; 12] = [12, 13, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32];

/// Page sizes that a kernel uses, as orders: 2^order base pages. Order 0 is always among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelPageOrders(u32);

impl KernelPageOrders {
    /// The base page and nothing else: a kernel without large pages.
    pub const BASE: Self = Self(1);

    /// The sizes in a bitmap that the processor has. Bit n stands for order n, as in the thesis'
    /// `order_bitmap` (section 5.5.3).
    pub fn from_order_bitmap(bitmap: u32, base: BasePageSize) -> Self {
        let supported = PAGE_SHIFTS.iter().filter(|shift| **shift > base.shift());
        let mask = supported.fold(1, |mask, shift| mask | 1 << (shift - base.shift()));
        Self((bitmap & mask) | 1)
    }

    /// All sizes that the processor has.
    pub fn all_processor_orders(base: BasePageSize) -> Self {
        Self::from_order_bitmap(u32::MAX, base)
    }

    /// Whether there are any large pages.
    pub fn has_large_orders(self) -> bool {
        self != Self::BASE
    }

    /// Whether this order is among them.
    pub fn contains(self, order: u8) -> bool {
        u32::from(order) < u32::BITS && self.0 >> order & 1 != 0
    }

    /// The largest order that is at most `limit`, fits into `pages` pages (1 or more), and is
    /// aligned at `page`.
    pub fn largest_fitting_order(self, page: u64, pages: u64, limit: u8) -> u8 {
        let aligned = page.trailing_zeros().min(u32::BITS - 1);
        let fits = pages.max(1).ilog2().min(u32::BITS - 1);
        self.largest_order_at_most(aligned.min(fits).min(u32::from(limit)))
    }

    /// The next order under `order`.
    pub fn next_lower_order(self, order: u8) -> u8 {
        self.largest_order_at_most(u32::from(order).saturating_sub(1))
    }

    fn largest_order_at_most(self, order: u32) -> u8 {
        let under = self.0 & (u32::MAX >> (u32::BITS - 1 - order.min(u32::BITS - 1)));
        // Order 0 is always there.
        (u32::BITS - 1 - under.leading_zeros()) as u8
    }

    /// Covers neighbouring pages by the largest ones that are aligned and fit, from the first on.
    /// Yields their first page and order (thesis, section 5.5.4 and figure 2.6). No order is above
    /// `limit`.
    pub fn largest_pages_covering(
        self,
        first: u64,
        pages: u64,
        limit: u8,
    ) -> impl Iterator<Item = (u64, u8)> {
        let end = first + pages;
        let mut at = first;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let order = self.largest_fitting_order(at, end - at, limit);
                let piece = (at, order);
                at += 1 << order;
                piece
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_base_page_size_determines_the_orders() {
        let orders = |base| {
            (0..32).filter(move |o| KernelPageOrders::all_processor_orders(base).contains(*o))
        };
        let of = |base| orders(base).collect::<Vec<_>>();
        assert_eq!(of(BasePageSize::Kib16), [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]);
        assert_eq!(of(BasePageSize::Kib4), [0, 1, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]);
        assert_eq!(of(BasePageSize::Kib64), [0, 2, 4, 6, 8, 10, 12, 14, 16]);
        assert!(
            !KernelPageOrders::BASE.has_large_orders()
                && KernelPageOrders::all_processor_orders(BasePageSize::Kib64).has_large_orders()
        );
        assert!(
            KernelPageOrders::from_order_bitmap(0b1001, BasePageSize::Kib16)
                == KernelPageOrders::BASE
        );
    }

    #[test]
    fn figure_2_6() {
        // Eight pages, two off the alignment of four: 2 + 4 + 2.
        let orders = KernelPageOrders::from_order_bitmap(u32::MAX, BasePageSize::Kib4);
        let pieces: Vec<_> = orders.largest_pages_covering(2, 8, u8::MAX).collect();
        assert_eq!(pieces, [(2, 1), (4, 2), (8, 1)]);
    }

    #[test]
    fn one_page_of_the_linear_table_reaches_as_far_as_the_thesis_says() {
        for (base, reach) in [
            (BasePageSize::Kib4, 2 << 20),
            (BasePageSize::Kib16, 32 << 20),
            (BasePageSize::Kib64, 512 << 20),
        ] {
            assert_eq!(base.bytes() << base.table_entries_shift(), reach);
            let page = |offset| base.linear_table_entry_offset(offset) >> base.shift();
            assert_eq!(page(0), page(reach - 1));
            assert_eq!(page(0) + 1, page(reach));
            assert!(base.linear_table_entry_offset(0) > REGION_LIMIT);
        }
    }

    proptest! {
        /// Compares covers with the definition, size by size.
        #[test]
        fn covers_are_aligned_whole_and_as_large_as_can_be(
            bitmap: u32, first in 0u64..1 << 40, pages in 1u64..5000, limit in 0u8..20,
        ) {
            let orders = KernelPageOrders::from_order_bitmap(bitmap, BasePageSize::Kib16);
            let mut next = first;
            for (page, order) in orders.largest_pages_covering(first, pages, limit) {
                let fits = |o: u8| {
                    orders.contains(o) && o <= limit && page % (1 << o) == 0
                        && page + (1 << o) <= first + pages
                };
                prop_assert_eq!(page, next);
                prop_assert!(fits(order));
                prop_assert!((order + 1..32).all(|o| !fits(o)));
                next += 1 << order;
            }
            prop_assert_eq!(next, first + pages);
        }
    }
}
