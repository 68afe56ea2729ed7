//! Averaging a region's coverage over sampling windows.

use crate::page::PAGES_PER_REGION;
use crate::saturating_cast::u16_from_f64;
use crate::setting_error::{Setting, SettingError, check_positive_up_to};

/// Exponential moving average of access coverage (paper, section 3.3).
///
/// The paper doesn't give the weight of the newest window. The default, 0.4, is that of the
/// released code (`mm/ohp.c`). That code truncates to whole pages at every step and so loses up to
/// a page each time. This one keeps the fraction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoverageAveraging {
    newest_weight: f64,
}

impl CoverageAveraging {
    /// An average in which the newest window has this weight, over 0 and at most 1 (1: earlier
    /// windows do not count).
    pub fn new(newest_weight: f64) -> Result<Self, SettingError> {
        let allowed = "over 0 and at most 1";
        check_positive_up_to(1.0, newest_weight, Setting::NewestWeight, allowed)?;
        Ok(Self { newest_weight })
    }

    /// Weight of the newest window, over 0 and at most 1.
    pub fn newest_weight(self) -> f64 {
        self.newest_weight
    }

    /// The average after a window in which `accessed` base pages were accessed (0-512; more counts
    /// as 512). Without a `previous` average the result is the window alone. Starting from 0 would
    /// make every new region look colder than it is.
    pub fn average_after_window(self, previous: Option<f64>, accessed: u16) -> f64 {
        let newest = f64::from(accessed.min(PAGES_PER_REGION));
        match previous {
            Some(previous) => previous + self.newest_weight * (newest - previous),
            None => newest,
        }
    }

    /// An average as whole base pages, to the nearest (0-512).
    pub fn round_to_pages(average: f64) -> u16 {
        // A cast from a float saturates, and turns NaN into 0.
        u16_from_f64(average.round()).min(PAGES_PER_REGION)
    }
}

impl Default for CoverageAveraging {
    fn default() -> Self {
        Self { newest_weight: 0.4 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_weight_is_over_0_and_at_most_1() {
        for bad in [0.0, -0.1, 1.01, f64::NAN, f64::INFINITY] {
            assert!(CoverageAveraging::new(bad).is_err(), "{bad}");
        }
        assert!(CoverageAveraging::new(1.0).is_ok());
    }

    #[test]
    fn a_steady_coverage_is_reached_without_loss() {
        let average = CoverageAveraging::default();
        let end = (0..100).fold(average.average_after_window(None, 0), |a, _| {
            average.average_after_window(Some(a), 512)
        });
        assert_eq!(CoverageAveraging::round_to_pages(end), 512);
        // The released code's integers would stop short of 512 here.
        let steady = (0..100).fold(average.average_after_window(None, 7), |a, _| {
            average.average_after_window(Some(a), 7)
        });
        assert_eq!(CoverageAveraging::round_to_pages(steady), 7);
    }

    proptest! {
        #[test]
        fn the_average_stays_between_old_and_new(weight in 0.01..=1.0f64, old in 0.0..=512.0f64, new in 0u16..=512) {
            let next = CoverageAveraging::new(weight)?.average_after_window(Some(old), new);
            let new = f64::from(new);
            prop_assert!(next >= old.min(new) - 1e-9 && next <= old.max(new) + 1e-9);
        }
    }
}
