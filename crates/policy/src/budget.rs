//! Limits on how much is done: promotions, scans, and the manager's own CPU time.

use crate::error::{SettingError, positive_up_to};
use serde::Serialize;
use std::time::Duration;
use thiserror::Error;

/// Something per second: over 0 and finite.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Rate(f64);

impl Rate {
    /// This many per second (over 0, finite).
    pub fn per_second(rate: f64) -> Result<Self, SettingError> {
        positive_up_to(
            f64::MAX,
            rate,
            "rate (per second)",
            "a finite number over 0",
        )
        .map(Self)
    }

    /// How many per second.
    pub fn get(self) -> f64 {
        self.0
    }
}

/// An amount that flows in evenly up to a capacity, and may be drawn below 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reservoir {
    per_second: f64,
    capacity: f64,
    /// The amount at `at`.
    level: f64,
    at: Duration,
}

impl Reservoir {
    pub(crate) fn full(per_second: f64, capacity: f64) -> Self {
        Self {
            per_second,
            capacity,
            level: capacity,
            at: Duration::ZERO,
        }
    }

    /// The most it holds.
    pub(crate) fn capacity(&self) -> f64 {
        self.capacity
    }

    /// The amount at `now`; a clock that went back stands still.
    pub(crate) fn level(&self, now: Duration) -> f64 {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        (self.level + self.per_second * passed).min(self.capacity)
    }

    pub(crate) fn draw(&mut self, now: Duration, amount: f64) {
        self.level = (self.level(now) - amount).min(self.capacity);
        self.at = self.at.max(now);
    }

    /// When there will be `amount`, not before `now`.
    pub(crate) fn reaches(&self, now: Duration, amount: f64) -> Duration {
        let missing = amount - self.level(now);
        if missing <= 0.0 {
            return now;
        }
        let wait = Duration::try_from_secs_f64(missing / self.per_second).unwrap_or(Duration::MAX);
        // A nanosecond more, so that rounding doesn't leave it just short.
        now.saturating_add(wait)
            .saturating_add(Duration::from_nanos(1))
    }
}

/// At most `rate * t + burst` in any time `t`. Full at first.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket(Reservoir);

impl TokenBucket {
    /// A bucket that fills with `rate` up to `burst` tokens (at least 1, finite: less would never
    /// let anything pass).
    pub fn new(rate: Rate, burst: f64) -> Result<Self, SettingError> {
        if !(burst.is_finite() && burst >= 1.0) {
            return Err(SettingError::new(
                "burst",
                burst,
                "a finite number of at least 1",
            ));
        }
        Ok(Self(Reservoir::full(rate.get(), burst)))
    }

    /// A bucket that holds what flows in within a second, and at least one token.
    pub fn one_second(rate: Rate) -> Self {
        Self(Reservoir::full(rate.get(), rate.get().max(1.0)))
    }

    /// Takes `n` tokens, or none when there are fewer; whether it did.
    pub fn take(&mut self, now: Duration, n: u32) -> bool {
        let enough = self.0.level(now) >= f64::from(n);
        if enough {
            self.0.draw(now, f64::from(n));
        }
        enough
    }

    /// Returns `n` tokens that were taken and came to nothing.
    pub fn give_back(&mut self, n: u32) {
        self.0.draw(self.0.at, -f64::from(n));
    }

    /// When a token can be taken: `now`, or later.
    pub fn ready_at(&self, now: Duration) -> Duration {
        self.0.reaches(now, 1.0)
    }
}

/// The manager's own CPU time: a share of one core, over any minute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuBudget {
    percent: f64,
    /// CPU seconds used in each of the last 60 seconds, at the place of that second modulo 60.
    used: [f64; SECONDS],
    /// The second that `used` was last brought up to.
    second: u64,
    used_total: Option<Duration>,
}

/// The budget holds over this many seconds.
const SECONDS: usize = 60;

impl CpuBudget {
    /// Share of one core unless set, in per cent (2).
    pub const DEFAULT_PERCENT: f64 = 2.0;

