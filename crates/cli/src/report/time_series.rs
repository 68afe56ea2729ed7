//! Figures over time: means over a fixed number of time spans.

use serde::Serialize;
use std::time::Duration;

pub const MOST_POINTS: usize = 300;

#[derive(Clone, Debug)]
pub struct SeriesBuilder {
    span_s: f64,
    sums: Vec<(f64, f64, u32)>,
}

/// A figure over time; both fields have the same length.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TimeSeries {
    pub at_s: Vec<f64>,
    pub value: Vec<f64>,
}

impl SeriesBuilder {
    pub fn for_length(length: Duration) -> Self {
        Self {
            span_s: (length.as_secs_f64() / MOST_POINTS as f64).max(f64::MIN_POSITIVE),
            sums: vec![(0.0, 0.0, 0); MOST_POINTS],
        }
    }

    pub fn add(&mut self, at: Duration, value: f64) {
        let at = at.as_secs_f64();
        let span = ((at / self.span_s) as usize).min(MOST_POINTS - 1);
        if let Some((times, sum, count)) = self.sums.get_mut(span) {
            *times += at;
            *sum += value;
            *count += 1;
        }
    }

    /// The mean of each span that has a value.
    pub fn finish(self) -> TimeSeries {
        let mut series = TimeSeries::default();
        for (times, sum, count) in self.sums.into_iter().filter(|(_, _, count)| *count > 0) {
            series
                .at_s
                .push(round_to_thousandths(times / f64::from(count)));
            series
                .value
                .push(round_to_thousandths(sum / f64::from(count)));
        }
        series
    }
}

/// Rounds to a thousandth; more digits only make files longer.
fn round_to_thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl TimeSeries {
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.at_s.iter().copied().zip(self.value.iter().copied())
    }
}
