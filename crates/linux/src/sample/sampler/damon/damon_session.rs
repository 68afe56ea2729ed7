//! A window under way, and base pages from what DAMON counts in it.
//!
//! A region with `h` hits in `n` samples is reported as `512 * h / n` base pages. That is an
//! unbiased estimate of the pages touched within one *sampling interval*. Its standard error is
//! `512 * sqrt(p * (1 - p) / n)`, where `p` is the share touched: at most 57 pages with 20 samples.
//! A region under a huge page has one access bit. It is reported as 512 times the share of
//! intervals with any access.

use super::error::{DamonError, DamonResult};
use super::kdamond::{Kdamond, RangeHits, SAMPLES};
use hawkeye_policy::saturating_cast::u16_from_f64;
use hawkeye_policy::{PAGES_PER_REGION, RegionAddr};
use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

/// Shortest sampling interval: two page-table walks per region have to fit into it.
const MIN_SAMPLING: Duration = Duration::from_millis(1);

/// A window under way. Dropping it stops the monitoring and leaves DAMON as it was found.
#[derive(Debug)]
pub struct DamonSession {
    kdamond: Kdamond,
    pid: u32,
    regions: Vec<RegionAddr>,
    /// Time between the clear of a page's access bit and its read: the time to which an estimate
    /// applies.
    sampling: Duration,
    pub(crate) started: Instant,
}

impl DamonSession {
    /// Starts a window of this length, but of at least 20 ms.
    pub(super) fn start(
        kdamond: Kdamond,
        pid: u32,
        regions: &[RegionAddr],
        length: Duration,
    ) -> DamonResult<Self> {
        let sampling = sampling_interval_of_window(length);
        kdamond.check_features()?;
        kdamond.configure_monitoring(pid, regions, sampling)?;
        kdamond.start_monitoring(pid)?;
        Ok(Self { kdamond, pid, regions: regions.to_vec(), sampling, started: Instant::now() })
    }

    /// Waits for the end of the window, then stops monitoring. Returns the estimated number of base
    /// pages (0 to 512) of every region that were touched within one sampling interval, by
    /// ascending address. A region that DAMON did not report is left out.
    ///
    /// A call before the window's end waits for that end. The wait takes up to a sampling interval
    /// and 100 ms more (the kernel's own polling interval), plus the time to read the files. A call
    /// after the end waits for the end of a second window. Signals do not shorten the last part of
    /// the wait.
    pub fn finish(mut self) -> DamonResult<Vec<(RegionAddr, u16)>> {
        // The kernel accepts a request at the start of a sampling interval. The results belong to a
        // window only if that interval is still part of it.
        let due = self.started + self.sampling * (SAMPLES - 2);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let hits = self.kdamond.read_results_at_window_end(self.pid);
        self.kdamond.stop_and_remove()?;
        let hits = hits?;
        if hits.is_empty() {
            return Err(DamonError::TooSlow {
                window: self.sampling * SAMPLES,
                regions: self.regions.len(),
            });
        }
        Ok(estimate_touched_pages(&self.regions, &hits))
    }
}

/// The sampling interval of a window of this length.
fn sampling_interval_of_window(length: Duration) -> Duration {
    (length / SAMPLES).max(MIN_SAMPLING)
}

/// Estimated base pages touched in one sampling interval, for each of `regions` that DAMON reported
/// (unknown is not untouched). A region that it reported in parts gets their mean, weighted by
/// size.
fn estimate_touched_pages(regions: &[RegionAddr], hits: &[RangeHits]) -> Vec<(RegionAddr, u16)> {
    // Of each region: the bytes reported, and these times the samples that found them accessed.
    let mut shares: BTreeMap<RegionAddr, (u64, u64)> =
        regions.iter().map(|&region| (region, (0, 0))).collect();
    for hit in hits {
        let first = RegionAddr::containing(hit.range.start);
        let hit_regions =
            shares.range_mut(first..).take_while(|(region, _)| region.start() < hit.range.end);
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
        u16_from_f64((share * f64::from(PAGES_PER_REGION)).round())
    };
    let reported = shares.into_iter().filter(|(_, share)| share.0 > 0);
    let estimates = reported.map(|(region, share)| (region, pages(share)));
    estimates.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::HUGE_PAGE_BYTES as R;
    use hawkeye_test_support::event_constructors::region_at_index;

    #[test]
    fn a_window_keeps_its_length_but_for_the_shortest_interval() {
        let length = |millis| sampling_interval_of_window(Duration::from_millis(millis)) * SAMPLES;
        assert_eq!(length(1000), Duration::from_secs(1));
        assert_eq!(length(5), Duration::from_millis(20));
    }

    #[test]
    fn parts_are_weighted_by_size_and_silence_is_not_zero() {
        let hits = |range, count| RangeHits { range, count };
        let estimates = estimate_touched_pages(
            &[1, 2, 3, 5].map(region_at_index),
            &[
                hits(R..R + R / 4, 20),
                hits(R + R / 4..2 * R, 4),
                hits(2 * R..4 * R, 99),
                hits(7 * R..8 * R, 20),
            ],
        );
        let expected =
            [(region_at_index(1), 205), (region_at_index(2), 512), (region_at_index(3), 512)];
        assert_eq!(estimates, expected);
    }
}
