//! Base pages from DAMON's counts.
//!
//! A region with `h` hits in `n` samples is reported as `512 * h / n` base pages. That is an
//! unbiased estimate of the pages touched within one *sampling interval*. Its standard error is
//! `512 * sqrt(p * (1 - p) / n)`, where `p` is the share touched: at most 57 pages with 20 samples.
//! A region under a huge page has one access bit. It is reported as 512 times the share of
//! intervals with any access.

use super::window::SAMPLES;
use hawkeye_policy::saturating_cast::u16_of;
use hawkeye_policy::{PAGES_PER_REGION, RegionAddr};
use std::collections::BTreeMap;
use std::ops::Range;

/// Number of samples in which DAMON found one address range accessed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RangeHits {
    pub(super) range: Range<u64>,
    pub(super) count: u32,
}

/// Estimated base pages touched in one sampling interval, for each of `regions` that DAMON reported
/// (unknown is not untouched). A region that it reported in parts gets their mean, weighted by
/// size.
pub(super) fn estimate(regions: &[RegionAddr], hits: &[RangeHits]) -> Vec<(RegionAddr, u16)> {
    // Of each region: the bytes reported, and these times the samples that found them accessed.
    let mut shares: BTreeMap<RegionAddr, (u64, u64)> =
        regions.iter().map(|&region| (region, (0, 0))).collect();
    for hit in hits {
        let first = RegionAddr::containing(hit.range.start);
        let hit_regions = shares
            .range_mut(first..)
            .take_while(|(region, _)| region.start() < hit.range.end);
        for (region, share) in hit_regions {
            let end = hit.range.end.min(region.end());
            let bytes = end.saturating_sub(hit.range.start.max(region.start()));
            share.0 += bytes;
            // Never above the number of samples, except by rounding in the kernel.
            share.1 += bytes * u64::from(hit.count.min(SAMPLES));
        }
    }
    // A number of base pages (0 to 512), rounded.
    let pages = |(bytes, touched): (u64, u64)| {
        let share = touched as f64 / (bytes as f64 * f64::from(SAMPLES));
        u16_of((share * f64::from(PAGES_PER_REGION)).round())
    };
    let reported = shares.into_iter().filter(|(_, share)| share.0 > 0);
    reported
        .map(|(region, share)| (region, pages(share)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::HUGE_PAGE_BYTES as R;

    #[test]
    fn parts_are_weighted_by_size_and_silence_is_not_zero() {
        let region = |index: u64| RegionAddr::containing(index * R);
        let hits = |range, count| RangeHits { range, count };
        let estimates = estimate(
            &[region(1), region(2), region(3), region(5)],
            &[
                hits(R..R + R / 4, 20),
                hits(R + R / 4..2 * R, 4),
                hits(2 * R..4 * R, 99),
                hits(7 * R..8 * R, 20),
            ],
        );
        let expected = [(region(1), 205), (region(2), 512), (region(3), 512)];
        assert_eq!(estimates, expected);
    }
}
