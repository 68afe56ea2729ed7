//! Medians and other quantiles of measured figures.

use serde::Serialize;

pub fn sorted(mut figures: Vec<f64>) -> Vec<f64> {
    figures.sort_by(f64::total_cmp);
    figures
}

/// The figure in sorted `figures` below which this share of them lies, in thousandths.
pub fn quantile_of_sorted(sorted: &[f64], per_mille: usize) -> Option<f64> {
    sorted.get(sorted.len() * per_mille / 1000).copied()
}

/// The median; 0 for an empty slice.
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values.to_vec());
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The median of one part of each item.
pub fn median_of_mapped<T>(all: &[T], part: impl Fn(&T) -> f64) -> f64 {
    median(&all.iter().map(part).collect::<Vec<_>>())
}

/// The standard error of the median of independent values, estimated from the width of their middle
/// half, which a few outliers do not change. 0 for fewer than four values.
pub fn median_standard_error(values: &[f64]) -> f64 {
    /// Standard error of a normal distribution's median, in widths of its middle half.
    const OF_ONE: f64 = 0.929;
    let sorted = sorted(values.to_vec());
    let quarter = sorted.len() / 4;
    if quarter == 0 {
        return 0.0;
    }
    let width = sorted[sorted.len() - 1 - quarter] - sorted[quarter];
    OF_ONE * width / (sorted.len() as f64).sqrt()
}

/// The median of several turns, and their spread. In nanoseconds, unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MedianAndRange {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub turns: usize,
}

impl MedianAndRange {
    /// The spread of some figures; all 0 without figures.
    pub fn from_figures(figures: Vec<f64>) -> Self {
        let figures = sorted(figures);
        let at = |place: usize| figures.get(place).copied().unwrap_or(0.0);
        Self {
            median: at(figures.len() / 2),
            low: at(0),
            high: at(figures.len().saturating_sub(1)),
            turns: figures.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_s_error_is_that_of_the_middle_half() {
        let mut values: Vec<f64> = (0..100).map(f64::from).collect();
        let error = median_standard_error(&values);
        assert!((error - 0.929 * 49.0 / 10.0).abs() < 1e-9, "{error}");
        values[99] = 1e9;
        assert_eq!(median_standard_error(&values), error);
        assert_eq!(median_standard_error(&[1.0, 2.0]), 0.0);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

    #[test]
    fn quantiles_are_figures_that_were_measured() {
        let figures = sorted((0..200).rev().map(f64::from).collect());
        assert_eq!(quantile_of_sorted(&figures, 25), Some(5.0));
        assert_eq!(quantile_of_sorted(&figures, 990), Some(198.0));
        assert_eq!(quantile_of_sorted(&[], 500), None);
    }
}
