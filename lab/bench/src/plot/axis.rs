//! An axis with labels at given values.

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use std::ops::Range;

pub(super) struct Axis {
    from: f64,
    to: f64,
    labelled: Vec<f64>,
}

impl Axis {
    pub(super) fn new(from: f64, to: f64, labelled: Vec<f64>) -> Self {
        Self { from, to, labelled }
    }
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
