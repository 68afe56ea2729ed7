//! Pausing calls into other processes while they take long, or while memory is short.

use std::time::Duration;

/// The shortest pause between batches. This and the other limits are those of tcmalloc's collapse
/// code (`tcmalloc/huge_page_treatment.h`).
const INTERVAL: Duration = Duration::from_millis(100);
/// A call that takes longer ends its batch and doubles the pause.
const TOO_LONG: Duration = Duration::from_millis(30);
/// A batch in which every call takes less than this halves the pause.
const SHORT: Duration = Duration::from_millis(15);

/// How to continue a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum BatchDecision {
    /// Go on.
    Continue,
    /// End the batch now.
    StopBatch,
}

impl BatchDecision {
    /// Ends the batch if one of the two does.
    pub fn and(self, other: Self) -> Self {
        match self {
            Self::Continue => other,
            Self::StopBatch => Self::StopBatch,
        }
    }
}

/// The pause between batches of calls. It is zero while calls are short, and one interval after a
/// call that took too long. Each further long call doubles it, up to 128 intervals; batches of
/// short calls halve it. After a batch that failed because memory is short the pause is one
/// interval. It also doubles after [`Self::PATIENCE`] such batches in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallBatchBackoff {
    /// The pause, in intervals (0, or a power of two up to 128).
    intervals: u32,
    longest: Option<Duration>,
    shortage: bool,
    /// Consecutive batches that ended so. The first of them may have had successful calls.
    shortages: u32,
    ready_at: Duration,
}

impl CallBatchBackoff {
    const MAX_INTERVALS: u32 = 128;

    /// Linux defers compaction for longer and longer, and remembers which blocks it cannot empty.
    /// Only after this many failures does it scan all of them again (mm/compaction.c,
    /// `compaction_restarting`). Until then its failures say little.
    pub const PATIENCE: u32 = 7;

    /// Takes in how long a call took; returns whether the batch goes on.
    pub fn record_call_duration(&mut self, took: Duration) -> BatchDecision {
        self.longest = self.longest.max(Some(took));
        if took > TOO_LONG { BatchDecision::StopBatch } else { BatchDecision::Continue }
    }

    /// A call failed because memory is short.
    pub fn record_memory_shortage(&mut self) -> BatchDecision {
        self.shortage = true;
        BatchDecision::StopBatch
    }

    /// Ends the batch: the pause begins `now`. A batch without calls leaves the pause as it is,
    /// because it says nothing about the length of calls.
    pub fn end_batch(&mut self, now: Duration) {
        let shortage = std::mem::take(&mut self.shortage);
        let longest = self.longest.take();
        self.shortages = match longest {
            None => self.shortages + u32::from(shortage),
            Some(_) => u32::from(shortage),
        };
        match longest {
            None if shortage && self.shortages > Self::PATIENCE => self.double_pause(),
            Some(longest) if longest > TOO_LONG => self.double_pause(),
            _ if shortage => self.intervals = 1,
            Some(longest) if longest < SHORT => {
                self.intervals /= 2;
            }
            _ => {}
        }
        self.ready_at = now.saturating_add(self.pause_after_batch());
    }

    fn double_pause(&mut self) {
        self.intervals = (self.intervals * 2).clamp(1, Self::MAX_INTERVALS);
    }

    /// The current pause after a batch.
    pub fn pause_after_batch(&self) -> Duration {
        INTERVAL.saturating_mul(self.intervals)
    }

    /// Whether the pause is over.
    pub fn is_pause_over(&self, now: Duration) -> bool {
        now >= self.ready_at
    }

    /// When the pause is over.
    pub fn pause_ends_at(&self) -> Duration {
        self.ready_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::at_second;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn batch(backoff: &mut CallBatchBackoff, calls: &[u64]) -> Duration {
        for call in calls {
            let stop = backoff.record_call_duration(MS(*call)) == BatchDecision::StopBatch;
            assert_eq!(stop, *call > 30, "a call of {call} ms");
        }
        backoff.end_batch(at_second(1));
        backoff.pause_ends_at() - at_second(1)
    }

    #[test]
    fn long_calls_double_the_pause_and_short_batches_halve_it() {
        let mut backoff = CallBatchBackoff::default();
        assert!(backoff.is_pause_over(Duration::ZERO));
        let calls: [(&[u64], u64); 10] = [
            (&[3, 14], 0),
            (&[3, 31], 100),
            (&[31], 200),
            (&[400], 400),
            // Calls of medium length, and no call, keep the pause.
            (&[30], 400),
            (&[1, 15], 400),
            (&[], 400),
            (&[14, 1], 200),
            (&[1], 100),
            (&[1], 0),
        ];
        for (calls, pause) in calls {
            assert_eq!(batch(&mut backoff, calls), MS(pause), "{calls:?}");
            assert_eq!(backoff.is_pause_over(at_second(1)), pause == 0);
            assert!(backoff.is_pause_over(at_second(1) + MS(pause)));
        }
    }

    #[test]
    fn the_pause_doubles_only_after_a_final_failure_of_compaction() {
        let mut backoff = CallBatchBackoff::default();
        let mut short = |calls: &[u64]| {
            for call in calls {
                let _: BatchDecision = backoff.record_call_duration(MS(*call));
            }
            assert_eq!(backoff.record_memory_shortage(), BatchDecision::StopBatch);
            backoff.end_batch(at_second(1));
            backoff.pause_after_batch()
        };
        for _ in 0..CallBatchBackoff::PATIENCE {
            assert_eq!(short(&[]), MS(100));
        }
        for pause in [200, 400, 800] {
            assert_eq!(short(&[]), MS(pause));
        }
        for _ in 0..3 {
            assert_eq!(short(&[1, 1, 20]), MS(100));
        }
        // The first of the row was the last with a successful call.
        for _ in 1..CallBatchBackoff::PATIENCE {
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
        let mut backoff = CallBatchBackoff::default();
        for _ in 0..20 {
            batch(&mut backoff, &[31]);
        }
        assert_eq!(backoff.pause_after_batch(), MS(12_800));
    }
}
