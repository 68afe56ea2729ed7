//! Work that a budget holds back, and when it continues.

use hawkeye_policy::{SamplingDelayReason, SavingsBudget};
use std::fmt;
use std::time::Duration;

/// Work that waits for a budget.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetWait {
    /// The budget.
    pub budget: ExhaustedBudget,
    /// When the work continues at the latest, on the machine's clock.
    pub until: Duration,
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
    /// What sampling may cost.
    Sampling(SamplingDelayReason),
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
            Self::Sampling(because) => because.fmt(f),
        }
    }
}

/// The wait of one kind of work, and the time spent in such waits.
#[derive(Debug, Default)]
pub struct BudgetWaits {
    current: Option<(BudgetWait, Duration)>,
    last: Option<ExhaustedBudget>,
    waited: Duration,
}

impl BudgetWaits {
    /// The current wait, if any.
    pub fn current_wait(&self, now: Duration) -> Option<BudgetWait> {
        let (wait, _) = self.current?;
        (wait.until > now).then_some(wait)
    }

    /// The time spent in waits, and the budget that was the last reason.
    pub fn total_wait_and_last_budget(&self, now: Duration) -> Option<(Duration, ExhaustedBudget)> {
        let Some((wait, since)) = self.current else { return Some((self.waited, self.last?)) };
        Some((self.waited + wait.until.min(now).saturating_sub(since), wait.budget))
    }

    /// Begins a wait, or continues the one that lasts. Returns its end.
    pub(super) fn begin_wait(&mut self, now: Duration, wait: BudgetWait) -> Duration {
        if self.current.is_some_and(|(current, _)| current.until < now) {
            self.end_current_wait(now);
        }
        let since = self.current.map_or(now, |(_, since)| since);
        self.current = Some((wait, since));
        wait.until
    }

    /// The work continues, or waits for something else. After its end the wait was no longer for
    /// the budget.
    pub(super) fn end_current_wait(&mut self, now: Duration) {
        if let Some((wait, since)) = self.current.take() {
            self.waited += wait.until.min(now).saturating_sub(since);
            self.last = Some(wait.budget);
        }
    }

    /// There is no work. A wait for the rate of promotions begins before it is known whether
    /// another promotion follows, so it does not count.
    pub(super) fn end_without_work(&mut self, now: Duration) {
        let rate = ExhaustedBudget::PromotionRate;
        if self.current.is_some_and(|(wait, _)| wait.budget == rate) {
            self.current = None;
        }
        self.end_current_wait(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_summed_and_the_current_one_ends_at_its_time() {
        let at = Duration::from_secs;
        let wait = |until| BudgetWait { budget: ExhaustedBudget::PromotionRate, until: at(until) };
        let mut waits = BudgetWaits::default();
        assert_eq!(
            (waits.current_wait(at(1)), waits.total_wait_and_last_budget(at(1))),
            (None, None)
        );
        waits.begin_wait(at(1), wait(4));
        waits.begin_wait(at(2), wait(5));
        assert_eq!(waits.current_wait(at(2)), Some(wait(5)));
        assert_eq!(waits.current_wait(at(5)), None);
        waits.end_current_wait(at(5));
        waits.begin_wait(at(10), wait(12));
        let so_far = waits.total_wait_and_last_budget(at(11));
        assert_eq!(so_far, Some((at(5), ExhaustedBudget::PromotionRate)));
        // It goes on when the budget is there, also if the next batch comes later.
        waits.end_current_wait(at(20));
        waits.begin_wait(at(30), wait(31));
        waits.begin_wait(at(40), wait(41));
        let sum = waits.total_wait_and_last_budget(at(50));
        assert_eq!(sum, Some((at(4 + 2 + 1 + 1), ExhaustedBudget::PromotionRate)));
        let cores = ExhaustedBudget::PromotionCores.to_string();
        assert!(cores.contains("50 % of one core"), "{cores}");
    }

    #[test]
    fn a_wait_for_the_rate_counts_only_where_a_promotion_follows() {
        let at = Duration::from_secs;
        let mut waits = BudgetWaits::default();
        for (budget, counts) in
            [(ExhaustedBudget::PromotionRate, false), (ExhaustedBudget::PromotionCores, true)]
        {
            waits.begin_wait(at(1), BudgetWait { budget, until: at(4) });
            waits.end_without_work(at(4));
            let expected = counts.then_some((at(3), budget));
            assert_eq!(waits.total_wait_and_last_budget(at(9)), expected);
        }
    }
}
