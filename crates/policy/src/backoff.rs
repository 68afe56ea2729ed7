//! Holding back when calls into other processes take long, or when there is no memory for them.

use std::time::Duration;

/// The limits of a [`Backoff`]. The defaults are those of tcmalloc's collapse code
/// (`tcmalloc/huge_page_treatment.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffSettings {
    /// The shortest pause between batches (100 ms).
    pub interval: Duration,
    /// A call that takes longer ends its batch and doubles the pause (30 ms).
    pub too_long: Duration,
    /// A batch whose calls all take less halves the pause (15 ms).
    pub short: Duration,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_millis(100),
            too_long: Duration::from_millis(30),
            short: Duration::from_millis(15),
        }
    }
}

/// What to do with the rest of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum AfterCall {
    /// Go on.
    Continue,
    /// End the batch now.
    StopBatch,
}

/// The pause between batches of calls: none while calls are short; one interval after a call that took
/// too long, doubled by each further one up to 128 intervals, and halved by batches of short ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    settings: BackoffSettings,
    /// The pause, in intervals (0, or a power of two up to 128).
    intervals: u32,
    /// The longest call of the batch under way.
    longest: Option<Duration>,
    ready_at: Duration,
}

impl Backoff {
    const MAX_INTERVALS: u32 = 128;

    /// Ready at once.
    pub fn new(settings: BackoffSettings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Told how long a call took; whether the batch goes on.
    pub fn after_call(&mut self, took: Duration) -> AfterCall {
        self.longest = self.longest.max(Some(took));
        if took > self.settings.too_long {
            AfterCall::StopBatch
        } else {
            AfterCall::Continue
        }
    }

    /// A call came to nothing because memory is short: it counts as one that took too long.
    pub fn after_shortage(&mut self) -> AfterCall {
        self.after_call(Duration::MAX)
    }

    /// Ends the batch: the pause begins `now`. A batch without calls says nothing about the length
    /// of calls, and leaves the pause as it is.
    pub fn end_batch(&mut self, now: Duration) {
        match self.longest.take() {
            Some(longest) if longest > self.settings.too_long => {
                self.intervals = (self.intervals * 2).clamp(1, Self::MAX_INTERVALS);
            }
            Some(longest) if longest < self.settings.short => {
                self.intervals /= 2;
            }
            _ => {}
        }
        self.ready_at = now.saturating_add(self.pause());
    }

    /// The pause after a batch, at present.
    pub fn pause(&self) -> Duration {
        self.settings.interval.saturating_mul(self.intervals)
    }

    /// Whether the pause is over.
    pub fn ready(&self, now: Duration) -> bool {
        now >= self.ready_at
    }

    /// When the pause is over.
    pub fn ready_at(&self) -> Duration {
        self.ready_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn batch(backoff: &mut Backoff, calls: &[u64]) -> Duration {
        for call in calls {
            let stop = backoff.after_call(MS(*call)) == AfterCall::StopBatch;
            assert_eq!(stop, *call > 30, "{call} ms");
        }
        backoff.end_batch(at(1));
        backoff.ready_at() - at(1)
    }

    #[test]
    fn long_calls_double_short_batches_halve() {
        let mut backoff = Backoff::default();
        assert!(backoff.ready(Duration::ZERO));
        assert_eq!(batch(&mut backoff, &[3, 14]), MS(0), "nothing is wrong");
        assert_eq!(batch(&mut backoff, &[3, 31]), MS(100));
        assert!(!backoff.ready(at(1)));
        assert!(backoff.ready(at(1) + MS(100)));
        assert_eq!(batch(&mut backoff, &[31]), MS(200));
        assert_eq!(batch(&mut backoff, &[400]), MS(400));
        assert_eq!(
            batch(&mut backoff, &[30]),
            MS(400),
            "neither long nor short"
        );
        assert_eq!(batch(&mut backoff, &[1, 15]), MS(400), "not all short");
        assert_eq!(batch(&mut backoff, &[]), MS(400), "nothing learned");
        assert_eq!(batch(&mut backoff, &[14, 1]), MS(200));
        assert_eq!(batch(&mut backoff, &[1]), MS(100));
        assert_eq!(batch(&mut backoff, &[1]), MS(0));
    }

    #[test]
    fn a_shortage_is_a_long_call() {
        let mut backoff = Backoff::default();
        assert_eq!(backoff.after_shortage(), AfterCall::StopBatch);
        backoff.end_batch(at(1));
        assert_eq!(backoff.pause(), MS(100));
    }

    #[test]
    fn a_pause_is_at_most_128_intervals() {
        let mut backoff = Backoff::default();
        for _ in 0..20 {
            batch(&mut backoff, &[31]);
        }
        assert_eq!(backoff.pause(), MS(12_800));
    }
}
