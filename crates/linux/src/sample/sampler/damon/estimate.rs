//! From DAMON's counts to base pages.
//!
//! A region with `h` hits in `n` samples is reported as `512 * h / n` base pages: an unbiased estimate
//! of those touched within one *sampling interval*, with a standard error of
//! `512 * sqrt(p * (1 - p) / n)` where `p` is the share touched (with 20 samples at most 57 pages). A
//! region under a huge page has one access bit and is reported as 512 times the share of intervals
//! with any access.

use hawkeye_policy::whole::u16_of;
use hawkeye_policy::{PAGES_PER_REGION, RegionAddr};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Range;

/// How many of its samples DAMON found accessed, over one address range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hits {
    /// Addresses.
    pub(super) range: Range<u64>,
    /// Samples that found it accessed.
    pub(super) count: u32,
}

/// Estimated base pages touched in one sampling interval, for every one of `regions` that DAMON
/// reported (unknown is not untouched). A region that it reported in parts gets their mean by size.
pub(super) fn estimate(
    regions: &[RegionAddr],
    hits: &[Hits],
    samples: NonZeroU32,
) -> Vec<(RegionAddr, u16)> {
    let mut shares: BTreeMap<RegionAddr, Share> = regions
        .iter()
        .map(|&region| (region, Share::default()))
        .collect();
    for hit in hits {
        let first = RegionAddr::containing(hit.range.start);
        let hit_regions = shares
            .range_mut(first..)
            .take_while(|(region, _)| region.start() < hit.range.end);
        for (region, share) in hit_regions {
            let end = hit.range.end.min(region.end());
            let bytes = end.saturating_sub(hit.range.start.max(region.start()));
            share.bytes += bytes;
            // Never above the number of samples, but for rounding in the kernel.
            share.touched += bytes * u64::from(hit.count.min(samples.get()));
        }
    }
    let reported = shares.into_iter().filter(|(_, share)| share.bytes > 0);
    reported
        .map(|(region, share)| (region, share.pages(samples)))
        .collect()
}

/// What DAMON reported about one region.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// Bytes it said something about.
    bytes: u64,
    /// The same bytes, each times the samples that found it accessed.
    touched: u64,
}

impl Share {
    /// As a number of base pages (0-512), rounded.
    fn pages(self, samples: NonZeroU32) -> u16 {
        let share = self.touched as f64 / (self.bytes as f64 * f64::from(samples.get()));
        u16_of((share * f64::from(PAGES_PER_REGION)).round())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::HUGE_PAGE_BYTES as R;

    #[test]
    fn parts_are_weighted_by_size_and_silence_is_not_zero() {
        let region = |index: u64| RegionAddr::containing(index * R);
        let hits = |range, count| Hits { range, count };
        let estimates = estimate(
            &[region(1), region(2), region(3), region(5)],
            &[
                hits(R..R + R / 4, 10),
                hits(R + R / 4..2 * R, 2),
                hits(2 * R..4 * R, 99),
                hits(7 * R..8 * R, 10),
            ],
            NonZeroU32::MIN.saturating_add(9),
        );
        assert_eq!(
            estimates,
            [(region(1), 205), (region(2), 512), (region(3), 512)]
        );
    }
}
