//! Work that a budget holds back, and when it continues.

use hawkeye_policy::{SamplingDelayReason, SavingsBudget};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Work that waits for a budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetWait {
    /// The budget.
    pub budget: ExhaustedBudget,
    /// When the work continues at the latest, on the machine's clock; `None`: it does not.
    pub until: Option<Duration>,
}

/// A kind of work. It waits for one budget at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitingWork {
    /// Promotion of regions.
    Promotion,
    /// Recovery of bloat while memory is short.
    Recovery,
    /// The next regular sampling window.
    Sampling,
    /// A window between regular ones, for programs that have grown or were seen in part.
    EarlySampling,
    /// Filling memory before a process touches it.
    Prefault,
}

/// A budget that is used up. Its text is a clause that names it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ExhaustedBudget {
    /// The manager's own CPU time, of which recovery keeps a third.
    PromotionCpu {
        /// The budget, in per cent of one core.
        percent: f64,
        /// Whether savings could pay for more promotions.
        returns: bool,
    },
    /// The share of a core that promotions paid from savings may use.
    PromotionCores,
    /// Promotions per second.
    PromotionRate,
    /// Promotions in all.
    PromotionTotal {
        /// The limit.
        max: u64,
    },
    /// Calls of promotion took long, or no huge page was free.
    PromotionPause,
    /// All of the manager's own CPU time.
    RecoveryCpu {
        /// The budget, in per cent of one core.
        percent: f64,
    },
    /// Calls of recovery took long.
    RecoveryPause,
    /// What sampling may cost.
    Sampling(SamplingDelayReason),
    /// The same, for early windows.
    EarlySampling(SamplingDelayReason),
    /// Time that no other program wants a CPU.
    PrefaultCores,
    /// Calls of prefault took long.
    PrefaultPause,
    /// Regions filled per second.
    PrefaultRate,
}

impl BudgetWait {
    fn lasts_at(&self, now: Duration) -> bool {
        self.until.is_none_or(|until| until > now)
    }

    /// The time of the wait up to `now`, if it began at `since`.
    fn waited_since(&self, since: Duration, now: Duration) -> Duration {
        self.until.map_or(now, |until| until.min(now)).saturating_sub(since)
    }
}

impl fmt::Display for WaitingWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Promotion => "promotion",
            Self::Recovery => "recovery",
            Self::Sampling => "sampling",
            Self::EarlySampling => "early sampling",
            Self::Prefault => "prefault",
        })
    }
}

impl ExhaustedBudget {
    /// The work that waits for it.
    pub fn work(&self) -> WaitingWork {
        match self {
            Self::PromotionCpu { .. }
            | Self::PromotionCores
            | Self::PromotionRate
            | Self::PromotionTotal { .. }
            | Self::PromotionPause => WaitingWork::Promotion,
            Self::RecoveryCpu { .. } | Self::RecoveryPause => WaitingWork::Recovery,
            Self::Sampling(_) => WaitingWork::Sampling,
            Self::EarlySampling(_) => WaitingWork::EarlySampling,
            Self::PrefaultCores | Self::PrefaultPause | Self::PrefaultRate => WaitingWork::Prefault,
        }
    }
}

impl fmt::Display for ExhaustedBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PromotionCpu { percent, returns } => {
                let unpaid = match returns {
                    true => ", and what they save does not pay for more",
                    false => "",
                };
                write!(
                    f,
                    "the manager has used the CPU time that promotions may use in a minute, two thirds of {percent} % of one core{unpaid}"
                )
            }
            Self::PromotionCores => write!(
                f,
                "promotions use at most {:.0} % of one core",
                SavingsBudget::MOST_CORES * 100.0
            ),
            Self::PromotionRate => f.write_str("the limit of promotions per second is reached"),
            Self::PromotionTotal { max } => {
                write!(f, "the limit of {max} promotions in all is reached")
            }
            Self::PromotionPause => {
                f.write_str("calls into processes took long, or the kernel had no free huge page")
            }
            Self::RecoveryCpu { percent } => {
                write!(f, "the manager has used the CPU time of a minute, {percent} % of one core")
            }
            Self::RecoveryPause | Self::PrefaultPause => {
                f.write_str("calls into processes took long")
            }
            Self::PrefaultCores => f.write_str("other programs want every CPU"),
            Self::PrefaultRate => {
                f.write_str("the limit of prefaulted regions per second is reached")
            }
            Self::Sampling(because) | Self::EarlySampling(because) => because.fmt(f),
        }
    }
}

/// The waits of all kinds of work, and the time spent in them.
#[derive(Debug, Default)]
pub struct BudgetWaits(BTreeMap<WaitingWork, WaitsOfWork>);

#[derive(Debug, Default)]
struct WaitsOfWork {
    /// The current wait, and its begin.
    current: Option<(BudgetWait, Duration)>,
    last: Option<ExhaustedBudget>,
    waited: Duration,
}

impl BudgetWaits {
    /// The current waits, at most one of each kind of work.
    pub fn current_waits(&self, now: Duration) -> impl Iterator<Item = BudgetWait> {
        let current = self.0.values().filter_map(|waits| waits.current);
        current.map(|(wait, _)| wait).filter(move |wait| wait.lasts_at(now))
    }

    /// For each kind of work that has waited: the time in all, and the last budget.
    pub fn total_waits(&self, now: Duration) -> impl Iterator<Item = (Duration, ExhaustedBudget)> {
        let totals = self.0.values().filter_map(move |waits| waits.total_and_last_budget(now));
        totals.filter(|(waited, _)| !waited.is_zero())
    }

