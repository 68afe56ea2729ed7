//! How often to sample, so that the cost to programs and manager stays limited.

use crate::budget::TokenBucket;
use crate::setting_error::{Setting, SettingError, check_positive_percent};
use crate::walk_rate::WORTH_CORES;
use serde::Serialize;
use std::time::Duration;

/// Why windows are further apart than the settings ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
pub enum SamplingDelayReason {
    /// First touches after clearing access bits would slow the program down too much.
    #[strum(to_string = "sampling would slow the program down too much")]
    ProgramSlowdown,
    /// Sampling would take too much of the manager's CPU budget.
    #[strum(to_string = "sampling would take too much of the manager's CPU budget")]
    ManagerCpu,
}

/// Limits on the cost of sampling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingCostLimits {
    slowdown_percent: f64,
    cpu_share_percent: f64,
}

impl SamplingCostLimits {
    /// The shortest period unless set: the paper's 30 s (section 3.3).
    pub const DEFAULT_BASE_PERIOD: Duration = Duration::from_secs(30);

    /// Sampling may take `slowdown_percent` of a program's time and `cpu_share_percent` of the
    /// manager's CPU budget (both over 0, at most 100).
    pub fn new(slowdown_percent: f64, cpu_share_percent: f64) -> Result<Self, SettingError> {
        let (slowdown, share) = (Setting::SamplingSlowdown, Setting::SamplingCpuShare);
        Ok(Self {
            slowdown_percent: check_positive_percent(slowdown_percent, slowdown)?,
            cpu_share_percent: check_positive_percent(cpu_share_percent, share)?,
        })
    }

    /// Share of a program's time that sampling may take, in per cent.
    pub fn max_slowdown_percent(self) -> f64 {
        self.slowdown_percent
    }

    /// Share of the manager's CPU budget that sampling may take, in per cent.
    pub fn max_percent_of_manager_budget(self) -> f64 {
        self.cpu_share_percent
    }

    /// The shortest period between windows that each cost the manager `manager_cost`, with a budget
    /// of `cpu_percent` of one core.
    pub fn min_period_within_cpu_budget(
        &self,
        manager_cost: Duration,
        cpu_percent: f64,
    ) -> Duration {
        let share = cpu_percent.max(0.0) / 100.0 * self.cpu_share_percent / 100.0;
        if manager_cost.is_zero() {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(manager_cost.as_secs_f64() / share).unwrap_or(Duration::MAX)
    }
}

impl Default for SamplingCostLimits {
    /// 1 % of a program's time, half of the manager's CPU budget.
    fn default() -> Self {
        Self { slowdown_percent: 1.0, cpu_share_percent: 50.0 }
    }
}

/// What sampling has cost a program, and what it may cost.
///
/// After access bits are cleared, the first touch of each page costs its program time. Where a
/// hypervisor shadows page tables, it is half a microsecond. The allowed share flows in steadily.
/// The real cost of the touches is drawn from it once they are seen. Bits may be cleared again when
/// the cost of the last clear has flowed in again. All of it is counted against one thread, which
/// is the worst case.
#[derive(Clone, Copy, Debug)]
pub struct SamplingSlowdownBudget {
    left: TokenBucket,
    /// First touches since the last clear that were already drawn, and the amount drawn for them.
    drawn_touches: u64,
    drawn_s: f64,
}

impl SamplingSlowdownBudget {
    /// Seconds available at the start, so that a first window may come at once.
    const SAVED_S: f64 = 30.0;

    /// A budget from which nothing has been drawn yet.
    pub fn new(pace: SamplingCostLimits) -> Self {
        let share = pace.slowdown_percent / 100.0;
        Self {
            left: TokenBucket::new_full(share, share * Self::SAVED_S),
            drawn_touches: 0,
            drawn_s: 0.0,
        }
    }

    /// Takes in that `touches` pages in all were touched since the last clear, each at a cost of
    /// `each`. The program uses `cpu_cores` (0 and more). One that works for a tenth of the time
    /// gets a tenth of the budget.
    pub fn record_touches(&mut self, now: Duration, touches: u64, each: Duration, cpu_cores: f64) {
        let new = touches.saturating_sub(self.drawn_touches);
        self.drawn_touches = self.drawn_touches.max(touches);
        let cost_s = new as f64 * each.as_secs_f64() / cpu_cores.clamp(WORTH_CORES, 1.0);
        self.drawn_s += cost_s;
        self.left.draw_tokens_into_debt(now, cost_s);
    }

