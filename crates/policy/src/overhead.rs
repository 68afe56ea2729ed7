//! Cost of address translation to a process, its uncertainty, and what huge pages would gain.

use crate::observation::{ProcessSample, RegionSample};
use crate::saturating_cast::ratio_or_zero;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Source of an overhead figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverheadSource {
    /// Hardware counters: cycles in page walks over cycles.
    Counters,
    /// Walk-rate sampling: the pages touched in short windows, weighted with the cost of their
    /// walks on this machine.
    RunRate,
    /// Not measured: an assumed figure where no measurement is possible.
    Assumed,
}

/// The share of its CPU time that a process spends in address translation. Under base pages, huge
/// pages would save it; under huge pages, it is what they still cost (paper, Table 4).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// The best estimate, in per cent (0-100).
    pub percent: f64,
    /// The part that accesses to memory under huge pages cost, in per cent of the process's CPU
    /// time. Promotions don't save it. 0 where it isn't known, as with counters.
    #[serde(default)]
    pub huge_percent: f64,
    /// Lower bound, in per cent.
    pub low_percent: f64,
    /// Upper bound, in per cent.
    pub high_percent: f64,
    /// The measurement is capped here: the true figure may be higher than all of these.
    pub at_least: bool,
    /// The source of the figure.
    pub source: OverheadSource,
}

impl Overhead {
    /// The most that promotions can save of it, in per cent of the process's CPU time.
    pub fn savable_percent(&self) -> f64 {
        (self.percent - self.huge_percent).max(0.0)
    }

    /// A figure without known error, entirely from base pages.
    pub fn exact(percent: f64, source: OverheadSource) -> Self {
        Self {
            percent,
            huge_percent: 0.0,
            low_percent: percent,
            high_percent: percent,
            at_least: false,
            source,
        }
    }
}

impl fmt::Display for Overhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = if self.at_least { "at least " } else { "" };
        write!(f, "{least}{:.1} %", self.percent)?;
        if self.high_percent - self.low_percent >= 0.1 {
            write!(f, " ({:.1}-{:.1})", self.low_percent, self.high_percent)?;
        }
        Ok(())
    }
}

/// Share of its CPU time that a process would save, in per cent (0-100), if all its accessed
/// regions under base pages were huge. `None` where its overhead is unknown.
///
/// `promotable` selects the regions that count. Together they make up what promotions can save, as
/// in the policy that uses this figure. Regions share the overhead by their observed page walks, or
/// by accessed base pages where walks were not seen by region.
pub fn expected_gain_percent(
    sample: &ProcessSample,
    promotable: impl Fn(&RegionSample) -> bool,
) -> Option<f64> {
    let overhead = sample.overhead?;
    let walks = sample.regions.iter().any(|r| r.walks_per_s > 0);
    let weight = |region: &RegionSample| match (region.is_huge(), walks) {
        (true, _) => 0.0,
        (false, true) => f64::from(region.walks_per_s),
        (false, false) => f64::from(region.accessed),
    };
    let sum = |all: f64, region: &RegionSample| all + weight(region);
    let all = sample.regions.iter().fold(0.0, sum);
    let gained = sample.regions.iter().filter(|r| promotable(r));
    let gained = gained.fold(0.0, sum);
    Some(ratio_or_zero(overhead.savable_percent() * gained, all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageOrder;
    use crate::testing::{process, sample as region};

    fn sample(walks: &[u32]) -> ProcessSample {
        let region = |(index, walks_per_s): (u64, &u32)| RegionSample {
            walks_per_s: *walks_per_s,
            ..region(index, 100)
        };
        let regions = (0..).zip(walks).map(region).collect();
        ProcessSample {
            overhead: Some(Overhead::exact(40.0, OverheadSource::RunRate)),
            ..ProcessSample::population(process(1), regions)
        }
    }

    #[test]
    fn eligible_memory_gains_its_share_of_the_walks() {
        let walked = sample(&[300, 100, 0]);
        assert_eq!(expected_gain_percent(&walked, |_| true), Some(40.0));
        let first = walked.regions[0].region;
        let rest = |r: &RegionSample| r.region != first;
        assert_eq!(expected_gain_percent(&walked, rest), Some(10.0));
        // Where walks are not seen by region, accesses replace them.
        let gain = expected_gain_percent(&sample(&[0, 0, 0, 0]), rest);
        assert_eq!(gain, Some(30.0));
    }

    #[test]
    fn walks_of_huge_memory_are_not_saved_by_more_huge_pages() {
        let mut walked = sample(&[300, 100]);
        for (huge_percent, gain) in [(30.0, 10.0), (41.0, 0.0)] {
            walked.overhead = Some(Overhead {
                huge_percent,
                ..Overhead::exact(40.0, OverheadSource::RunRate)
            });
            assert_eq!(expected_gain_percent(&walked, |_| true), Some(gain));
        }
    }

    #[test]
    fn huge_memory_gains_nothing_and_unknown_gain_stays_unknown() {
        let mut huge = sample(&[300, 0]);
        for region in &mut huge.regions {
            region.order = PageOrder::HUGE;
        }
        assert_eq!(expected_gain_percent(&huge, |_| true), Some(0.0));
        let unknown = ProcessSample {
            overhead: None,
            ..sample(&[5])
        };
        assert_eq!(expected_gain_percent(&unknown, |_| true), None);
    }
}
