//! A program's state over time.

use super::figures::ProgramMoment;

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
        Self { moments: Vec::new(), every_s: FIRST_EVERY_S }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_spans_the_run_in_a_few_hundred_samples() {
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
