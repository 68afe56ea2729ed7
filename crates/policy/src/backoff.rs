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
/// too long, doubled by each further one up to 128 intervals, and halved by batches of short ones. After a batch that came to nothing because
/// memory is short the pause is an interval; it is doubled, too, after [`Self::PATIENCE`] such batches in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct Backoff {
    settings: BackoffSettings,
    /// The pause, in intervals (0, or a power of two up to 128).
    intervals: u32,
    /// The longest call of the batch under way.
    longest: Option<Duration>,
    /// Whether memory was short in it.
    shortage: bool,
    /// Batches in a row that ended so, the first of which may have come to something.
    shortages: u32,
    ready_at: Duration,
}

impl Backoff {
    const MAX_INTERVALS: u32 = 128;

    /// Linux puts compaction off for ever longer, and remembers which blocks it can't empty, until it has failed so often; only then does it look
    /// at all of them again (mm/compaction.c, `compaction_restarting`). Until then that it fails says little.
    pub const PATIENCE: u32 = 7;

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

    /// A call came to nothing because memory is short.
    pub fn after_shortage(&mut self) -> AfterCall {
        self.shortage = true;
        AfterCall::StopBatch
    }

    /// Ends the batch: the pause begins `now`. A batch without calls says nothing about the length
    /// of calls, and leaves the pause as it is.
    pub fn end_batch(&mut self, now: Duration) {
        let shortage = std::mem::take(&mut self.shortage);
        let longest = self.longest.take();
        self.shortages = match longest {
            None => self.shortages + u32::from(shortage),
            Some(_) => u32::from(shortage),
        };
        match longest {
            None if shortage && self.shortages > Self::PATIENCE => self.double(),
            Some(longest) if longest > self.settings.too_long => self.double(),
            _ if shortage => self.intervals = 1,
            Some(longest) if longest < self.settings.short => {
                self.intervals /= 2;
            }
            _ => {}
        }
        self.ready_at = now.saturating_add(self.pause());
    }

    fn double(&mut self) {
        self.intervals = (self.intervals * 2).clamp(1, Self::MAX_INTERVALS);
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
    fn the_pause_is_doubled_only_when_compaction_has_failed_for_good() {
        let mut backoff = Backoff::default();
        let mut short = |calls: &[u64]| {
            for call in calls {
                let _: AfterCall = backoff.after_call(MS(*call));
            }
            assert_eq!(backoff.after_shortage(), AfterCall::StopBatch);
            backoff.end_batch(at(1));
            backoff.pause()
        };
        for _ in 0..Backoff::PATIENCE {
            assert_eq!(short(&[]), MS(100));
        }
        for pause in [200, 400, 800] {
            assert_eq!(short(&[]), MS(pause));
        }
        for _ in 0..3 {
            assert_eq!(short(&[1, 1, 20]), MS(100));
        }
        // The first of the row was the last that came to something.
        for _ in 1..Backoff::PATIENCE {
            assert_eq!(short(&[]), MS(100));
        }
        assert_eq!(short(&[]), MS(200));
        assert_eq!(short(&[1]), MS(100));
        assert_eq!(short(&[31]), MS(200));
        assert_eq!(batch(&mut backoff, &[1]), MS(100));
        assert_eq!(batch(&mut backoff, &[1]), MS(0));
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
