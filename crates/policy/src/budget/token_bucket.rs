//! Rates per second, and token buckets that fill at them.

use crate::setting_error::{Setting, SettingError, check_positive_up_to};
use std::time::Duration;

/// A rate per second: over 0 and finite.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct RatePerSecond(f64);

impl RatePerSecond {
    /// A rate of `rate` per second (over 0, finite).
    pub fn new(rate: f64) -> Result<Self, SettingError> {
        let allowed = "a finite number over 0";
        check_positive_up_to(f64::MAX, rate, Setting::Rate, allowed).map(Self)
    }

    /// The rate, per second.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// Tokens that flow in evenly up to a capacity: at most `rate * t + burst` in any time `t`. Starts
/// full.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    per_second: f64,
    capacity: f64,
    /// The largest that it has had.
    largest_capacity: f64,
    level: f64,
    at: Duration,
}

impl TokenBucket {
    /// A bucket that holds one second's inflow, and at least one token.
    pub fn with_one_second_burst(rate: RatePerSecond) -> Self {
        Self::new_full(rate.get(), rate.get().max(1.0))
    }

    /// A full bucket that fills at `per_second` up to `capacity` tokens; both over 0 and finite.
    pub const fn new_full(per_second: f64, capacity: f64) -> Self {
        let at = Duration::ZERO;
        Self { per_second, capacity, largest_capacity: capacity, level: capacity, at }
    }

    pub(crate) fn capacity(&self) -> f64 {
        self.capacity
    }

    /// Changes how many tokens it holds at most (over 0 and finite). A smaller bucket keeps what
    /// fits. One that becomes larger than ever before gets the difference.
    pub(crate) fn set_capacity(&mut self, now: Duration, capacity: f64) {
        let more = (capacity - self.largest_capacity).max(0.0);
        self.level = (self.level_at(now) + more).min(capacity);
        self.largest_capacity += more;
        self.at = self.at.max(now);
        self.capacity = capacity;
    }

    /// The tokens at `now`. A clock that went back counts as standing still.
    fn level_at(&self, now: Duration) -> f64 {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        (self.level + self.per_second * passed).min(self.capacity)
    }

    /// Takes `n` tokens, even where there are fewer.
    pub fn draw_tokens_into_debt(&mut self, now: Duration, n: f64) {
        self.level = (self.level_at(now) - n).min(self.capacity);
        self.at = self.at.max(now);
    }

    /// Takes `n` tokens, or none when there are fewer. Returns whether it took them.
    pub fn try_take_tokens(&mut self, now: Duration, n: u32) -> bool {
        let enough = self.level_at(now) >= f64::from(n);
        if enough {
            self.draw_tokens_into_debt(now, f64::from(n));
        }
        enough
    }

    /// Returns `n` tokens that were taken but not used.
    pub fn give_back_tokens(&mut self, n: u32) {
        self.draw_tokens_into_debt(self.at, -f64::from(n));
    }

    /// When a token can be taken: `now`, or later.
    pub fn next_token_at(&self, now: Duration) -> Duration {
        self.time_when_level_reached(now, 1.0)
    }

    /// When there are `n` tokens; at the earliest `now`.
    pub fn time_when_level_reached(&self, now: Duration, n: f64) -> Duration {
        let missing = n - self.level_at(now);
        if missing <= 0.0 {
            return now;
        }
        let wait = Duration::try_from_secs_f64(missing / self.per_second).unwrap_or(Duration::MAX);
        // One nanosecond more, so that rounding doesn't leave it just short.
        now.saturating_add(wait).saturating_add(Duration::from_nanos(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::at_second;
    use proptest::prelude::*;

    #[test]
    fn rates_are_positive_and_finite() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(RatePerSecond::new(bad).is_err(), "{bad}");
        }
        let error = RatePerSecond::new(-1.0).expect_err("it is under 0").to_string();
        let said = "rate (per second) must be a finite number over 0, not -1";
        assert_eq!(error, said);
    }

    #[test]
    fn a_bucket_is_full_at_first_and_fills_again() {
        let mut bucket = TokenBucket::new_full(0.5, 2.0);
        assert!(!bucket.try_take_tokens(at_second(5), 3));
        assert!(bucket.try_take_tokens(at_second(5), 2));
        assert!(!bucket.try_take_tokens(at_second(5), 1));
        assert!(bucket.next_token_at(at_second(5)) >= at_second(7));
        assert!(bucket.try_take_tokens(bucket.next_token_at(at_second(5)), 1));
        bucket.give_back_tokens(9);
        assert!(!bucket.try_take_tokens(at_second(8), 3), "at most the burst is available");
        assert!(bucket.try_take_tokens(at_second(8), 2));
    }

    proptest! {
        #[test]
        fn at_most_the_rate_plus_the_burst_is_taken(
            rate in 0.01..1000.0f64,
            burst in 1.0..100.0f64,
            steps in prop::collection::vec((0u64..2_000_000_000, 0u32..20), 1..200),
        ) {
            let mut bucket = TokenBucket::new_full(rate, burst);
            let mut now = Duration::ZERO;
            let mut takes: Vec<(Duration, f64)> = Vec::new();
            for (wait, n) in steps {
                now += Duration::from_nanos(wait);
                if bucket.try_take_tokens(now, n) {
                    takes.push((now, f64::from(n)));
                }
                // In any time up to now, not only from the start: an idle bucket saves up at most
                // the burst.
                let mut taken = 0.0;
                for (since, n) in takes.iter().rev() {
                    taken += n;
                    let passed = (now - *since).as_secs_f64();
                    prop_assert!(taken <= rate * passed + burst + 1e-6);
                }
            }
        }

        #[test]
        fn a_token_is_available_at_the_time_announced(
            rate in 0.001..1000.0f64,
            burst in 1.0..100.0f64,
            waits in prop::collection::vec(0u64..5_000_000_000, 1..50),
        ) {
            let mut bucket = TokenBucket::new_full(rate, burst);
            let mut now = Duration::ZERO;
            for wait in waits {
                now += Duration::from_nanos(wait);
                while bucket.try_take_tokens(now, 1) {}
                let ready = bucket.next_token_at(now);
                prop_assert!(ready > now);
                prop_assert!(bucket.clone().try_take_tokens(ready, 1));
            }
        }
    }
}
