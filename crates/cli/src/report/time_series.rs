//! Figures over time: means over a fixed number of time spans.

use serde::ser::{Serialize, SerializeStruct, Serializer};
use std::time::Duration;

pub const MOST_POINTS: usize = 300;

/// A figure over time. A default one stays empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeSeries {
    span_s: f64,
    /// Of each span: the sums of times and of values, and their number.
    sums: Vec<(f64, f64, u32)>,
}

impl TimeSeries {
    pub fn for_recording_length(length: Duration) -> Self {
        Self {
            span_s: (length.as_secs_f64() / MOST_POINTS as f64).max(f64::MIN_POSITIVE),
            sums: vec![(0.0, 0.0, 0); MOST_POINTS],
        }
    }

    /// Adds a value, if it is known.
    pub fn add_value(&mut self, at: Duration, value: impl Into<Option<f64>>) {
        let Some(value) = value.into() else { return };
        let at = at.as_secs_f64();
        let span = ((at / self.span_s) as usize).min(MOST_POINTS - 1);
        if let Some((times, sum, count)) = self.sums.get_mut(span) {
            *times += at;
            *sum += value;
            *count += 1;
        }
    }

    /// Means of time and value in each span that has a value, rounded to a thousandth: more digits
    /// only make files longer.
    pub fn mean_points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.sums.iter().filter(|(_, _, count)| *count > 0).map(|(times, sum, count)| {
            let mean = |sum: f64| (sum / f64::from(*count) * 1000.0).round() / 1000.0;
            (mean(*times), mean(*sum))
        })
    }
}

impl Serialize for TimeSeries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (at_s, value): (Vec<f64>, Vec<f64>) = self.mean_points().unzip();
        let mut fields = serializer.serialize_struct("TimeSeries", 2)?;
        fields.serialize_field("at_s", &at_s)?;
        fields.serialize_field("value", &value)?;
        fields.end()
    }
}
