//! Aligned blocks that contain pages of a region.

use crate::page::{PAGES_PER_REGION, PageOrder};

/// Expected number of naturally aligned blocks of 2^`order` base pages (at most a region) that
/// contain these pages, in this many runs. A block is left out if its first page is left out and no
/// run begins at any of its other pages. A run begins after any left-out page with the same
/// probability.
pub fn expected_blocks(pages: u16, runs: u16, order: PageOrder) -> f64 {
    let size = order.min(PageOrder::HUGE).pages() as f64;
    let region = f64::from(PAGES_PER_REGION);
    let left = region - f64::from(pages.min(PAGES_PER_REGION));
    if pages == 0 || left < 1.0 {
        return if pages == 0 { 0.0 } else { region / size };
    }
    let elsewhere = ((left - (size - 1.0)) / left).max(0.0);
    let alone = left / region * elsewhere.powi(i32::from(runs.clamp(1, pages)));
    (region / size * (1.0 - alone)).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const K64: PageOrder = PageOrder::CONTIGUOUS;

    #[test]
    fn simple_cases() {
        assert!(expected_blocks(0, 0, K64).abs() < 1e-9);
        assert!((expected_blocks(1, 1, K64) - 1.0).abs() < 1e-9);
        assert!((expected_blocks(512, 1, K64) - 32.0).abs() < 1e-9);
        assert!((expected_blocks(512, 1, PageOrder::HUGE) - 1.0).abs() < 1e-9);
        assert!((expected_blocks(300, 7, PageOrder::GIANT) - 1.0).abs() < 1e-9);
        assert!((expected_blocks(40, 1, PageOrder::BASE) - 40.0).abs() < 1e-9);
        // One run of 49 pages, which begins anywhere in its first block.
        assert!((expected_blocks(49, 1, K64) - 4.0).abs() < 0.3);
    }

    proptest! {
        /// Compared with a count: pages drawn at random, by runs.
        #[test]
        fn blocks_are_as_many_as_a_count_finds(runs in 1_usize..24, length in 1_usize..20, order in 1_u8..9, seed: u64) {
            let mut number = crate::run_rate::region_probe_plan::xorshift(seed | 1);
            let mut random = |n: usize| (number() >> 33) as usize % n;
            let (mut sum, mut expected, turns) = (0.0, 0.0, 400);
            for _ in 0..turns {
                let mut page = [false; 512];
                for _ in 0..runs {
                    let first = random(512 - length);
                    page[first..first + length].fill(true);
                }
                let pages = page.iter().filter(|p| **p).count();
                let found = (0..512).filter(|i| page[*i] && (*i == 0 || !page[i - 1])).count();
                let touched = page.chunks(1 << order).filter(|block| block.contains(&true)).count();
                sum += touched as f64;
                let order = PageOrder::new(order).unwrap_or_default();
                expected += expected_blocks(pages as u16, found as u16, order);
            }
            let (counted, expected) = (sum / f64::from(turns), expected / f64::from(turns));
            prop_assert!((expected / counted - 1.0).abs() < 0.15, "{expected} of {counted}");
        }
    }
}
