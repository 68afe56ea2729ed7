//! Limits of the loop's work: CPU time, promotions, and the regions to leave alone.

use crate::budget_wait::{BudgetWait, BudgetWaits, ExhaustedBudget};
use crate::settings::Settings;
use hawkeye_policy::{
    CpuBudget, CpuMinute, Event, Observation, ProcessSample, PromotionBudgetExhausted,
    PromotionCountBudget, RatePerSecond, RegionPromotionLimits, SavingsBudget, SavingsDecision,
};
use std::time::Duration;

/// Share of the CPU budget that promotion leaves unused. If memory runs short just afterwards, its
/// recovery must not wait a minute.
const KEPT_FOR_RECOVERY: f64 = 1.0 / 3.0;
/// Share of the CPU budget that early samples leave to other work.
const KEPT_FROM_EARLY_SAMPLES: f64 = 0.5;

/// The limits of the loop's work, except those by memory use.
pub struct WorkLimits {
    /// The budget of the manager's own CPU time.
    pub cpu: CpuBudget,
    /// All CPU time of management in the last minute, whatever paid for it.
    pub all_cpu: CpuMinute,
    /// CPU time that promotions save and may use.
    pub savings: SavingsBudget,
    /// Counts the promotions taken.
    pub promotions: PromotionCountBudget,
    /// How promotions wait for budgets.
    pub waits: BudgetWaits,
    /// The limits on promotions of single regions.
    pub regions: RegionPromotionLimits,
    /// CPU time for groups in danger, which these pay.
    pub(super) urgent: Duration,
}

/// What pays for a promotion's CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PaidBy {
    CpuBudget,
    /// What promotions save.
    Savings,
}

impl WorkLimits {
    pub(super) fn new(settings: &Settings, rate: Option<RatePerSecond>) -> Self {
        Self {
            cpu: settings.cpu,
            all_cpu: CpuMinute::default(),
            savings: SavingsBudget::new(settings.promotion_return),
            promotions: PromotionCountBudget::new(settings.max_promotions, rate),
            waits: BudgetWaits::default(),
            regions: RegionPromotionLimits::with_recovery_threshold(settings.bloat),
            urgent: Duration::ZERO,
        }
    }

    pub(super) fn apply_event(&mut self, now: Duration, event: &Event) {
        self.regions.apply_event(now, event);
        self.savings.apply_event(now, event);
    }

    /// Takes in all CPU time of management so far. What savings or groups in danger paid for does
    /// not count against the budget.
    pub(super) fn record_total_cpu_time(&mut self, now: Duration, total: Duration) {
        self.all_cpu.record_total_cpu_time(now, total);
        let paid = self.savings.cpu_time_spent() + self.urgent;
        self.cpu.record_total_cpu_time(now, total.saturating_sub(paid));
    }

    pub(super) fn allow_early_samples(&self, now: Duration) -> bool {
        self.cpu.time_when_above_reserve(now, KEPT_FROM_EARLY_SAMPLES) <= now
    }

    pub(super) fn observe(&mut self, observation: &Observation) {
        self.regions.observe(observation);
        for ProcessSample { process, cpu_cores, .. } in &observation.processes {
            self.savings.limit_process_saving_to_cpu_use(observation.at, *process, *cpu_cores);
        }
    }

    /// Counts a promotion, or says which limit is reached.
    pub(super) fn take_promotion(&mut self, now: Duration) -> Result<(), BudgetWait> {
        self.promotions.take_promotion(now).map_err(|exhausted| match exhausted {
            PromotionBudgetExhausted::Total { max } => {
                BudgetWait { budget: ExhaustedBudget::PromotionTotal { max }, until: None }
            }
            PromotionBudgetExhausted::Rate { ready_at } => {
                BudgetWait { budget: ExhaustedBudget::PromotionRate, until: Some(ready_at) }
            }
        })
    }

    /// What pays for a promotion, or how long it waits because nothing does. The last third of the
    /// CPU budget is kept for recovery.
    pub(super) fn decide_promotion_payment(
        &mut self,
        now: Duration,
        saved_us_per_s: Option<f64>,
    ) -> Result<PaidBy, BudgetWait> {
        match saved_us_per_s.map(|saved| self.savings.decide_whether_savings_pay(now, saved)) {
            Some(SavingsDecision::Pays) => return Ok(PaidBy::Savings),
            Some(SavingsDecision::Wait { until }) => {
                let budget = ExhaustedBudget::PromotionCores;
                return Err(BudgetWait { budget, until: Some(until) });
            }
            Some(SavingsDecision::TooLittle) | None => {}
        }
        let until = self.cpu.time_when_above_reserve(now, KEPT_FOR_RECOVERY);
        if until <= now {
            return Ok(PaidBy::CpuBudget);
        }
        let budget = ExhaustedBudget::PromotionCpu {
            percent: self.cpu.limit_percent_of_core(),
            returns: saved_us_per_s.is_some(),
        };
        Err(BudgetWait { budget, until: Some(until) })
    }
}