    /// When bits may be cleared again: `now`, or when the cost of the touches since the last clear
    /// has flowed in again.
    pub fn may_clear_again_at(&self, now: Duration) -> Duration {
        self.left.time_when_level_reached(now, self.drawn_s.min(self.left.capacity()))
    }

    /// Bits were cleared: touches count from 0.
    pub fn restart_touch_count(&mut self) {
        (self.drawn_touches, self.drawn_s) = (0, 0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const EACH: Duration = Duration::from_nanos(500);

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn where_access_bits_cost_nothing_no_program_waits() {
        let mut budget = SamplingSlowdownBudget::new(SamplingCostLimits::default());
        budget.record_touches(at(1.0), u64::MAX, Duration::ZERO, 1.0);
        assert_eq!(budget.may_clear_again_at(at(1.0)), at(1.0));
    }

    #[test]
    fn windows_wait_until_the_touches_are_within_the_slowdown_budget() {
        // 2 million touches at 0.5 us are 1 s: 1 % of 100 s. 100,000 are 50 ms, which is less than
        // the initial amount. They are 1 % of the work of 5 s, which takes 50 s at a tenth of a
        // core. A program that hardly runs has touched next to nothing, however it is counted.
        for (touches, cores, wait_s) in [
            (2_000_000, 1.0, 100.0),
            (100_000, 8.0, 0.0),
            (100_000, 1.0, 0.0),
            (100_000, 0.1, 50.0),
            (100_000, 0.0, 100.0),
        ] {
            let mut budget = SamplingSlowdownBudget::new(SamplingCostLimits::default());
            assert_eq!(budget.may_clear_again_at(at(1.0)), at(1.0));
            budget.restart_touch_count();
            budget.record_touches(at(1.0), touches, EACH, cores);
            let wait = budget.may_clear_again_at(at(1.0)).as_secs_f64() - 1.0;
            assert!((wait - wait_s).abs() < 1e-6, "{touches}, {cores}: {wait}");
        }
    }

    #[test]
    fn touches_are_charged_once() {
        let mut budget = SamplingSlowdownBudget::new(SamplingCostLimits::default());
        budget.record_touches(at(1.0), 1_000_000, EACH, 1.0);
        let once = budget.may_clear_again_at(at(1.0));
        budget.record_touches(at(1.0), 1_000_000, EACH, 1.0);
        assert_eq!(budget.may_clear_again_at(at(1.0)), once);
    }

    #[test]
    fn the_managers_cpu_share_spaces_windows_too() {
        // 0.5 s is half of 2 % of 50 s.
        let pace = SamplingCostLimits::default();
        let period = pace.min_period_within_cpu_budget(Duration::from_millis(500), 2.0);
        assert!((period.as_secs_f64() - 50.0).abs() < 1e-6);
        assert_eq!(pace.min_period_within_cpu_budget(EACH, 0.0), Duration::MAX);
        assert_eq!(pace.min_period_within_cpu_budget(Duration::ZERO, 0.0), Duration::ZERO);
        assert!(SamplingCostLimits::new(0.0, 50.0).is_err());
        assert!(SamplingCostLimits::new(1.0, 101.0).is_err());
    }

    proptest! {
        /// 1 % of the time, plus at most one window and the initial amount.
        #[test]
        fn the_share_holds_over_time(
            sizes in proptest::collection::vec(0u64..3_000_000, 1..40),
            period_s in 1.0..60.0f64,
        ) {
            let mut budget = SamplingSlowdownBudget::new(SamplingCostLimits::default());
            let (mut now, mut cost_s) = (Duration::ZERO, 0.0);
            let largest = sizes.iter().max().copied().unwrap_or(0);
            for touches in sizes {
                now = budget.may_clear_again_at(now + at(period_s));
                budget.restart_touch_count();
                budget.record_touches(now, touches, EACH, 1.0);
                cost_s += touches as f64 * EACH.as_secs_f64();
            }
            let savings = 0.01 * SamplingSlowdownBudget::SAVED_S;
            let window = largest as f64 * EACH.as_secs_f64();
            prop_assert!(cost_s <= now.as_secs_f64() * 0.01 + savings + window + 1e-6);
        }
    }
}
