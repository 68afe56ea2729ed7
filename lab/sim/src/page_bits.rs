//! A set of base pages of one region.

use crate::rng::SimulationRng;
use hawkeye_policy::PAGES_PER_REGION;

const WORDS: usize = PAGES_PER_REGION as usize / 64;

/// Base pages of a region (0-511).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageBits([u64; WORDS]);

impl PageBits {
    /// The empty set.
    pub const EMPTY: Self = Self([0; WORDS]);
    /// All 512 pages.
    pub const FULL: Self = Self([u64::MAX; WORDS]);

    /// `count` pages (at most 512) spread evenly over the region. A larger set contains every
    /// smaller one, so a program that uses more pages keeps those that it had.
    pub fn evenly_spread(count: u16) -> Self {
        let mut bits = Self::EMPTY;
        for k in 0..count.min(PAGES_PER_REGION) {
            // The order of reversed bits halves the widest gaps first.
            bits.insert(k.reverse_bits() >> (u16::BITS - PAGES_PER_REGION.trailing_zeros()));
        }
        bits
    }

    /// `count` pages in aligned runs of `run` pages (a power of two), positioned by `seed`.
    pub fn scattered_runs(count: u16, run: u16, seed: u64) -> Self {
        let order = run.checked_ilog2().unwrap_or(0);
        let mut rng = SimulationRng::new(seed, run.into());
        let mut places: Vec<u16> = (0..PAGES_PER_REGION >> order).collect();
        let mut bits = Self::EMPTY;
        for _ in 0..(count >> order).min(PAGES_PER_REGION >> order) {
            let place = places.swap_remove(rng.draw_below(places.len() as u64) as usize);
            bits = bits.or(Self::range(place << order, 1 << order));
        }
        bits
    }

    /// One bit per page, the first page lowest.
    pub(crate) fn words(self) -> [u64; WORDS] {
        self.0
    }

    /// Adds a page. A number of 512 or more is no page of a region and is ignored.
    pub fn insert(&mut self, page: u16) {
        if let Some(word) = self.0.get_mut(usize::from(page / 64)) {
            *word |= 1 << (page % 64);
        }
    }

    /// Whether a page is in the set.
    pub fn contains(self, page: u16) -> bool {
        let word = self.0.get(usize::from(page / 64));
        word.is_some_and(|word| (word >> (page % 64)) & 1 == 1)
    }

    /// Number of pages in the set.
    pub fn count(self) -> u16 {
        // Most sets are empty or full, and not every processor counts bits in one instruction.
        let (any, all) = (self.0.iter()).fold((0, u64::MAX), |(any, all), w| (any | w, all & w));
        if any == 0 {
            0
        } else if all == u64::MAX {
            PAGES_PER_REGION
        } else {
            self.0.iter().map(|word| word.count_ones() as u16).sum()
        }
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        // Debug builds compare arrays slowly, and their invariants ask this often.
        self.0.iter().fold(0, |any, word| any | word) == 0
    }

    /// Pages in both sets.
    pub fn and(self, other: Self) -> Self {
        self.combine_words(other, |a, b| a & b)
    }

    /// Pages in either set.
    pub fn or(self, other: Self) -> Self {
        self.combine_words(other, |a, b| a | b)
    }

    /// Pages that the other set does not contain.
    pub fn minus(self, other: Self) -> Self {
        self.combine_words(other, |a, b| a & !b)
    }

    pub(crate) fn is_subset_of(self, other: Self) -> bool {
        self.minus(other).is_empty()
    }

    fn combine_words(mut self, other: Self, by: impl Fn(u64, u64) -> u64) -> Self {
        for (a, b) in self.0.iter_mut().zip(other.0) {
            *a = by(*a, b);
        }
        self
    }

    pub(crate) fn count_runs(self) -> u16 {
        let mut before = 0;
        let mut runs = 0;
        for word in self.0 {
            runs += (word & !((word << 1) | before)).count_ones() as u16;
            before = word >> 63;
        }
        runs
    }