    /// A budget of `percent` of one core (over 0, at most 100).
    pub fn new(percent: f64) -> Result<Self, SettingError> {
        let percent = positive_up_to(
            100.0,
            percent,
            "CPU budget (% of one core)",
            "over 0 and at most 100",
        )?;
        Ok(Self::of(percent))
    }

    fn of(percent: f64) -> Self {
        Self {
            percent,
            used: [0.0; SECONDS],
            second: 0,
            used_total: None,
        }
    }

    /// Share of one core, in per cent.
    pub fn percent(&self) -> f64 {
        self.percent
    }

    /// Told how much CPU time the manager has used in total by `now`. The first call only sets what
    /// is counted from: starting up is not managing.
    pub fn update(&mut self, now: Duration, used_total: Duration) {
        let before = self.used_total.replace(used_total).unwrap_or(used_total);
        // A clock that went back stands still.
        let second = now.as_secs().max(self.second);
        for passed in (self.second + 1..=second).take(SECONDS) {
            self.used[place(passed)] = 0.0;
        }
        if second - self.second >= SECONDS as u64 {
            self.used = [0.0; SECONDS];
        }
        self.second = second;
        self.used[place(second)] += used_total.saturating_sub(before).as_secs_f64();
    }

    /// Whether nothing is left.
    pub fn exhausted(&self, now: Duration) -> bool {
        self.exhausted_but(now, 0.0)
    }

    /// What was used over the last minute (of management, while it is younger), in per cent of one
    /// core.
    pub fn used_percent(&self, now: Duration) -> f64 {
        let second = now.as_secs();
        let seconds = (second + 1).min(SECONDS as u64);
        self.used_by(second) * 100.0 / seconds as f64
    }

    /// When something will be left: `now`, or the start of a later second.
    pub fn ready_at(&self, now: Duration) -> Duration {
        self.ready_but_at(now, 0.0)
    }

    /// Whether no more than the share `kept` (0-1) of the budget is left: for work that leaves so much
    /// to what can't wait.
    pub fn exhausted_but(&self, now: Duration, kept: f64) -> bool {
        self.used_by(now.as_secs()) >= self.limit_s() * (1.0 - kept)
    }

    /// When more than the share `kept` (0-1) will be left: `now`, or the start of a later second.
    pub fn ready_but_at(&self, now: Duration, kept: f64) -> Duration {
        if !self.exhausted_but(now, kept) {
            return now;
        }
        let limit_s = self.limit_s() * (1.0 - kept);
        (now.as_secs() + 1..)
            .take(SECONDS)
            .find(|second| self.used_by(*second) < limit_s)
            .map_or(now, Duration::from_secs)
    }

    fn limit_s(&self) -> f64 {
        self.percent / 100.0 * SECONDS as f64
    }

    /// CPU seconds used in the minute that ends with this second.
    fn used_by(&self, second: u64) -> f64 {
        let first = (second + 1).saturating_sub(SECONDS as u64);
        let oldest = (self.second + 1).saturating_sub(SECONDS as u64);
        (oldest.max(first)..=self.second)
            .map(|second| self.used[place(second)])
            .sum()
    }
}

fn place(second: u64) -> usize {
    (second % SECONDS as u64) as usize
}

impl Default for CpuBudget {
    fn default() -> Self {
        Self::of(Self::DEFAULT_PERCENT)
    }
}

/// Why no further promotion is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize)]
#[serde(tag = "spent", rename_all = "kebab-case")]
pub enum Spent {
    /// All there will ever be.
    #[error("all {max} promotions of the budget are spent")]
    Total {
        /// How many there were.
        max: u64,
    },
    /// The rate; time brings more.
    #[error("the promotion rate is used up until {:.3} s", ready_at.as_secs_f64())]
    Rate {
        /// When the next one can be taken, on the clock of the call.
        ready_at: Duration,
    },
}

