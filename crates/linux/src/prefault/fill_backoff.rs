//! Pauses all fills after one with a call that took long.

use hawkeye_policy::{BatchDecision, CallBatchBackoff};
use std::time::Duration;

/// The fills that were handed out between two pauses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FillBatch(u64);

/// The pause after fills with a long call. Several fills are under way at a time, and a pause
/// cannot stop those. They often take long for the same reason, so they do not double it.
#[derive(Debug, Default)]
pub(super) struct FillBackoff {
    backoff: CallBatchBackoff,
    current: FillBatch,
    /// Number of pauses after a long call.
    pub(super) pauses: u64,
}

impl FillBackoff {
    /// The batch of a fill that is handed out `now`; `None` during a pause.
    pub(super) fn batch_to_fill_in(&self, now: Duration) -> Option<FillBatch> {
        self.backoff.is_pause_over(now).then_some(self.current)
    }

    /// How long the pause goes on.
    pub(super) fn pause_left(&self, now: Duration) -> Duration {
        self.backoff.pause_ends_at().saturating_sub(now)
    }

    /// Takes in the longest call of a fill of `batch`. A fill without calls says nothing.
    pub(super) fn record_fill(&mut self, now: Duration, batch: FillBatch, longest_call: Duration) {
        if batch != self.current || longest_call.is_zero() {
            return;
        }
        let decision = self.backoff.record_call_duration(longest_call);
        self.backoff.end_batch(now);
        if decision == BatchDecision::StopBatch {
            self.current.0 += 1;
            self.pauses += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_long_fill_pauses_all_and_those_under_way_do_not_double_the_pause() {
        let mut backoff = FillBackoff::default();
        let first = backoff.batch_to_fill_in(MS).expect("there was no fill");
        backoff.record_fill(MS * 2, first, MS * 30);
        assert_eq!(backoff.batch_to_fill_in(MS * 2), Some(first));
        // Three workers wait for the same lock.
        for _ in 0..3 {
            backoff.record_fill(MS * 50, first, MS * 31);
        }
        assert_eq!(backoff.batch_to_fill_in(MS * 149), None);
        assert_eq!([120, 150].map(|now| backoff.pause_left(MS * now)), [MS * 30, Duration::ZERO]);
        let second = backoff.batch_to_fill_in(MS * 150).expect("the pause is over");
        assert_ne!(second, first);
        backoff.record_fill(MS * 200, second, MS * 50);
        assert_eq!(backoff.batch_to_fill_in(MS * 399), None);
        let third = backoff.batch_to_fill_in(MS * 400).expect("the pause is over");
        assert_eq!(backoff.pauses, 2);
        // Short fills halve the pause.
        backoff.record_fill(MS * 401, third, MS);
        assert_eq!(backoff.batch_to_fill_in(MS * 500), None);
        assert_eq!(backoff.batch_to_fill_in(MS * 501), Some(third));
        backoff.record_fill(MS * 502, third, MS);
        assert_eq!(backoff.batch_to_fill_in(MS * 502), Some(third));
        assert_eq!(backoff.pauses, 2);
    }
}
