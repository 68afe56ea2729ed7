//! How often to sample, so that neither the programs nor the manager pay too much for it.

use crate::budget::Reservoir;
use crate::error::{SettingError, positive_up_to};
use crate::run_rate::WORTH_CORES;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Why windows are further apart than asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StretchedBy {
    /// First touches after clearing access bits would slow the program down too much.
    ProgramSlowdown,
    /// Sampling would take too much of the manager's CPU budget.
    ManagerCpu,
}

impl fmt::Display for StretchedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ProgramSlowdown => "sampling would slow the program down too much",
            Self::ManagerCpu => "sampling would take too much of the manager's CPU budget",
        })
    }
}

/// What sampling may cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingPace {
    slowdown_percent: f64,
    cpu_share_percent: f64,
}

impl SamplingPace {
    /// The period that is never gone below unless set: the paper's 30 s (section 3.3).
    pub const DEFAULT_BASE_PERIOD: Duration = Duration::from_secs(30);

    /// Sampling may take `slowdown_percent` of a program's time and `cpu_share_percent` of the
    /// manager's CPU budget (both over 0, at most 100).
    pub fn new(slowdown_percent: f64, cpu_share_percent: f64) -> Result<Self, SettingError> {
        let allowed = "over 0 and at most 100";
        let slowdown = "slowdown by sampling (%)";
        let share = "sampling's share of the CPU budget (%)";
        Ok(Self {
            slowdown_percent: positive_up_to(100.0, slowdown_percent, slowdown, allowed)?,
            cpu_share_percent: positive_up_to(100.0, cpu_share_percent, share, allowed)?,
        })
    }

    /// Share of a program's time that sampling may take, in per cent.
    pub fn slowdown_percent(self) -> f64 {
        self.slowdown_percent
    }

    /// Share of the manager's CPU budget that sampling may take, in per cent.
    pub fn cpu_share_percent(self) -> f64 {
        self.cpu_share_percent
    }

    /// The shortest time between windows of which one costs the manager `manager_cost`, when its whole
    /// budget is `cpu_percent` of one core.
    pub fn period_for_manager(&self, manager_cost: Duration, cpu_percent: f64) -> Duration {
        let share = cpu_percent.max(0.0) / 100.0 * self.cpu_share_percent / 100.0;
        if manager_cost.is_zero() {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(manager_cost.as_secs_f64() / share).unwrap_or(Duration::MAX)
    }
}

impl Default for SamplingPace {
    /// 1 % of a program's time, half of the manager's CPU budget.
    fn default() -> Self {
        Self {
            slowdown_percent: 1.0,
            cpu_share_percent: 50.0,
        }
    }
}

/// What sampling has cost a program, against what it may.
///
/// After access bits are cleared, the first touch of each page costs its program something; where a
/// hypervisor shadows page tables, half a microsecond. The share that sampling may take flows in
/// steadily; what the touches really cost is drawn from it as it is seen, and bits may be cleared again when what
/// the last clear cost is there again. All of it is counted against one thread: the worst case.
#[derive(Clone, Copy, Debug)]
pub struct SlowdownBudget {
    /// Seconds of program time.
    left: Reservoir,
    /// First touches since the last clear that were drawn already, and what was drawn for them.
    drawn_touches: u64,
    drawn_s: f64,
}

impl SlowdownBudget {
    /// A first window may come at once: this much time's share is there from the start, in seconds.
    const SAVED_S: f64 = 30.0;

    /// Nothing is drawn yet.
    pub fn new(pace: SamplingPace) -> Self {
        let share = pace.slowdown_percent / 100.0;
        Self {
            left: Reservoir::full(share, share * Self::SAVED_S),
            drawn_touches: 0,
            drawn_s: 0.0,
        }
    }

    /// Told that `touches` pages in all were touched since the last clear, each at a cost of `each`, by a program that uses `cpu_cores`
    /// (0 and more): one that works for a tenth of the time has a tenth of it to spare.
    pub fn note_touches(&mut self, now: Duration, touches: u64, each: Duration, cpu_cores: f64) {
        let new = touches.saturating_sub(self.drawn_touches);
        self.drawn_touches = self.drawn_touches.max(touches);
        let cost_s = new as f64 * each.as_secs_f64() / cpu_cores.clamp(WORTH_CORES, 1.0);
        self.drawn_s += cost_s;
        self.left.draw(now, cost_s);
    }