    /// `count` neighbouring pages from `first` on, up to the region's end.
    pub fn range(first: u16, count: u16) -> Self {
        let mut bits = Self::EMPTY;
        let end = first.saturating_add(count).min(PAGES_PER_REGION);
        for (index, word) in bits.0.iter_mut().enumerate() {
            let base = index as u16 * 64;
            let from = first.clamp(base, base + 64) - base;
            let to = end.clamp(base, base + 64) - base;
            if from < to {
                *word = (u64::MAX >> (64 - (to - from))) << from;
            }
        }
        bits
    }

    pub(crate) fn is_full(self) -> bool {
        self == Self::FULL
    }

    pub(crate) fn remove(&mut self, page: u16) {
        if let Some(word) = self.0.get_mut(usize::from(page / 64)) {
            *word &= !(1 << (page % 64));
        }
    }

    /// The first page at or after `from` that is in the set.
    pub(crate) fn next_page(self, from: u16) -> Option<u16> {
        let mut mask = u64::MAX << (from % 64);
        for index in usize::from(from / 64)..WORDS {
            let left = self.0[index] & mask;
            if left != 0 {
                return Some(index as u16 * 64 + left.trailing_zeros() as u16);
            }
            mask = u64::MAX;
        }
        None
    }

    /// The first run of neighbours at or after `from`: its first page and its length.
    pub(crate) fn next_run(self, from: u16) -> Option<(u16, u16)> {
        let first = self.next_page(from)?;
        let end = Self::FULL.minus(self).next_page(first);
        Some((first, end.unwrap_or(PAGES_PER_REGION) - first))
    }

    /// All pages of each aligned block of 2^`order` pages (`order`: 0-9) with a page of this set.
    pub(crate) fn widened_to_blocks(mut self, order: u32) -> Self {
        if order >= u64::BITS.ilog2() {
            let words = 1 << (order - u64::BITS.ilog2()).min(WORDS.ilog2());
            for block in self.0.chunks_mut(words) {
                let any = block.iter().any(|word| *word != 0);
                block.fill(if any { u64::MAX } else { 0 });
            }
            return self;
        }
        let pages = 1 << order;
        let ones = u64::MAX >> (u64::BITS - pages);
        let firsts = u64::MAX / ones;
        for word in &mut self.0 {
            let any = (0..order).fold(*word, |any, step| any | any >> (1 << step));
            *word = (any & firsts) * ones;
        }
        self
    }

    /// Pages of the aligned blocks of 2^`order` pages (`order`: 0-9) that are fully in this set.
    pub(crate) fn fully_covered_blocks(self, order: u32) -> Self {
        Self::FULL.minus(Self::FULL.minus(self).widened_to_blocks(order))
    }

    pub(crate) fn runs(self) -> impl Iterator<Item = (u16, u16)> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let (first, count) = self.next_run(from)?;
            from = first + count;
            Some((first, count))
        })
    }

    /// The `count` pages from `from` on, moved to `to` and after it.
    pub(crate) fn moved_run(self, from: u16, count: u16, to: u16) -> Self {
        let part = self.and(Self::range(from, count));
        if from == to {
            return part;
        }
        let runs = part.runs();
        runs.fold(Self::EMPTY, |moved, (first, count)| {
            moved.or(Self::range(to + (first - from), count))
        })
    }
}

impl SimulationRng {
    /// Keeps each page of a set with this probability.
    pub fn keep_pages_with_probability(&mut self, pages: &mut PageBits, probability: f64) {
        if probability >= 1.0 {
            return;
        }
        let found = *pages;
        *pages = PageBits::EMPTY;
        if probability <= 0.0 {
            return;
        }
        // Distance to the next page that stays: needs few random numbers where few pages stay.
        let log = (-probability).ln_1p();
        let mut skip = self.draw_gap_length(log);
        for (first, count) in found.runs() {
            let count = u64::from(count);
            while skip < count {
                pages.insert(first + skip as u16);
                skip = skip.saturating_add(1).saturating_add(self.draw_gap_length(log));
            }
            skip -= count;
        }
    }