    /// Begins a wait, or continues the one that lasts. Returns its end.
    pub(super) fn begin_wait(&mut self, now: Duration, wait: BudgetWait) -> Option<Duration> {
        let waits = self.0.entry(wait.budget.work()).or_default();
        if waits.current.is_some_and(|(current, _)| current.until.is_some_and(|at| at < now)) {
            waits.end_current_wait(now);
        }
        let since = waits.current.map_or(now, |(_, since)| since);
        waits.current = Some((wait, since));
        wait.until
    }

    /// The work continues, or waits for something else. After its end the wait was no longer for
    /// the budget.
    pub(super) fn end_current_wait(&mut self, now: Duration, work: WaitingWork) {
        if let Some(waits) = self.0.get_mut(&work) {
            waits.end_current_wait(now);
        }
    }

    /// Begins this wait of the work, or ends the current one if there is none.
    pub(super) fn set_wait(&mut self, now: Duration, work: WaitingWork, wait: Option<BudgetWait>) {
        match wait {
            Some(wait) => {
                self.begin_wait(now, wait);
            }
            None => self.end_current_wait(now, work),
        }
    }

    /// There is no promotion left. A wait for the rate or after long calls begins before it is
    /// known whether another promotion follows, so it does not count.
    pub(super) fn end_without_promotion(&mut self, now: Duration) {
        use ExhaustedBudget::{PromotionPause, PromotionRate};
        let Some(waits) = self.0.get_mut(&WaitingWork::Promotion) else { return };
        let is_uncertain =
            |budget: ExhaustedBudget| matches!(budget, PromotionRate | PromotionPause);
        if waits.current.is_some_and(|(wait, _)| is_uncertain(wait.budget)) {
            waits.current = None;
        }
        waits.end_current_wait(now);
    }
}

impl WaitsOfWork {
    fn total_and_last_budget(&self, now: Duration) -> Option<(Duration, ExhaustedBudget)> {
        let Some((wait, since)) = self.current else { return Some((self.waited, self.last?)) };
        Some((self.waited + wait.waited_since(since, now), wait.budget))
    }

    fn end_current_wait(&mut self, now: Duration) {
        if let Some((wait, since)) = self.current.take() {
            self.waited += wait.waited_since(since, now);
            self.last = Some(wait.budget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Duration {
        Duration::from_secs(second)
    }

    fn wait(budget: ExhaustedBudget, until: u64) -> BudgetWait {
        BudgetWait { budget, until: Some(at(until)) }
    }

    fn total(waits: &BudgetWaits, now: u64) -> Option<(Duration, ExhaustedBudget)> {
        waits.total_waits(at(now)).next()
    }

    #[test]
    fn waits_are_summed_and_the_current_one_ends_at_its_time() {
        let rate = ExhaustedBudget::PromotionRate;
        let current = |waits: &BudgetWaits, now| waits.current_waits(at(now)).next();
        let mut waits = BudgetWaits::default();
        assert_eq!((current(&waits, 1), total(&waits, 1)), (None, None));
        waits.begin_wait(at(1), wait(rate, 4));
        waits.begin_wait(at(2), wait(rate, 5));
        assert_eq!(current(&waits, 2), Some(wait(rate, 5)));
        assert_eq!(current(&waits, 5), None);
        waits.end_current_wait(at(5), WaitingWork::Promotion);
        waits.begin_wait(at(10), wait(rate, 12));
        assert_eq!(total(&waits, 11), Some((at(5), rate)));
        // It goes on when the budget is there, also if the next batch comes later.
        waits.end_current_wait(at(20), WaitingWork::Promotion);
        waits.begin_wait(at(30), wait(rate, 31));
        waits.begin_wait(at(40), wait(rate, 41));
        assert_eq!(total(&waits, 50), Some((at(4 + 2 + 1 + 1), rate)));
        let cores = ExhaustedBudget::PromotionCores.to_string();
        assert!(cores.contains("50 % of one core"), "{cores}");
    }

    #[test]
    fn a_wait_counts_where_a_promotion_follows_or_is_known_to_wait() {
        use ExhaustedBudget::{PromotionCores, PromotionPause, PromotionRate};
        for (budget, counts) in
            [(PromotionRate, false), (PromotionPause, false), (PromotionCores, true)]
        {
            let mut waits = BudgetWaits::default();
            waits.begin_wait(at(1), wait(budget, 4));
            waits.end_without_promotion(at(4));
            assert_eq!(total(&waits, 9), counts.then_some((at(3), budget)));
        }
    }

    #[test]
    fn each_kind_of_work_waits_for_its_own_budget() {
        let recovery = ExhaustedBudget::RecoveryCpu { percent: 2.0 };
        let never = ExhaustedBudget::PromotionTotal { max: 3 };
        let mut waits = BudgetWaits::default();
        waits.set_wait(at(1), WaitingWork::Recovery, Some(wait(recovery, 9)));
        waits.begin_wait(at(2), BudgetWait { budget: never, until: None });
        let works = |waits: &BudgetWaits, now| -> Vec<WaitingWork> {
            waits.current_waits(at(now)).map(|wait| wait.budget.work()).collect()
        };
        assert_eq!(works(&waits, 3), [WaitingWork::Promotion, WaitingWork::Recovery]);
        assert_eq!(works(&waits, 100), [WaitingWork::Promotion]);
        waits.set_wait(at(5), WaitingWork::Recovery, None);
        let totals: Vec<_> = waits.total_waits(at(12)).collect();
        assert_eq!(totals, [(at(10), never), (at(4), recovery)]);
    }
}