    /// When bits may be cleared again: `now`, or when what the touches since the last clear cost is
    /// there once more.
    pub fn ready_at(&self, now: Duration) -> Duration {
        self.left
            .reaches(now, self.drawn_s.min(self.left.capacity()))
    }

    /// Bits were cleared: touches count from 0.
    pub fn note_clear(&mut self) {
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
    fn hardware_that_sets_bits_for_nothing_never_waits() {
        let mut budget = SlowdownBudget::new(SamplingPace::default());
        budget.note_touches(at(1.0), u64::MAX, Duration::ZERO, 1.0);
        assert_eq!(budget.ready_at(at(1.0)), at(1.0));
    }

    #[test]
    fn a_large_program_waits_until_its_touches_are_paid_for() {
        // 2 million touches at 0.5 us are 1 s: 1 % of 100 s.
        let mut budget = SlowdownBudget::new(SamplingPace::default());
        assert_eq!(budget.ready_at(at(1.0)), at(1.0));
        budget.note_clear();
        budget.note_touches(at(2.0), 2_000_000, EACH, 1.0);
        let ready = budget.ready_at(at(2.0)).as_secs_f64();
        assert!((ready - 102.0).abs() < 1e-6, "{ready}");
    }

    #[test]
    fn a_small_program_keeps_the_base_period() {
        let mut budget = SlowdownBudget::new(SamplingPace::default());
        budget.note_touches(at(1.0), 100_000, EACH, 1.0);
        assert!(budget.ready_at(at(1.0)) <= at(31.0));
    }

    #[test]
    fn a_program_that_works_little_pays_out_of_little() {
        // 100,000 touches are 50 ms: 1 % of the work of 5 s, which takes 50 s at a tenth of a core. One that hardly runs has touched
        // nothing to speak of, however it is counted.
        for (cores, wait_s) in [(8.0, 0.0), (1.0, 0.0), (0.1, 50.0), (0.0, 100.0)] {
            let mut budget = SlowdownBudget::new(SamplingPace::default());
            budget.note_touches(at(1.0), 100_000, EACH, cores);
            let wait = budget.ready_at(at(1.0)).as_secs_f64() - 1.0;
            assert!((wait - wait_s).abs() < 1e-6, "{cores}: {wait}");
        }
    }

    #[test]
    fn touches_are_drawn_once() {
        let mut budget = SlowdownBudget::new(SamplingPace::default());
        budget.note_touches(at(1.0), 1_000_000, EACH, 1.0);
        let once = budget.ready_at(at(1.0));
        budget.note_touches(at(1.0), 1_000_000, EACH, 1.0);
        assert_eq!(budget.ready_at(at(1.0)), once);
    }

    #[test]
    fn the_managers_share_spaces_windows_too() {
        // 0.5 s is half of 2 % of 50 s.
        let pace = SamplingPace::default();
        let period = pace.period_for_manager(Duration::from_millis(500), 2.0);
        assert!((period.as_secs_f64() - 50.0).abs() < 1e-6);
        assert_eq!(pace.period_for_manager(EACH, 0.0), Duration::MAX);
        assert_eq!(pace.period_for_manager(Duration::ZERO, 0.0), Duration::ZERO);
        assert!(SamplingPace::new(0.0, 50.0).is_err());
        assert!(SamplingPace::new(1.0, 101.0).is_err());
    }

    proptest! {
        /// Whatever the programs' sizes, sampling takes 1 % of the time and no more than one window and
        /// the savings on top.
        #[test]
        fn the_share_holds_over_time(
            sizes in proptest::collection::vec(0u64..3_000_000, 1..40),
            period_s in 1.0..60.0f64,
        ) {
            let mut budget = SlowdownBudget::new(SamplingPace::default());
            let (mut now, mut cost_s) = (Duration::ZERO, 0.0);
            let largest = sizes.iter().max().copied().unwrap_or(0);
            for touches in sizes {
                now = budget.ready_at(now + at(period_s));
                budget.note_clear();
                budget.note_touches(now, touches, EACH, 1.0);
                cost_s += touches as f64 * EACH.as_secs_f64();
            }
            let savings = 0.01 * SlowdownBudget::SAVED_S;
            let window = largest as f64 * EACH.as_secs_f64();
            prop_assert!(cost_s <= now.as_secs_f64() * 0.01 + savings + window + 1e-6);
        }
    }
}