/// How many promotions may be done, in total and per second. Only what succeeds is paid for.
#[derive(Clone, Copy, Debug, Default)]
pub struct PromotionBudget {
    max: Option<u64>,
    spent: u64,
    bucket: Option<TokenBucket>,
}

impl PromotionBudget {
    /// At most `max` in total and `rate` per second (with a second's worth at once); `None`: as many
    /// as there are.
    pub fn new(max: Option<u64>, rate: Option<Rate>) -> Self {
        Self {
            max,
            spent: 0,
            bucket: rate.map(TokenBucket::one_second),
        }
    }

    /// Pays for one promotion, or says why not.
    pub fn take(&mut self, now: Duration) -> Result<(), Spent> {
        if let Some(max) = self.max.filter(|max| self.spent >= *max) {
            return Err(Spent::Total { max });
        }
        if let Some(bucket) = &mut self.bucket {
            if !bucket.take(now, 1) {
                return Err(Spent::Rate {
                    ready_at: bucket.ready_at(now),
                });
            }
        }
        self.spent += 1;
        Ok(())
    }

    /// Returns the price of a promotion that was not carried out.
    pub fn give_back(&mut self) {
        // What was not taken can't be returned.
        if self.spent > 0 {
            self.spent -= 1;
            if let Some(bucket) = &mut self.bucket {
                bucket.give_back(1);
            }
        }
    }

