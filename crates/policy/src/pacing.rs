//! How often to sample, so that neither the programs nor the manager pay too much for it.

use crate::error::{SettingError, positive_up_to};
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

/// A period between windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretched {
    /// From the start of one window to the start of the next.
    pub period: Duration,
    /// What made it longer than the base period, if anything did.
    pub because: Option<StretchedBy>,
}

/// Decides the time between sampling windows. The paper's 30 s (section 3.3) are the base; they are
/// stretched where the cost of a window wouldn't be worth it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplingPace {
    slowdown_percent: f64,
    cpu_share_percent: f64,
}

impl SamplingPace {
    /// The period that is never gone below unless set: the paper's 30 s.
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

    /// The time from one window to the next.
    ///
    /// - `base_period`: as often as is asked for.
    /// - `touched_pages`: base pages accessed in the last window, each for the first time after its
    ///   bit was cleared; one that costs `first_touch_cost`, all borne by one thread (the worst).
    /// - `manager_cost`: CPU time the manager spent on the last window.
    /// - `cpu_percent`: the manager's whole budget, in per cent of one core.
    pub fn next_period(
        &self,
        base_period: Duration,
        touched_pages: u64,
        first_touch_cost: Duration,
        manager_cost: Duration,
        cpu_percent: f64,
    ) -> Stretched {
        let program_s = touched_pages as f64 * first_touch_cost.as_secs_f64();
        let own_percent = cpu_percent * self.cpu_share_percent / 100.0;
        let program = period_for(program_s, self.slowdown_percent);
        let manager = period_for(manager_cost.as_secs_f64(), own_percent);
        let (longer, by) = if program >= manager {
            (program, StretchedBy::ProgramSlowdown)
        } else {
            (manager, StretchedBy::ManagerCpu)
        };
        if longer > base_period {
            Stretched {
                period: longer,
                because: Some(by),
            }
        } else {
            Stretched {
                period: base_period,
                because: None,
            }
        }
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

/// The time of which `cost_s` is `percent`.
fn period_for(cost_s: f64, percent: f64) -> Duration {
    // A percentage of 0 or less buys nothing, ever, but nothing is free.
    if cost_s <= 0.0 {
        return Duration::ZERO;
    }
    Duration::try_from_secs_f64(cost_s * 100.0 / percent.max(0.0)).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: Duration = SamplingPace::DEFAULT_BASE_PERIOD;
    const MICROSECOND: Duration = Duration::from_micros(1);

    #[test]
    fn cheap_sampling_keeps_the_base_period() {
        let pace = SamplingPace::default();
        let free = pace.next_period(BASE, u64::MAX, Duration::ZERO, Duration::ZERO, 2.0);
        assert_eq!(
            free,
            Stretched {
                period: BASE,
                because: None
            }
        );
        let cheap = pace.next_period(BASE, 100_000, MICROSECOND, Duration::from_millis(200), 2.0);
        assert_eq!(cheap.because, None);
    }

    #[test]
    fn stretched_for_the_program() {
        // 1 s of first touches is 1 % of 100 s.
        let pace = SamplingPace::default();
        let stretched = pace.next_period(BASE, 1_000_000, MICROSECOND, MICROSECOND, 2.0);
        assert_eq!(stretched.because, Some(StretchedBy::ProgramSlowdown));
        assert!((stretched.period.as_secs_f64() - 100.0).abs() < 1e-6);
    }

    #[test]
    fn stretched_for_the_manager() {
        // 0.5 s is half of 2 % of 50 s.
        let pace = SamplingPace::default();
        let cost = Duration::from_millis(500);
        let stretched = pace.next_period(BASE, 1000, MICROSECOND, cost, 2.0);
        assert_eq!(stretched.because, Some(StretchedBy::ManagerCpu));
        assert!((stretched.period.as_secs_f64() - 50.0).abs() < 1e-6);
    }

    #[test]
    fn nothing_to_spend_means_never() {
        let pace = SamplingPace::default();
        for percent in [0.0, -1.0, f64::NAN] {
            let never = pace.next_period(BASE, 0, MICROSECOND, MICROSECOND, percent);
            assert_eq!(never.period, Duration::MAX, "{percent}");
        }
        assert!(SamplingPace::new(0.0, 50.0).is_err());
        assert!(SamplingPace::new(1.0, 101.0).is_err());
    }

    proptest! {
        #[test]
        fn both_promises_hold(
            pages in 0u64..1_000_000_000,
            touch_ns in 0u64..10_000,
            cost_us in 0u64..100_000_000,
            percent in 0.1..100.0f64,
        ) {
            let touch = Duration::from_nanos(touch_ns);
            let cost = Duration::from_micros(cost_us);
            let next = SamplingPace::default().next_period(BASE, pages, touch, cost, percent);
            let period = next.period.as_secs_f64();
            prop_assert!(next.period >= BASE);
            prop_assert!(pages as f64 * touch.as_secs_f64() <= period * 0.01 + 1e-6);
            prop_assert!(cost.as_secs_f64() <= period * percent / 200.0 + 1e-6);
            prop_assert_eq!(next.because.is_some(), next.period > BASE);
        }
    }
}
