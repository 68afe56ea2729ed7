//! How exact an estimate is: its sampling error, and the interval that holds in nine of ten cases.
//!
//! Rounds are the unit of sampling. What one round finds hangs together: a stream touches many
//! pages of a region at once, and a program may work harder in one round than in another. So the
//! error of a rate does not follow from the number of touches. The jackknife (J. Tukey, 1958)
//! computes the estimate again without each of the rounds; the differences show the error.

use crate::saturating_cast::ratio_or_zero;

/// Half the width of the interval that holds in nine of ten cases, in standard errors of a normal
/// distribution.
pub(super) const NINETY_PERCENT: f64 = 1.645;

/// A share of CPU time, and its errors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CpuShareEstimate {
    /// Best estimate, in per cent.
    pub(super) percent: f64,
    /// Standard error of what is added up, in percentage points: costs that may be 0.
    pub(super) added_error: f64,
    /// Standard error of a factor, times the estimate: rates, and costs known to be over 0.
    pub(super) factor_error: f64,
}

impl CpuShareEstimate {
    /// The sum of shares with independent errors.
    pub(super) fn sum(shares: impl IntoIterator<Item = Self>) -> Self {
        shares.into_iter().fold(Self::default(), Self::add)
    }

    fn add(self, other: Self) -> Self {
        Self {
            percent: self.percent + other.percent,
            added_error: self.added_error.hypot(other.added_error),
            factor_error: self.factor_error.hypot(other.factor_error),
        }
    }
}

/// Standard error by the jackknife, from the estimates that leave out one round each. `None` for
/// fewer than two rounds.
pub(super) fn jackknife_standard_error(without_one: &[f64]) -> Option<f64> {
    let count = without_one.len() as f64;
    if count < 2.0 {
        return None;
    }
    let mean = without_one.iter().sum::<f64>() / count;
    let squares: f64 = without_one.iter().map(|one| (one - mean).powi(2)).sum();
    // A few rounds show their own error badly. Student's distribution widens it.
    let wider = students_t_ninety_percent(count - 1.0) / NINETY_PERCENT;
    Some(((count - 1.0) / count * squares).sqrt() * wider)
}

/// As [`NINETY_PERCENT`], for a standard error with `degrees` degrees of freedom (at least one).
fn students_t_ninety_percent(degrees: f64) -> f64 {
    /// For one to four degrees, where the series is off.
    const FEW: [f64; 4] = [6.314, 2.920, 2.353, 2.132];
    if let Some((_, quantile)) = (1u8..).zip(FEW).find(|(n, _)| degrees <= f64::from(*n)) {
        return quantile;
    }
    // The series of Cornish and Fisher (1938).
    let z = NINETY_PERCENT;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + (z.powi(3) + z) / 4.0 / degrees + second / degrees.powi(2)
}

/// The interval that holds in nine of ten cases, in per cent. A factor's error is symmetric in the
/// logarithm.
pub(super) fn ninety_percent_interval(share: CpuShareEstimate) -> (f64, f64) {
    let percent = share.percent;
    let factor = (NINETY_PERCENT * ratio_or_zero(share.factor_error, percent)).exp();
    let added = NINETY_PERCENT * share.added_error;
    let below = (percent - percent / factor).hypot(added);
    let above = (percent * factor - percent).hypot(added);
    ((percent - below).max(0.0), percent + above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_jackknife_of_a_mean_is_its_standard_error() {
        // 1 to 9: variance 7.5, so the mean of nine has a standard error of sqrt(7.5 / 9).
        let all: Vec<f64> = (1..10).map(f64::from).collect();
        let without = |one: &f64| (45.0 - one) / 8.0;
        let error = jackknife_standard_error(&all.iter().map(without).collect::<Vec<_>>());
        let wider = 1.860 / NINETY_PERCENT;
        let expected = (7.5f64 / 9.0).sqrt() * wider;
        assert!(error.is_some_and(|error| (error - expected).abs() < 0.01), "{error:?}");
        assert_eq!(jackknife_standard_error(&[1.0]), None);
        assert_eq!(jackknife_standard_error(&[]), None);
    }

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (degrees, quantile) in [(1.0, 6.314), (4.0, 2.132), (5.0, 2.015), (11.0, 1.796)] {
            let off = (students_t_ninety_percent(degrees) - quantile).abs();
            assert!(off < 0.01, "{degrees}: {off}");
        }
    }

    #[test]
    fn an_added_error_is_symmetric_and_a_factor_s_in_the_logarithm() {
        let interval = |added_error, factor_error| {
            let percent = 10.0;
            ninety_percent_interval(CpuShareEstimate { percent, added_error, factor_error })
        };
        let close = |found: (f64, f64), low: f64, high: f64| {
            assert!((found.0 - low).abs() < 0.01 && (found.1 - high).abs() < 0.01, "{found:?}");
        };
        close(interval(2.0, 0.0), 6.71, 13.29);
        close(interval(0.0, 2.0), 7.20, 13.90);
        // A tiny cost with a large error does not make everything possible.
        close(interval(20.0, 0.0), 0.0, 42.9);
    }

    proptest! {
        #[test]
        fn the_interval_contains_the_figure_and_grows_with_its_errors(
            percent in 1e-6..100.0f64, added_error in 0.0..100.0f64, relative in 0.0..2.0f64,
            more in 0.0..2.0f64,
        ) {
            let interval = |added_error, relative: f64| {
                let factor_error = relative * percent;
                ninety_percent_interval(CpuShareEstimate { percent, added_error, factor_error })
            };
            let (low, high) = interval(added_error, relative);
            prop_assert!(low >= 0.0 && low <= percent && percent <= high);
            for (lower, higher) in [
                interval(added_error + more, relative),
                interval(added_error, relative + more),
            ] {
                prop_assert!(lower <= low && high <= higher);
            }
        }
    }
}
