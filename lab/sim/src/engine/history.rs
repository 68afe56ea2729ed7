//! A program's state over time.

use super::figures::{ProgramMoment, SizeFigures};
use crate::kernel::{FaultCounts, MappedBySize};
use hawkeye_policy::PageOrder;
use std::time::Duration;

/// Most moments. Beyond that every second one is dropped and their distance doubles.
const MOST: usize = 512;
/// Initial distance between moments, in seconds, at least.
const FIRST_EVERY_S: f64 = 0.1;

#[derive(Debug)]
pub(super) struct ProgramHistory {
    moments: Vec<ProgramMoment>,
    every_s: f64,
}

impl ProgramHistory {
    pub(super) fn new() -> Self {
        Self {
            moments: Vec::new(),
            every_s: FIRST_EVERY_S,
        }
    }

    pub(super) fn is_due(&self, now_s: f64) -> bool {
        let last = self.moments.last();
        last.is_none_or(|last| now_s >= last.at_s + self.every_s)
    }

    pub(super) fn push(&mut self, moment: ProgramMoment) {
        self.moments.push(moment);
        if self.moments.len() >= MOST {
            let mut number = 0;
            self.moments.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.every_s *= 2.0;
        }
    }

    pub(super) fn moments(&self) -> &[ProgramMoment] {
        &self.moments
    }
}

/// The sizes at the last update, and their sums over the time before.
#[derive(Clone, Debug)]
pub(super) struct PageSizeHistory {
    began: Duration,
    at: Duration,
    mapped: MappedBySize,
    /// Bytes times seconds, by order.
    sums: [f64; MappedBySize::ORDERS],
}

impl PageSizeHistory {
    pub(super) fn new(began: Duration) -> Self {
        Self {
            began,
            at: began,
            mapped: MappedBySize::default(),
            sums: [0.0; MappedBySize::ORDERS],
        }
    }

    /// Records what is mapped now. What was recorded before counts until now.
    pub(super) fn record(&mut self, now: Duration, mapped: MappedBySize) {
        let lasted_s = now.saturating_sub(self.at).as_secs_f64();
        for (sum, (_, bytes)) in self.sums.iter_mut().zip(self.mapped.iter()) {
            *sum += bytes as f64 * lasted_s;
        }
        (self.at, self.mapped) = (now, mapped);
    }

    pub(super) fn figures(&self, faults: &FaultCounts, now: Duration) -> Vec<SizeFigures> {
        let mut all = self.clone();
        all.record(now, self.mapped);
        let lasted_s = now.saturating_sub(self.began).as_secs_f64().max(1e-9);
        let sizes = all.mapped.iter().zip(&all.sums);
        let sizes = sizes.map(|((order, bytes), sum): ((PageOrder, u64), _)| SizeFigures {
            page_bytes: order.bytes(),
            faults: faults.of(order),
            fallbacks: faults.size_fallbacks(order),
            mapped_end_bytes: bytes,
            mapped_mean_bytes: (sum / lasted_s).round() as u64,
        });
        let nothing = |size: &SizeFigures| {
            let counts = [size.faults, size.fallbacks, size.mapped_end_bytes];
            counts == [0; 3] && size.mapped_mean_bytes == 0
        };
        sizes.filter(|size| !nothing(size)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_spans_the_whole_time_in_some_hundred_moments() {
        let mut course = ProgramHistory::new();
        for tenth in 0..100_000 {
            let at_s = f64::from(tenth) / 10.0;
            if course.is_due(at_s) {
                course.push(ProgramMoment {
                    at_s,
                    overhead_percent: None,
                    rss_bytes: 0,
                    huge_bytes: 0,
                });
            }
        }
        let times: Vec<f64> = course.moments().iter().map(|m| m.at_s).collect();
        assert!((MOST / 4..MOST).contains(&times.len()), "{}", times.len());
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(times.first(), Some(&0.0));
        assert!(times.last() > Some(&9900.0), "{times:?}");
    }
}
