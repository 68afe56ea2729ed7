//! How the touched pages of a region lie.

use crate::page::PAGES_PER_REGION;
use serde::{Deserialize, Serialize};

/// Words of 64 bits for the base pages of a region.
const WORDS: usize = PAGES_PER_REGION as usize / 64;

/// One bit for each base page of a region, lowest address first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageBitmap(pub [u64; WORDS]);

impl PageBitmap {
    /// Number of set pages (0-512).
    #[expect(clippy::cast_possible_truncation, reason = "a word has 64 bits")]
    pub fn count(&self) -> u16 {
        self.0.iter().map(|word| word.count_ones() as u16).sum()
    }

    /// Whether the page is set; false for pages outside of the region.
    pub fn contains(&self, page: u16) -> bool {
        let word = self.0.get(usize::from(page / 64));
        word.is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    /// Sets a page of the region; pages outside of it are ignored.
    pub fn insert(&mut self, page: u16) {
        if let Some(word) = self.0.get_mut(usize::from(page / 64)) {
            *word |= 1 << (page % 64);
        }
    }

    /// Runs of neighbouring set pages: (first page, length), ascending.
    pub fn list_runs(&self) -> Vec<(u16, u16)> {
        let mut runs: Vec<(u16, u16)> = Vec::new();
        for page in (0..PAGES_PER_REGION).filter(|page| self.contains(*page)) {
            match runs.last_mut() {
                Some((first, pages)) if *first + *pages == page => *pages += 1,
                _ => runs.push((page, 1)),
            }
        }
        runs
    }
}

/// Touched base pages of a region by the kind of access that touched them (each 0-512).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TouchedPagesByPattern {
    /// In long runs of neighbours: accessed in order, with cheap, prefetched walks.
    pub streamed: u16,
    /// At one distance from each other.
    pub strided: u16,
    /// All others: random, as far as can be determined.
    pub scattered: u16,
}

/// A run of at least this many pages is a stream, unless most runs are by chance.
const STREAM_PAGES: u16 = 4;
/// At least this many runs must lie at one distance, and at least this share of them.
const STRIDE_RUNS: usize = 6;
const STRIDE_SHARE: f64 = 0.7;
/// A region is touched at random if it has more than this share of the runs expected by chance.
const CHANCE_SHARE: f64 = 0.5;

impl TouchedPagesByPattern {
    /// Classifies the touched pages of a region.
    pub fn classify(touched: &PageBitmap) -> Self {
        let runs = touched.list_runs();
        let short: u16 = runs.iter().filter(|run| run.1 < STREAM_PAGES).map(|run| run.1).sum();
        let strided = is_strided(&runs);
        let touched = touched.count();
        let by_chance = CHANCE_SHARE * expected_random_runs(touched);
        if !strided && runs.len() >= STRIDE_RUNS && runs.len() as f64 > by_chance {
            return Self { scattered: touched, ..Self::default() };
        }
        Self {
            streamed: touched - short,
            strided: if strided { short } else { 0 },
            scattered: if strided { 0 } else { short },
        }
    }

    /// Sum of all kinds (0-512).
    pub fn count_touched_pages(self) -> u16 {
        self.streamed + self.strided + self.scattered
    }
}

/// Expected number of runs of `touched` pages that are touched at random.
fn expected_random_runs(touched: u16) -> f64 {
    let (touched, all) = (f64::from(touched), f64::from(PAGES_PER_REGION));
    touched * (1.0 - touched / all)
}

fn is_strided(runs: &[(u16, u16)]) -> bool {
    let starts = runs.iter().filter(|run| run.1 < STREAM_PAGES);
    let starts: Vec<u16> = starts.map(|run| run.0).collect();
    let mut gaps: Vec<u16> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    if gaps.len() < STRIDE_RUNS {
        return false;
    }
    gaps.sort_unstable();
    let commonest = gaps.chunk_by(|a, b| a == b).map(<[u16]>::len).max();
    commonest.unwrap_or(0) as f64 >= STRIDE_SHARE * gaps.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{Chance, bitmap_of};
    use proptest::prelude::*;

    #[test]
    fn neighbours_are_a_stream_and_equal_distances_a_stride() {
        let shape = TouchedPagesByPattern::classify(&bitmap_of(100..300));
        assert_eq!((shape.streamed, shape.count_touched_pages()), (200, 200));
        let shape = TouchedPagesByPattern::classify(&bitmap_of((3..512).step_by(16)));
        assert_eq!((shape.strided, shape.count_touched_pages()), (32, 32));
        // A few gaps are missing where the window ended.
        let cut = bitmap_of((3..512).step_by(16).filter(|page| *page != 51));
        assert_eq!(TouchedPagesByPattern::classify(&cut).strided, 31);
        assert_eq!(
            TouchedPagesByPattern::classify(&bitmap_of([0, 16, 32, 48])).scattered,
            4,
            "too few"
        );
    }

    #[test]
    fn random_pages_are_scattered() {
        let mut chance = Chance::default();
        // At any density: of 1,000 touches, most fall into long runs by chance.
        for touches in [5, 20, 60, 300, 1000] {
            let touched = bitmap_of((0..touches).map(|_| chance.below(512) as u16));
            let shape = TouchedPagesByPattern::classify(&touched);
            assert!(shape.scattered >= touched.count() - 4, "{shape:?}");
        }
    }

    #[test]
    fn a_stream_among_random_pages_is_found() {
        let shape =
            TouchedPagesByPattern::classify(&bitmap_of((100..300).chain((310..512).step_by(11))));
        assert_eq!(shape.streamed, 200);
        assert_eq!(shape.count_touched_pages() - shape.streamed, 19);
    }

    proptest! {
        #[test]
        fn every_page_is_of_one_kind(words in proptest::array::uniform8(any::<u64>())) {
            let touched = PageBitmap(words);
            prop_assert_eq!(TouchedPagesByPattern::classify(&touched).count_touched_pages(), touched.count());
            let runs = touched.list_runs();
            prop_assert!(runs.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0));
        }
    }
}
