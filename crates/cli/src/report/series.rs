//! Figures over time, however many there are: means over spans of it.

use serde::Serialize;
use std::time::Duration;

/// Spans at the most.
pub const MOST_POINTS: usize = 300;

/// A figure that is averaged over spans of time.
#[derive(Clone, Debug)]
pub struct Averaging {
    span_s: f64,
    sums: Vec<(f64, f64, u32)>,
}

/// A figure over time, as many values as times.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Series {
    /// When.
    pub at_s: Vec<f64>,
    /// What.
    pub value: Vec<f64>,
}

impl Averaging {
    /// Over so long.
    pub fn over(length: Duration) -> Self {
        Self {
            span_s: (length.as_secs_f64() / MOST_POINTS as f64).max(f64::MIN_POSITIVE),
            sums: vec![(0.0, 0.0, 0); MOST_POINTS],
        }
    }

    /// Adds a value.
    pub fn add(&mut self, at: Duration, value: f64) {
        let at = at.as_secs_f64();
        let span = ((at / self.span_s) as usize).min(MOST_POINTS - 1);
        if let Some((times, sum, count)) = self.sums.get_mut(span) {
            *times += at;
            *sum += value;
            *count += 1;
        }
    }

    /// Means, where there was anything.
    pub fn finish(self) -> Series {
        let mut series = Series::default();
        for (times, sum, count) in self.sums.into_iter().filter(|(_, _, count)| *count > 0) {
            series.at_s.push(round(times / f64::from(count)));
            series.value.push(round(sum / f64::from(count)));
        }
        series
    }
}

/// To a thousandth: more digits only make files long.
fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

impl Series {
    /// Times and values in pairs.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.at_s.iter().copied().zip(self.value.iter().copied())
    }
}
