//! An axis with labels at given values, and the choice of these values.

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use std::ops::Range;

pub(super) struct Axis {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) labelled: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (begin, end): (i32, i32)) -> i32 {
        let part = (value - self.from) / (self.to - self.from);
        begin + (part * f64::from(end - begin)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.labelled.clone()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

/// About `wanted` round numbers from `from` to `to`.
pub(super) fn round_tick_values(from: f64, to: f64, wanted: u32) -> Vec<f64> {
    let span = to - from;
    if !(span > 0.0 && span.is_finite()) {
        return vec![from];
    }
    let least = span / f64::from(wanted.max(1));
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0];
    let step = steps.map(|step| step * power);
    let step = step.into_iter().find(|step| *step >= least * 0.999);
    let step = step.unwrap_or(least);
    let first = (from / step).ceil() as i64;
    let last = (to / step * (1.0 + 1e-12)).floor() as i64;
    (first..=last).map(|n| n as f64 * step).collect()
}

/// A number in the shortest form with three digits.
pub(super) fn format_three_digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 1e7 => format!("{value:.2e}"),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        assert_eq!(round_tick_values(0.0, 10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(round_tick_values(0.0, 0.7, 4), [0.0, 0.2, 0.4, 0.6000000000000001]);
        assert_eq!(round_tick_values(3.0, 3.0, 4), [3.0]);
        assert_eq!(round_tick_values(0.0, 1234.0, 3), [0.0, 500.0, 1000.0]);
    }

    #[test]
    fn numbers_are_short() {
        let all = [0.0, 0.001, 0.5, 12.0, 1966.3, 2.5e9].map(format_three_digits);
        assert_eq!(all, ["0", "1.0e-3", "0.50", "12.0", "1966", "2.50e9"]);
    }
}
