//! Access bits of an address space.

use super::translation::{AccessBitMask, LeafSize};
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION};

pub(crate) const WORDS: usize = PAGES_PER_REGION as usize / u64::BITS as usize;

/// One bit for each page. A walk sets it; a TLB hit leaves it unchanged.
#[derive(Clone, Debug)]
pub(crate) struct AccessBits {
    size: LeafSize,
    mark: AccessBitMask,
    bits: Vec<u64>,
}

impl AccessBits {
    /// All bits set: a fault maps a page as accessed.
    pub(crate) fn new(regions: usize, size: LeafSize) -> Self {
        let pages = regions as u64 * HUGE_PAGE_BYTES / size.bytes();
        Self {
            size,
            mark: AccessBitMask::SINGLE,
            bits: vec![u64::MAX; pages as usize / u64::BITS as usize + 1],
        }
    }

    pub(crate) fn set_group_mask(&mut self, mark: AccessBitMask) {
        self.mark = mark;
    }

    /// Sets the bit of the page at `offset`; true if it was clear.
    #[inline]
    pub(crate) fn set_bit(&mut self, offset: u64) -> bool {
        let (word, mask) = self.mark.word_and_bits((offset / self.size.bytes()) as u32);
        let word = &mut self.bits[word];
        let was_clear = *word & mask == 0;
        *word |= mask;
        was_clear
    }

    /// Access bits of the aligned block of `pages` pages (a power of two, at most 64) around
    /// `offset`: whether all are set, and whether all others are.
    #[inline]
    pub(crate) fn all_and_other_bits_set(&self, offset: u64, pages: u32) -> (bool, bool) {
        let page = offset / self.size.bytes();
        let first = page & !u64::from(pages - 1);
        let all = u64::MAX >> (64 - pages) << (first % 64);
        let clear = all & !self.bits[(first / 64) as usize];
        (clear == 0, clear & !(1 << (page % 64)) == 0)
    }

    pub(crate) fn clear_region(&mut self, region: usize) {
        let page = self.first_page_of_region(region);
        match self.size {
            LeafSize::Base => self.bits[region * WORDS..][..WORDS].fill(0),
            _ => self.mark.clear_page_bits_in_plane(&mut self.bits, page),
        }
    }

    /// The bits of a region's base pages; of a huge page, all or none.
    pub(crate) fn region_bits(&self, region: usize) -> [u64; WORDS] {
        if self.size == LeafSize::Base {
            return std::array::from_fn(|word| self.bits[region * WORDS + word]);
        }
        let page = self.first_page_of_region(region);
        [(self.bits[page / 64] >> (page % 64) & 1) * u64::MAX; WORDS]
    }

    /// The first page of a region, or the one that maps it.
    fn first_page_of_region(&self, region: usize) -> usize {
        (region as u64 * HUGE_PAGE_BYTES / self.size.bytes()) as usize
    }
}