    fn draw_gap_length(&mut self, log: f64) -> u64 {
        const STEPS: f64 = (1u64 << 53) as f64;
        let uniform = ((self.next() >> 11) as f64 + 0.5) / STEPS;
        (uniform.ln() / log) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_pages_are_as_many_as_asked_for_and_nested() {
        for count in 0..=512 {
            let bits = PageBits::evenly_spread(count);
            assert_eq!(bits.count(), count);
            assert!(bits.is_subset_of(PageBits::evenly_spread(count + 1)));
        }
        assert_eq!(PageBits::evenly_spread(512), PageBits::FULL);
        assert_eq!(PageBits::evenly_spread(256).count_runs(), 256);
        let runs = PageBits::scattered_runs(64, 16, 7);
        assert_eq!((runs.count(), runs.fully_covered_blocks(4)), (64, runs));
        assert_eq!(runs, PageBits::scattered_runs(64, 16, 7));
        assert_ne!(runs, PageBits::scattered_runs(64, 16, 8));
        assert_eq!(PageBits::scattered_runs(512, 16, 7), PageBits::FULL);
    }

    #[test]
    fn runs_go_on_across_words() {
        let mut bits = PageBits::EMPTY;
        for page in [0, 62, 63, 64, 65, 127, 128, 511] {
            bits.insert(page);
        }
        assert_eq!(bits.count_runs(), 4);
        assert_eq!(PageBits::FULL.count_runs(), 1);
        assert_eq!(PageBits::EMPTY.count_runs(), 0);
    }

    #[test]
    fn ranges_and_their_runs() {
        for (first, count) in [(0, 512), (0, 1), (63, 2), (64, 64), (5, 300), (511, 1), (0, 64)] {
            let bits = PageBits::range(first, count);
            assert_eq!(bits.count(), count);
            assert_eq!(bits.runs().collect::<Vec<_>>(), [(first, count)]);
        }
        assert!(PageBits::range(512, 1).is_empty() && PageBits::range(3, 0).is_empty());
        assert_eq!(PageBits::range(500, 100), PageBits::range(500, 12));
        let bits = PageBits::range(3, 4).or(PageBits::range(100, 60));
        assert_eq!(bits.runs().collect::<Vec<_>>(), [(3, 4), (100, 60)]);
        assert_eq!(bits.next_run(5), Some((5, 2)));
        assert_eq!(bits.next_run(160), None);
    }

    #[test]
    fn blocks_are_those_of_any_or_of_all_pages() {
        let sets = [
            PageBits::EMPTY,
            PageBits::FULL,
            PageBits::evenly_spread(5),
            PageBits::range(3, 70),
            PageBits::range(64, 321),
            PageBits::range(511, 1),
        ];
        for (set, order) in sets.into_iter().flat_map(|set| (0..10).map(move |o| (set, o))) {
            let (wide, whole) = (set.widened_to_blocks(order), set.fully_covered_blocks(order));
            for page in 0..PAGES_PER_REGION {
                let block = PageBits::range(page >> order << order, 1 << order);
                assert_eq!(wide.contains(page), !block.and(set).is_empty(), "{page} {order}");
                assert_eq!(whole.contains(page), block.is_subset_of(set), "{page} {order}");
            }
        }
    }

    #[test]
    fn as_many_pages_stay_as_should_and_none_is_added() {
        let mut rng = SimulationRng::new(3, 4);
        let found = PageBits::range(3, 300).or(PageBits::range(400, 100));
        for (chance, expected) in [(0.0, 0.0), (0.01, 4.0), (0.5, 200.0), (1.0, 400.0)] {
            let mut sum = 0.0;
            for _ in 0..1000 {
                let mut pages = found;
                rng.keep_pages_with_probability(&mut pages, chance);
                assert!(pages.is_subset_of(found));
                sum += f64::from(pages.count()) / 1000.0;
            }
            assert!((sum - expected).abs() <= 0.05 * expected, "{sum}");
        }
    }
}
