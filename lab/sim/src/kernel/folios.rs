//! Folios: pages larger than a base page and smaller than a region.

use crate::page_bits::PageBits;
use hawkeye_policy::PageOrder;

/// The least order of a folio of anonymous memory.
const LEAST: u32 = 2;

/// The folios of a region, of 2^1 to 2^8 mapped base pages, aligned alike in memory and region.
///
/// In Linux a folio of which a part is unmapped, swapped or replaced remains one until memory is
/// short (`deferred_split_folio` of `mm/huge_memory.c`). A TLB entry, though, then holds at most a
/// block of it that is mapped in full. Here such a folio ends at once. Those blocks become smaller
/// folios, and the rest base pages, all in their present frames; what was unmapped is free.
#[derive(Clone, Debug, Default)]
pub(crate) struct Folios(
    /// Pages by the order of their folio; no set is empty.
    Vec<(PageOrder, PageBits)>,
);

impl Folios {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn page_bits_of_order_or_larger(&self, order: PageOrder) -> PageBits {
        let large = self.0.iter().filter(|(of, _)| *of >= order);
        large.fold(PageBits::EMPTY, |all, (_, pages)| all.or(*pages))
    }

    pub(crate) fn all_pages(&self) -> PageBits {
        self.page_bits_of_order_or_larger(PageOrder::BASE)
    }

    pub(crate) fn order_at(&self, page: u16) -> Option<PageOrder> {
        let found = self.0.iter().find(|(_, pages)| pages.contains(page));
        found.map(|(order, _)| *order)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (PageOrder, PageBits)> {
        self.0.iter().copied()
    }

    /// Makes each whole block of this order a folio, unless it is in one.
    pub(crate) fn insert(&mut self, order: PageOrder, pages: PageBits) {
        debug_assert!(self.all_pages().and(pages).is_empty());
        match self.0.iter_mut().find(|(of, _)| *of == order) {
            Some((_, of)) => *of = of.or(pages),
            None => self.0.push((order, pages)),
        }
    }

    /// Ends the folios that contain any of these pages. The largest remaining blocks of at least
    /// [`LEAST`] pages that contain none become folios of their own.
    pub(crate) fn break_up_folios_with_pages(&mut self, pages: PageBits) {
        let mut smaller = Vec::new();
        for (order, of) in &mut self.0 {
            let ended = of.and(pages).widened_to_blocks(order.log2_pages()).and(*of);
            if ended.is_empty() {
                continue;
            }
            *of = of.minus(ended);
            let mut left = ended.minus(pages);
            for number in (LEAST..order.log2_pages()).rev() {
                let whole = left.fully_covered_blocks(number);
                left = left.minus(whole);
                let order = PageOrder::new(number as u8).unwrap_or_default();
                smaller.push((order, whole));
            }
        }
        for (order, pages) in smaller.into_iter().filter(|(_, pages)| !pages.is_empty()) {
            self.insert(order, pages);
        }
        self.0.retain(|(_, of)| !of.is_empty());
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folios_end_as_a_whole() {
        let mut folios = Folios::default();
        let sixteen = PageOrder::CONTIGUOUS;
        let four = PageOrder::new(2).unwrap_or_default();
        folios.insert(sixteen, PageBits::range(16, 32));
        folios.insert(four, PageBits::range(64, 8));
        assert_eq!(folios.order_at(47), Some(sixteen));
        assert_eq!(folios.order_at(48), None);
        folios.break_up_folios_with_pages(PageBits::range(33, 1).or(PageBits::range(71, 100)));
        let eight = PageOrder::new(3).unwrap_or_default();
        // What is left of the second one of 16 pages, except pages 32 to 35.
        let left = PageBits::range(36, 4).or(PageBits::range(64, 4));
        for (order, pages) in
            [(sixteen, PageBits::range(16, 16)), (four, left), (eight, PageBits::range(40, 8))]
        {
            assert!(folios.0.contains(&(order, pages)), "{order:?}: {folios:?}");
        }
        assert_eq!(folios.page_bits_of_order_or_larger(sixteen), PageBits::range(16, 16));
        folios.break_up_folios_with_pages(folios.all_pages());
        assert!(folios.is_empty());
    }
}
