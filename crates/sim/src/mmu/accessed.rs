//! Access bits of an address space.

use super::page::{Page, PageSize};
use hawkeye_policy::PAGES_PER_REGION;

/// Words of a region's bits.
pub(crate) const WORDS: usize = PAGES_PER_REGION as usize / u64::BITS as usize;

/// One bit for each page. A walk sets it; a translation that a TLB has leaves it as it is.
#[derive(Clone, Debug)]
pub(crate) struct AccessBits {
    size: PageSize,
    bits: Vec<u64>,
}

impl AccessBits {
    /// All set: a fault maps a page as accessed.
    pub(crate) fn new(regions: usize, size: PageSize) -> Self {
        let words = match size {
            PageSize::Base => regions * WORDS,
            PageSize::Huge => regions.div_ceil(u64::BITS as usize),
        };
        Self {
            size,
            bits: vec![u64::MAX; words],
        }
    }

    /// Sets a page's bit; true if it was clear.
    #[inline]
    pub(crate) fn set(&mut self, page: Page) -> bool {
        let mask = 1 << (page.number % 64);
        let word = &mut self.bits[(page.number / 64) as usize];
        let was_clear = *word & mask == 0;
        *word |= mask;
        was_clear
    }

    /// Clears the bits of the pages of a region.
    pub(crate) fn clear(&mut self, region: usize) {
        match self.size {
            PageSize::Base => self.bits[region * WORDS..][..WORDS].fill(0),
            PageSize::Huge => self.bits[region / 64] &= !(1 << (region % 64)),
        }
    }

    /// The bits of a region's base pages; of a huge page, all or none.
    pub(crate) fn of_region(&self, region: usize) -> [u64; WORDS] {
        let mut bits = [0; WORDS];
        match self.size {
            PageSize::Base => bits.copy_from_slice(&self.bits[region * WORDS..][..WORDS]),
            PageSize::Huge if self.bits[region / 64] >> (region % 64) & 1 == 1 => {
                bits = [u64::MAX; WORDS];
            }
            PageSize::Huge => {}
        }
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_of_their_page_and_region() {
        let mut bits = AccessBits::new(3, PageSize::Base);
        assert_eq!(bits.of_region(1), [u64::MAX; WORDS]);
        bits.clear(1);
        assert_eq!(bits.of_region(1), [0; WORDS]);
        let page = PageSize::Base.page((512 + 65) * 4096);
        assert!(bits.set(page) && !bits.set(page));
        assert_eq!(bits.of_region(1), [0, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bits.of_region(0), [u64::MAX; WORDS]);
        assert_eq!(bits.of_region(2), [u64::MAX; WORDS]);
    }

    #[test]
    fn a_huge_page_has_one_bit() {
        let mut bits = AccessBits::new(70, PageSize::Huge);
        bits.clear(65);
        assert_eq!(bits.of_region(65), [0; WORDS]);
        assert_eq!(bits.of_region(64), [u64::MAX; WORDS]);
        assert!(bits.set(PageSize::Huge.page((65 << 21) + 12_345)));
        assert_eq!(bits.of_region(65), [u64::MAX; WORDS]);
    }
}
