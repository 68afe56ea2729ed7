//! A set of base pages of one region.

use hawkeye_policy::PAGES_PER_REGION;

const WORDS: usize = PAGES_PER_REGION as usize / 64;

/// Base pages of a region (0-511).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageBits([u64; WORDS]);

impl PageBits {
    pub(crate) const EMPTY: Self = Self([0; WORDS]);
    pub(crate) const FULL: Self = Self([u64::MAX; WORDS]);

    /// `count` pages (at most 512) spread evenly over the region. More contain fewer, so that a
    /// program that uses more pages keeps those that it had.
    pub(crate) fn spread(count: u16) -> Self {
        let mut bits = Self::EMPTY;
        for k in 0..count.min(PAGES_PER_REGION) {
            // The order of reversed bits halves the widest gaps first.
            bits.insert(k.reverse_bits() >> (u16::BITS - PAGES_PER_REGION.trailing_zeros()));
        }
        bits
    }

    pub(crate) fn insert(&mut self, page: u16) {
        if let Some(word) = self.0.get_mut(usize::from(page / 64)) {
            *word |= 1 << (page % 64);
        }
    }

    pub(crate) fn contains(self, page: u16) -> bool {
        let word = self.0.get(usize::from(page / 64));
        word.is_some_and(|word| (word >> (page % 64)) & 1 == 1)
    }

    pub(crate) fn count(self) -> u16 {
        self.0.iter().map(|word| word.count_ones() as u16).sum()
    }

    pub(crate) fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    pub(crate) fn and(self, other: Self) -> Self {
        self.combine(other, |a, b| a & b)
    }

    pub(crate) fn or(self, other: Self) -> Self {
        self.combine(other, |a, b| a | b)
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        self.combine(other, |a, b| a & !b)
    }

    /// Whether all of these pages are in `other`.
    pub(crate) fn within(self, other: Self) -> bool {
        self.minus(other).is_empty()
    }

    fn combine(mut self, other: Self, by: impl Fn(u64, u64) -> u64) -> Self {
        for (a, b) in self.0.iter_mut().zip(other.0) {
            *a = by(*a, b);
        }
        self
    }

    /// Runs of neighbouring pages.
    pub(crate) fn runs(self) -> u16 {
        let mut before = 0;
        let mut runs = 0;
        for word in self.0 {
            runs += (word & !((word << 1) | before)).count_ones() as u16;
            before = word >> 63;
        }
        runs
    }

    /// Keeps the pages for which `keep` is true, asked in ascending order.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut() -> bool) {
        for word in &mut self.0 {
            let mut left = *word;
            while left != 0 {
                let lowest = left & left.wrapping_neg();
                left ^= lowest;
                if !keep() {
                    *word ^= lowest;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_pages_are_as_many_as_asked_for_and_nested() {
        for count in 0..=512 {
            let bits = PageBits::spread(count);
            assert_eq!(bits.count(), count);
            assert!(bits.within(PageBits::spread(count + 1)));
        }
        assert_eq!(PageBits::spread(512), PageBits::FULL);
        assert_eq!(PageBits::spread(256).runs(), 256);
    }

    #[test]
    fn runs_go_on_across_words() {
        let mut bits = PageBits::EMPTY;
        for page in [0, 62, 63, 64, 65, 127, 128, 511] {
            bits.insert(page);
        }
        assert_eq!(bits.runs(), 4);
        assert_eq!(PageBits::FULL.runs(), 1);
        assert_eq!(PageBits::EMPTY.runs(), 0);
    }

    #[test]
    fn retain_asks_once_for_each_page() {
        let mut bits = PageBits::spread(100);
        let mut asked = 0;
        bits.retain(|| {
            asked += 1;
            asked % 2 == 0
        });
        assert_eq!((asked, bits.count()), (100, 50));
        assert!(bits.within(PageBits::spread(100)));
    }
}
