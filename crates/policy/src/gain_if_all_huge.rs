//! What a process would gain if all of its memory were huge.

use crate::observation::{ProcessSample, RegionSample};
use crate::saturating_cast::ratio_or_zero;

/// Share of its CPU time that a process would save, in per cent (0-100), if all its accessed
/// regions under base pages were huge. `None` where its overhead is unknown.
///
/// `promotable` selects the regions that count. Together they make up what promotions can save, as
/// in the policy that uses this figure. Regions share the overhead by their observed page walks, or
/// by accessed base pages where walks were not seen by region.
pub fn gain_percent_if_all_huge(
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
    let gained = sample.regions.iter().filter(|r| promotable(r)).fold(0.0, sum);
    Some(ratio_or_zero(overhead.savable_percent() * gained, all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageOrder;
    use crate::test_support::{process, sample as region};
    use crate::translation_overhead::{TranslationOverhead, TranslationOverheadSource};

    fn sample(walks: &[u32]) -> ProcessSample {
        let region = |(index, walks_per_s): (u64, &u32)| RegionSample {
            walks_per_s: *walks_per_s,
            ..region(index, 100)
        };
        let regions = (0..).zip(walks).map(region).collect();
        ProcessSample {
            overhead: Some(TranslationOverhead::new_without_error(
                40.0,
                TranslationOverheadSource::WalkRate,
            )),
            ..ProcessSample::from_present_pages(process(1), regions)
        }
    }

    #[test]
    fn eligible_memory_gains_its_share_of_the_walks() {
        let walked = sample(&[300, 100, 0]);
        assert_eq!(gain_percent_if_all_huge(&walked, |_| true), Some(40.0));
        let first = walked.regions[0].region;
        let rest = |r: &RegionSample| r.region != first;
        assert_eq!(gain_percent_if_all_huge(&walked, rest), Some(10.0));
        // Where walks are not seen by region, accesses replace them.
        let gain = gain_percent_if_all_huge(&sample(&[0, 0, 0, 0]), rest);
        assert_eq!(gain, Some(30.0));
    }

    #[test]
    fn walks_of_huge_memory_are_not_saved_by_more_huge_pages() {
        let mut walked = sample(&[300, 100]);
        for (huge_percent, gain) in [(30.0, 10.0), (41.0, 0.0)] {
            walked.overhead = Some(TranslationOverhead {
                huge_percent,
                ..TranslationOverhead::new_without_error(40.0, TranslationOverheadSource::WalkRate)
            });
            assert_eq!(gain_percent_if_all_huge(&walked, |_| true), Some(gain));
        }
    }

    #[test]
    fn huge_memory_gains_nothing_and_unknown_gain_stays_unknown() {
        let mut huge = sample(&[300, 0]);
        for region in &mut huge.regions {
            region.order = PageOrder::HUGE;
        }
        assert_eq!(gain_percent_if_all_huge(&huge, |_| true), Some(0.0));
        let unknown = ProcessSample { overhead: None, ..sample(&[5]) };
        assert_eq!(gain_percent_if_all_huge(&unknown, |_| true), None);
    }
}
