//! The manager's own CPU time.

use super::cpu_minute::CpuMinute;
use crate::setting_error::{Setting, SettingError, check_positive_percent};
use std::time::Duration;

/// The manager's own CPU time: a share of one core, over any minute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuBudget {
    percent: f64,
    used: CpuMinute,
}

impl CpuBudget {
    /// A budget of `percent` of one core (over 0, at most 100).
    pub fn new(percent: f64) -> Result<Self, SettingError> {
        check_positive_percent(percent, Setting::Cpu).map(Self::with_percent)
    }

    fn with_percent(percent: f64) -> Self {
        Self { percent, used: CpuMinute::default() }
    }

    /// Share of one core, in per cent.
    pub fn limit_percent_of_core(&self) -> f64 {
        self.percent
    }

    /// Takes in the CPU time that this budget pays, in total by `now`. The first call only sets the
    /// starting point.
    pub fn record_total_cpu_time(&mut self, now: Duration, used_total: Duration) {
        self.used.record_total_cpu_time(now, used_total);
    }

    /// Whether the budget is used up.
    pub fn is_exhausted(&self, now: Duration) -> bool {
        self.ready_at(now) > now
    }

    /// CPU time over the last minute that this budget paid, in per cent of one core.
    pub fn percent_of_core_used_in_minute(&self, now: Duration) -> f64 {
        self.used.percent_of_core(now)
    }

    /// When budget will be left: `now`, or the start of a later second.
    pub fn ready_at(&self, now: Duration) -> Duration {
        self.time_when_above_reserve(now, 0.0)
    }

    /// When more than the share `kept` (0-1) will be left: `now`, or the start of a later second.
    /// For work that leaves this share to more urgent work.
    pub fn time_when_above_reserve(&self, now: Duration, kept: f64) -> Duration {
        let limit_s = self.percent / 100.0 * CpuMinute::SECONDS as f64 * (1.0 - kept);
        if self.used.cpu_seconds_to(now.as_secs()) < limit_s {
            return now;
        }
        (now.as_secs() + 1..)
            .take(CpuMinute::SECONDS)
            .find(|second| self.used.cpu_seconds_to(*second) < limit_s)
            .map_or(now, Duration::from_secs)
    }
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
