//! The manager's own CPU time.

use crate::saturating_cast::usize_from_u64;
use crate::setting_error::{SettingError, check_positive_percent};
use std::time::Duration;

/// The manager's own CPU time: a share of one core, over any minute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuBudget {
    percent: f64,
    /// CPU seconds used in each of the last 60 seconds, indexed by the second modulo 60.
    used: [f64; SECONDS],
    /// The second up to which `used` is current.
    second: u64,
    used_total: Option<Duration>,
}

const SECONDS: usize = 60;

impl CpuBudget {
    /// A budget of `percent` of one core (over 0, at most 100).
    pub fn new(percent: f64) -> Result<Self, SettingError> {
        check_positive_percent(percent, "CPU budget (% of one core)").map(Self::with_percent)
    }

    fn with_percent(percent: f64) -> Self {
        Self { percent, used: [0.0; SECONDS], second: 0, used_total: None }
    }

    /// Share of one core, in per cent.
    pub fn limit_percent_of_core(&self) -> f64 {
        self.percent
    }

    /// Takes in the manager's total CPU time by `now`. The first call only sets the starting point,
    /// because start-up is not management.
    pub fn record_total_cpu_time(&mut self, now: Duration, used_total: Duration) {
        // It goes back where time turns out to be none of management: that was counted before.
        let before = self.used_total.unwrap_or(used_total);
        self.used_total = Some(before.max(used_total));
        // A clock that went back counts as standing still.
        let second = now.as_secs().max(self.second);
        for passed in (self.second + 1..=second).take(SECONDS) {
            self.used[ring_index_of_second(passed)] = 0.0;
        }
        self.second = second;
        self.used[ring_index_of_second(second)] += used_total.saturating_sub(before).as_secs_f64();
    }

    /// Whether the budget is used up.
    pub fn is_exhausted(&self, now: Duration) -> bool {
        self.ready_at(now) > now
    }

    /// CPU time used over the last minute, in per cent of one core. A younger manager counts only
    /// the time since it started managing.
    pub fn percent_of_core_used_in_minute(&self, now: Duration) -> f64 {
        let second = now.as_secs();
        let seconds = (second + 1).min(SECONDS as u64);
        self.cpu_seconds_used_in_minute_to(second) * 100.0 / seconds as f64
    }

    /// When budget will be left: `now`, or the start of a later second.
    pub fn ready_at(&self, now: Duration) -> Duration {
        self.time_when_above_reserve(now, 0.0)
    }

    /// When more than the share `kept` (0-1) will be left: `now`, or the start of a later second.
    /// For work that leaves this share to more urgent work.
    pub fn time_when_above_reserve(&self, now: Duration, kept: f64) -> Duration {
        let limit_s = self.percent / 100.0 * SECONDS as f64 * (1.0 - kept);
        if self.cpu_seconds_used_in_minute_to(now.as_secs()) < limit_s {
            return now;
        }
        (now.as_secs() + 1..)
            .take(SECONDS)
            .find(|second| self.cpu_seconds_used_in_minute_to(*second) < limit_s)
            .map_or(now, Duration::from_secs)
    }

    fn cpu_seconds_used_in_minute_to(&self, second: u64) -> f64 {
        let first = (second + 1).saturating_sub(SECONDS as u64);
        let oldest = (self.second + 1).saturating_sub(SECONDS as u64);
        (oldest.max(first)..=self.second)
            .map(|second| self.used[ring_index_of_second(second)])
            .sum()
    }
}

fn ring_index_of_second(second: u64) -> usize {
    usize_from_u64(second % SECONDS as u64)
}

impl Default for CpuBudget {
    /// 2 % of one core.
    fn default() -> Self {
        Self::with_percent(2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::at_second;
    use proptest::prelude::*;

    #[test]
    fn cpu_beyond_the_budget_waits_until_the_minute_is_over() {
        let mut cpu = CpuBudget::default();
        let start_up = Duration::from_secs(5);
        cpu.record_total_cpu_time(at_second(10), start_up);
        assert!(!cpu.is_exhausted(at_second(10)));
        // The budget of a minute is 1.2 s.
        cpu.record_total_cpu_time(at_second(10), start_up + Duration::from_millis(700));
        assert!(!cpu.is_exhausted(at_second(10)));
        cpu.record_total_cpu_time(at_second(30), start_up + Duration::from_millis(1300));
        assert!(cpu.is_exhausted(at_second(30)));
        assert!(cpu.is_exhausted(at_second(69)));
        assert_eq!(cpu.ready_at(at_second(30)), at_second(70));
        assert!(!cpu.is_exhausted(at_second(70)));
        assert_eq!(cpu.ready_at(at_second(75)), at_second(75));
    }

    #[test]
    fn time_that_turns_out_to_be_none_of_management_counts_once_at_most() {
        let mut cpu = CpuBudget::default();
        for total_ms in [0, 700, 300, 700, 800] {
            cpu.record_total_cpu_time(at_second(1), Duration::from_millis(total_ms));
        }
        let used_ms = cpu.percent_of_core_used_in_minute(at_second(1)) * 10.0 * 2.0;
        assert!((used_ms - 800.0).abs() < 1.0, "{used_ms}");
    }

    #[test]
    fn a_share_of_the_cpu_budget_can_be_reserved() -> Result<(), SettingError> {
        let mut budget = CpuBudget::new(10.0)?;
        budget.record_total_cpu_time(at_second(0), Duration::ZERO);
        // Two thirds of 6 s.
        budget.record_total_cpu_time(at_second(1), at_second(4));
        assert!(budget.time_when_above_reserve(at_second(1), 1.0 / 3.0) > at_second(1));
        assert!(!budget.is_exhausted(at_second(1)));
        assert_eq!(budget.ready_at(at_second(1)), at_second(1));
        assert_eq!(budget.time_when_above_reserve(at_second(1), 1.0 / 3.0), at_second(61));
        Ok(())
    }

    proptest! {
        /// Work comes in pieces: one piece may exceed the limit, but none starts after that.
        #[test]
        fn any_minute_uses_at_most_the_budget_plus_one_piece(
            pieces in proptest::collection::vec((0u64..5_000, 1u64..400), 1..300),
        ) {
            let mut cpu = CpuBudget::default();
            let (mut now, mut total) = (Duration::ZERO, Duration::ZERO);
            cpu.record_total_cpu_time(now, total);
            let mut done = Vec::new();
            for (pause_ms, piece_ms) in pieces {
                now += Duration::from_millis(pause_ms);
                now = cpu.ready_at(now);
                prop_assert!(!cpu.is_exhausted(now));
                let piece = Duration::from_millis(piece_ms);
                (now, total) = (now + piece, total + piece);
                cpu.record_total_cpu_time(now, total);
                done.push((now, piece));
            }
            for (end, _) in &done {
                let minute = done.iter().filter(|(at, _)| at <= end && *at + Duration::from_secs(59) > *end);
                let used: Duration = minute.map(|(_, piece)| *piece).sum();
                prop_assert!(used <= Duration::from_millis(1200 + 400), "{used:?}");
            }
        }
    }
}
