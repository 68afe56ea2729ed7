//! Access bits of an address space.

use super::page::PageSize;
use super::translation::Mark;
use hawkeye_policy::PAGES_PER_REGION;

/// Words of a region's bits.
pub(crate) const WORDS: usize = PAGES_PER_REGION as usize / u64::BITS as usize;

/// One bit for each page. A walk sets it; a TLB hit leaves it unchanged.
#[derive(Clone, Debug)]
pub(crate) struct AccessBits {
    size: PageSize,
    /// The bits that one walk sets.
    mark: Mark,
    bits: Vec<u64>,
}

impl AccessBits {
    /// All bits set: a fault maps a page as accessed.
    pub(crate) fn new(regions: usize, size: PageSize) -> Self {
        let words = match size {
            PageSize::Base => regions * WORDS,
            PageSize::Huge => regions.div_ceil(u64::BITS as usize),
        };
        Self {
            size,
            mark: Mark::SINGLE,
            bits: vec![u64::MAX; words],
        }
    }

    /// Sets how many pages share one bit.
    pub(crate) fn set_mark(&mut self, mark: Mark) {
        self.mark = mark;
    }

    /// Sets the bit of the page at `offset`; true if it was clear.
    #[inline]
    pub(crate) fn set(&mut self, offset: u64) -> bool {
        let (word, mask) = self.mark.place((offset / self.size.bytes()) as u32);
        let word = &mut self.bits[word];
        let was_clear = *word & mask == 0;
        *word |= mask;
        was_clear
    }

    /// Access bits of the aligned block of `pages` pages (a power of two, at most 64) around
    /// `offset`: whether all are set, and whether all others are.
    #[inline]
    pub(crate) fn are_set(&self, offset: u64, pages: u32) -> (bool, bool) {
        let page = offset / self.size.bytes();
        let first = page & !u64::from(pages - 1);
        let all = u64::MAX >> (64 - pages) << (first % 64);
        let clear = all & !self.bits[(first / 64) as usize];
        (clear == 0, clear & !(1 << (page % 64)) == 0)
    }

    pub(crate) fn clear(&mut self, region: usize) {
        match self.size {
            PageSize::Base => self.bits[region * WORDS..][..WORDS].fill(0),
            PageSize::Huge => self.mark.clear(&mut self.bits, region),
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
    use super::super::presets::NEOVERSE_V2;
    use super::*;

    #[test]
    fn bits_are_of_their_page_and_region() {
        let mut bits = AccessBits::new(3, PageSize::Base);
        assert_eq!(bits.of_region(1), [u64::MAX; WORDS]);
        bits.clear(1);
        assert_eq!(bits.of_region(1), [0; WORDS]);
        let offset = (512 + 65) * 4096;
        assert!(bits.set(offset) && !bits.set(offset));
        assert_eq!(bits.of_region(1), [0, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bits.of_region(0), [u64::MAX; WORDS]);
        assert_eq!(bits.of_region(2), [u64::MAX; WORDS]);
    }

    #[test]
    fn marked_pages_have_one_bit() {
        let [_, group, ..] = Mark::of_sizes(NEOVERSE_V2.groups);
        let mut bits = AccessBits::new(1, PageSize::Base);
        bits.set_mark(group);
        bits.clear(0);
        assert_eq!(bits.are_set(20 << 12, 4), (false, false));
        assert!(bits.set(20 << 12) && !bits.set(31 << 12));
        assert_eq!(bits.of_region(0)[0], 0xffff_0000);
        assert_eq!(bits.are_set(20 << 12, 4), (true, true));
        assert_eq!(bits.are_set(12 << 12, 4), (false, false));
    }

    #[test]
    fn the_last_one_completes_its_neighbours() {
        let mut bits = AccessBits::new(1, PageSize::Base);
        bits.clear(0);
        for page in 4..7 {
            assert!(bits.set(page << 12));
        }
        assert_eq!(bits.are_set(7 << 12, 4), (false, true));
        assert_eq!(bits.are_set(6 << 12, 4), (false, false));
    }

    #[test]
    fn a_huge_page_has_one_bit() {
        let mut bits = AccessBits::new(70, PageSize::Huge);
        bits.clear(65);
        assert_eq!(bits.of_region(65), [0; WORDS]);
        assert_eq!(bits.of_region(64), [u64::MAX; WORDS]);
        assert!(bits.set((65 << 21) + 12_345));
        assert_eq!(bits.of_region(65), [u64::MAX; WORDS]);
    }
}