    /// Promotions paid for and not given back.
    pub fn spent(&self) -> u64 {
        self.spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;
    use proptest::prelude::*;

    #[test]
    fn rates_are_positive_and_finite() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Rate::per_second(bad).is_err(), "{bad}");
        }
        let error = Rate::per_second(-1.0).map_err(|e| e.to_string());
        assert_eq!(
            error,
            Err("rate (per second) must be a finite number over 0, not -1".to_owned())
        );
    }

    #[test]
    fn a_bucket_is_full_at_first_and_fills_again() -> Result<(), SettingError> {
        let rate = Rate::per_second(0.5)?;
        assert!(TokenBucket::new(rate, 0.5).is_err());
        let mut bucket = TokenBucket::new(rate, 2.0)?;
        assert!(!bucket.take(at(5), 3));
        assert!(bucket.take(at(5), 2));
        assert!(!bucket.take(at(5), 1));
        assert!(bucket.ready_at(at(5)) >= at(7));
        assert!(bucket.take(bucket.ready_at(at(5)), 1));
        bucket.give_back(9);
        assert!(!bucket.take(at(8), 3), "no more than the burst");
        assert!(bucket.take(at(8), 2));
        Ok(())
    }

    #[test]
    fn cpu_beyond_the_budget_waits_until_the_minute_is_over() {
        let mut cpu = CpuBudget::default();
        let start_up = Duration::from_secs(5);
        cpu.update(at(10), start_up);
        assert!(!cpu.exhausted(at(10)));
        // A minute's worth is 1.2 s.
        cpu.update(at(10), start_up + Duration::from_millis(700));
        assert!(!cpu.exhausted(at(10)));
        cpu.update(at(30), start_up + Duration::from_millis(1300));
        assert!(cpu.exhausted(at(30)));
        assert!(cpu.exhausted(at(69)));
        assert_eq!(cpu.ready_at(at(30)), at(70));
        assert!(!cpu.exhausted(at(70)));
        assert_eq!(cpu.ready_at(at(75)), at(75));
    }

    #[test]
    fn what_is_kept_is_left_to_others() -> Result<(), SettingError> {
        let mut budget = CpuBudget::new(10.0)?;
        budget.update(at(0), Duration::ZERO);
        // Two thirds of 6 s.
        budget.update(at(1), at(4));
        assert!(budget.exhausted_but(at(1), 1.0 / 3.0));
        assert!(!budget.exhausted(at(1)));
        assert_eq!(budget.ready_at(at(1)), at(1));
        assert_eq!(budget.ready_but_at(at(1), 1.0 / 3.0), at(61));
        Ok(())
    }

    proptest! {
        /// Work comes in pieces: one may go over the limit, none is begun after that.
        #[test]
        fn no_minute_holds_more_than_the_budget_and_one_piece(
            pieces in proptest::collection::vec((0u64..5_000, 1u64..400), 1..300),
        ) {
            let mut cpu = CpuBudget::default();
            let (mut now, mut total) = (Duration::ZERO, Duration::ZERO);
            cpu.update(now, total);
            let mut done = Vec::new();
            for (pause_ms, piece_ms) in pieces {
                now += Duration::from_millis(pause_ms);
                now = cpu.ready_at(now);
                prop_assert!(!cpu.exhausted(now));
                let piece = Duration::from_millis(piece_ms);
                (now, total) = (now + piece, total + piece);
                cpu.update(now, total);
                done.push((now, piece));
            }
            for (end, _) in &done {
                let minute = done.iter().filter(|(at, _)| at <= end && *at + Duration::from_secs(59) > *end);
                let used: Duration = minute.map(|(_, piece)| *piece).sum();
                prop_assert!(used <= Duration::from_millis(1200 + 400), "{used:?}");
            }
        }
    }

    #[test]
    fn promotions_end_at_the_total() {
        let mut budget = PromotionBudget::new(Some(2), None);
        assert_eq!(budget.take(at(0)), Ok(()));
        budget.give_back();
        budget.give_back();
        assert_eq!(budget.take(at(0)), Ok(()));
        assert_eq!(budget.take(at(0)), Ok(()));
        let refused = budget.take(at(1000));
        assert_eq!(refused, Err(Spent::Total { max: 2 }));
        assert_eq!(budget.spent(), 2);
        assert_eq!(
            PromotionBudget::new(Some(0), None).take(at(0)),
            Err(Spent::Total { max: 0 })
        );
    }

    #[test]
    fn promotions_keep_to_the_rate() -> Result<(), SettingError> {
        let mut budget = PromotionBudget::new(None, Some(Rate::per_second(4.0)?));
        let now = at(1);
        for _ in 0..4 {
            assert_eq!(budget.take(now), Ok(()));
        }
        let Err(Spent::Rate { ready_at }) = budget.take(now) else {
            panic!("rate not kept")
        };
        assert!(ready_at >= now + Duration::from_millis(250));
        assert_eq!(budget.take(ready_at), Ok(()));
        Ok(())
    }

    proptest! {
        #[test]
        fn never_more_than_the_rate_and_the_burst(
            rate in 0.01..1000.0f64,
            burst in 1.0..100.0f64,
            steps in prop::collection::vec((0u64..2_000_000_000, 0u32..20), 1..200),
        ) {
            let mut bucket = TokenBucket::new(Rate::per_second(rate)?, burst)?;
            let mut now = Duration::ZERO;
            let mut takes: Vec<(Duration, f64)> = Vec::new();
            for (wait, n) in steps {
                now += Duration::from_nanos(wait);
                if bucket.take(now, n) {
                    takes.push((now, f64::from(n)));
                }
                // In whatever time up to now, not only from the start: an idle bucket saves up no
                // more than the burst.
                let mut taken = 0.0;
                for (since, n) in takes.iter().rev() {
                    taken += n;
                    let passed = (now - *since).as_secs_f64();
                    prop_assert!(taken <= rate * passed + burst + 1e-6);
                }
            }
        }

        #[test]
        fn ready_means_ready(
            rate in 0.001..1000.0f64,
            burst in 1.0..100.0f64,
            waits in prop::collection::vec(0u64..5_000_000_000, 1..50),
        ) {
            let mut bucket = TokenBucket::new(Rate::per_second(rate)?, burst)?;
            let mut now = Duration::ZERO;
            for wait in waits {
                now += Duration::from_nanos(wait);
                while bucket.take(now, 1) {}
                let ready = bucket.ready_at(now);
                prop_assert!(ready > now);
                prop_assert!(bucket.clone().take(ready, 1));
            }
        }
    }
}
