//! Medians and other quantiles of measured figures.

pub use hawkeye_policy::statistics::{median, median_standard_error, sorted};

use serde::Serialize;

/// The figure in sorted `figures` below which this share of them lies, in thousandths.
pub fn quantile_of_sorted(sorted: &[f64], per_mille: usize) -> Option<f64> {
    sorted.get(sorted.len() * per_mille / 1000).copied()
}

/// The median of one part of each item.
pub fn median_of_mapped<T>(all: &[T], part: impl Fn(&T) -> f64) -> f64 {
    median(&all.iter().map(part).collect::<Vec<_>>())
}

/// The geometric mean of ratios; 1 without ratios.
pub fn geometric_mean(ratios: &[f64]) -> f64 {
    let logarithms: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (logarithms / ratios.len().max(1) as f64).exp()
}

/// The [`median`] of several turns, and their spread. In nanoseconds, unless stated otherwise.
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
            median: median(&figures),
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
    fn quantiles_are_figures_that_were_measured() {
        let figures = sorted((0..200).rev().map(f64::from).collect());
        assert_eq!(quantile_of_sorted(&figures, 25), Some(5.0));
        assert_eq!(quantile_of_sorted(&figures, 990), Some(198.0));
        assert_eq!(quantile_of_sorted(&[], 500), None);
    }
}
