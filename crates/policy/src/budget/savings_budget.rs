//! CPU time for promotions, paid from what promotions save.

use crate::budget::token_bucket::TokenBucket;
use crate::event::Event;
use crate::observation::ProcessId;
use crate::saturating_cast::ratio_or_zero;
use crate::setting_error::{Setting, SettingError};
use std::collections::BTreeMap;
use std::time::Duration;

/// Share of the saved CPU time that promotions may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SavingsShare {
    percent: f64,
}

impl SavingsShare {
    /// A share of `percent` (0-100) of what promotions save.
    pub fn new(percent: f64) -> Result<Self, SettingError> {
        let fits = (0.0..=100.0).contains(&percent);
        SettingError::error_unless_valid(fits, Setting::SavingsShare, percent, "0 to 100")?;
        Ok(Self { percent })
    }

    /// The share, in per cent.
    pub fn percent(self) -> f64 {
        self.percent
    }
}

impl Default for SavingsShare {
    /// A quarter.
    fn default() -> Self {
        Self { percent: 25.0 }
    }
}

/// Whether what promotions save pays for the next one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SavingsDecision {
    /// It does.
    Pays,
    /// It does, but promotions use all that they may of a core.
    Wait {
        /// When the promotion may be made, on the clock of the call.
        until: Duration,
    },
    /// It does not.
    TooLittle,
}

/// CPU time for promotions, beyond the manager's own budget: a share of what promotions have saved
/// and are expected to save.
///
/// Each promotion adds its saving to the rate of its process. The rate fades, because programs
/// change: a promotion counts as saving its rate for [`Self::HORIZON`] in all. What a process was
/// still expected to save is lost when it ends. Promotions then wait until others have paid the
/// debt, so a wrong expectation is not repeated. At most 3 s of its own debt stay, because these
/// others did not cause it. What living processes owe stays as a whole.
#[derive(Clone, Debug)]
pub struct SavingsBudget {
    share: f64,
    saving: BTreeMap<ProcessId, ProcessSaving>,
    /// The share of what was saved so far, less the cost of the promotions, in CPU seconds.
    settled_s: f64,
    /// The part of a debt that processes left when they ended, in CPU seconds.
    owed_by_ended_s: f64,
    at: Duration,
    /// Limits the use of one core.
    pace: TokenBucket,
    average_cost_s: f64,
    spent: Duration,
}

/// What the promotions of one process save.
#[derive(Clone, Copy, Debug)]
struct ProcessSaving {
    /// CPU time that they save at the moment, in cores, while the process uses that much.
    cores: f64,
    /// CPU time that the process used when it was last sampled, in cores; infinite before that.
    cpu_cores: f64,
    /// Promoted regions that were not recovered.
    regions: u32,
    /// What its promotions cost, less the share of what they saved so far, in CPU seconds.
    owed_s: f64,
}

impl Default for ProcessSaving {
    fn default() -> Self {
        Self { cores: 0.0, cpu_cores: f64::INFINITY, regions: 0, owed_s: 0.0 }
    }
}

impl ProcessSaving {
    /// CPU time that its promotions save at the moment, in cores.
    fn saved_cores(&self) -> f64 {
        self.cores.min(self.cpu_cores)
    }
}

impl SavingsBudget {
    /// How long a promotion is expected to save CPU time: as long as the default policy expects it
    /// of a program that has run for ten minutes.
    pub const HORIZON: Duration = Duration::from_secs(300);
    /// Share of one core that promotions paid from savings use at most. The call of a promotion
    /// holds a lock of the program, so it runs ahead of ordinary threads. Pauses between the calls
    /// leave the core to programs.
    pub const MOST_CORES: f64 = 0.5;
    /// Savings that are kept for later at most, in CPU seconds.
    const MOST_SETTLED_S: f64 = 60.0;
    /// Debt that may stay when a process has ended, in CPU seconds. A program for which promotions
    /// save 0.1 core pays that in two minutes, or when it is expected to: two fifths of its regions
    /// are huge by then. A program that starts again and again must do that each time.
    const MOST_DEBT_S: f64 = 3.0;
    /// Time in which [`Self::MOST_CORES`] may be used at once.
    const BURST_S: f64 = 0.2;
    /// Cost of a promotion before the first one, in seconds (measured: 370-440 us).
    const FIRST_COST_S: f64 = 400e-6;
    /// Weight of the newest promotion in the average cost.
    const NEWEST: f64 = 0.1;

    /// A budget before the first promotion.
    pub fn new(share: SavingsShare) -> Self {
        Self {
            share: share.percent / 100.0,
            saving: BTreeMap::new(),
            owed_by_ended_s: 0.0,
            settled_s: 0.0,
            at: Duration::ZERO,
            pace: TokenBucket::new_full(Self::MOST_CORES, Self::MOST_CORES * Self::BURST_S),
            average_cost_s: Self::FIRST_COST_S,
            spent: Duration::ZERO,
        }
    }

    /// CPU time of the promotions that savings paid for.
    pub fn cpu_time_spent(&self) -> Duration {
        self.spent
    }

    /// Whether savings pay for a promotion that is expected to save `saved_us_per_s`.
    pub fn decide_whether_savings_pay(
        &mut self,
        now: Duration,
        saved_us_per_s: f64,
    ) -> SavingsDecision {
        self.settle_savings(now);
        let cores = self.saved_cores() + saved_us_per_s.max(0.0) / 1e6;
        let expected_s = cores * Self::HORIZON.as_secs_f64();
        // Also false for a saving that is not a number.
        let pays = self.settled_s + self.share * expected_s >= self.average_cost_s;
        let until = self.pace.time_when_level_reached(now, 0.0);
        match pays {
            true if until > now => SavingsDecision::Wait { until },
            true => SavingsDecision::Pays,
            false => SavingsDecision::TooLittle,
        }
    }

    /// CPU time that all promotions save at the moment, in cores.
    fn saved_cores(&self) -> f64 {
        self.saving.values().map(ProcessSaving::saved_cores).sum()
    }

    /// Takes in what promotions cost and save, and that a recovered region saves nothing any more.
    pub fn apply_event(&mut self, now: Duration, event: &Event) {
        match *event {
            Event::PromotionTried { process, done, cpu, paid_by_savings, .. } => {
                if done {
                    self.record_promotion_cost(cpu);
                }
                if paid_by_savings {
                    self.charge_promotion_cost(now, process, cpu);
                }
            }
            Event::Promoted { process, effect, .. } => {
                self.record_promotion_saving(now, process, effect.saved_us_per_s.unwrap_or(0.0))
            }
            Event::Recovered { process, .. } => self.record_recovery(now, process),
            _ => {}
        }
    }

    fn record_promotion_saving(&mut self, now: Duration, process: ProcessId, saved_us_per_s: f64) {
        self.settle_savings(now);
        let saving = self.saving.entry(process).or_default();
        saving.cores += saved_us_per_s.max(0.0) / 1e6;
        saving.regions += 1;
    }

    /// A region of the process has base pages again. What it saved is taken as the average of the
    /// process's regions.
    fn record_recovery(&mut self, now: Duration, process: ProcessId) {
        self.settle_savings(now);
        if let Some(saving) = self.saving.get_mut(&process) {
            let left = saving.regions.saturating_sub(1);
            saving.cores *= ratio_or_zero(f64::from(left), f64::from(saving.regions));
            saving.regions = left;
        }
    }

    /// Takes in the CPU time of a promotion, whatever paid for it. The time that its call took may
    /// be much longer, because the call waits.
    fn record_promotion_cost(&mut self, cost: Duration) {
        self.average_cost_s += (cost.as_secs_f64() - self.average_cost_s) * Self::NEWEST;
    }

    /// Pays for a call, whether it succeeded or not.
    fn charge_promotion_cost(&mut self, now: Duration, process: ProcessId, cost: Duration) {
        self.settle_savings(now);
        self.saving.entry(process).or_default().owed_s += cost.as_secs_f64();
        self.settled_s -= cost.as_secs_f64();
        self.pace.draw_tokens_into_debt(now, cost.as_secs_f64());
        self.spent += cost;
    }

    /// Takes in how much CPU time a process uses now, in cores. Promotions save no more than that
    /// until it is sampled again: a process that is idle now may work later.
    pub fn limit_process_saving_to_cpu_use(
        &mut self,
        now: Duration,
        process: ProcessId,
        cpu_cores: f64,
    ) {
        self.settle_savings(now);
        if let Some(saving) = self.saving.get_mut(&process) {
            saving.cpu_cores = cpu_cores.max(0.0);
        }
    }

    /// Forgets processes that have ended, with what they were expected to save. Of what they owed,
    /// debt over 3 s that the others are not expected to pay is forgotten too.
    pub fn retain_processes(&mut self, now: Duration, is_there: impl Fn(ProcessId) -> bool) {
        self.settle_savings(now);
        let owed_by_ended_s = &mut self.owed_by_ended_s;
        self.saving.retain(|process, saving| {
            let stays = is_there(*process);
            if !stays {
                *owed_by_ended_s += saving.owed_s.max(0.0);
            }
            stays
        });
        let expected_s = self.share * self.saved_cores() * Self::HORIZON.as_secs_f64();
        let missing_s = -Self::MOST_DEBT_S - expected_s - self.settled_s;
        let forgiven_s = missing_s.clamp(0.0, self.owed_by_ended_s);
        self.settled_s += forgiven_s;
        // What others have paid since is owed by nothing any more.
        let in_debt_s = (-self.settled_s).max(0.0);
        self.owed_by_ended_s = (self.owed_by_ended_s - forgiven_s).min(in_debt_s);
    }

    /// Moves what was saved since the last call from the expected savings to the settled ones.
    fn settle_savings(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64();
        if passed <= 0.0 {
            return;
        }
        self.at = now;
        let horizon_s = Self::HORIZON.as_secs_f64();
        let left = (-passed / horizon_s).exp();
        let mut saved_s = 0.0;
        for saving in self.saving.values_mut() {
            let saved_by_it_s = saving.saved_cores() * horizon_s * (1.0 - left);
            saved_s += saved_by_it_s;
            let owed_s = saving.owed_s - self.share * saved_by_it_s;
            saving.owed_s = owed_s.max(-Self::MOST_SETTLED_S);
            saving.cores *= left;
        }
        self.settled_s = (self.settled_s + self.share * saved_s).min(Self::MOST_SETTLED_S);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{at_second, process};
    use proptest::prelude::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn promoted(
        budget: &mut SavingsBudget,
        now: Duration,
        process: ProcessId,
        saved_us_per_s: f64,
        cost: Duration,
    ) {
        budget.record_promotion_saving(now, process, saved_us_per_s);
        budget.record_promotion_cost(cost);
    }

    #[test]
    fn a_promotion_that_pays_back_within_a_quarter_of_the_horizon_is_made_at_once() {
        let mut budget = SavingsBudget::new(SavingsShare::default());
        for n in 0..100 {
            promoted(&mut budget, at_second(n), process(1), 0.0, MS(5));
        }
        // 5 ms at 100 us/s have paid back after 50 s, at 60 us/s after 83 s.
        let now = at_second(200);
        assert_eq!(budget.decide_whether_savings_pay(now, 100.0), SavingsDecision::Pays);
        assert_eq!(budget.decide_whether_savings_pay(now, 60.0), SavingsDecision::TooLittle);
        assert_eq!(budget.decide_whether_savings_pay(now, f64::NAN), SavingsDecision::TooLittle);
    }

    #[test]
    fn promotions_use_half_of_a_core_at_most() {
        let mut budget = SavingsBudget::new(SavingsShare::default());
        let (mut now, mut used) = (at_second(10), Duration::ZERO);
        while now < at_second(20) {
            match budget.decide_whether_savings_pay(now, 1e4) {
                SavingsDecision::Pays => {
                    promoted(&mut budget, now, process(1), 1e4, MS(5));
                    budget.charge_promotion_cost(now, process(1), MS(5));
                    (now, used) = (now + MS(5), used + MS(5));
                }
                SavingsDecision::Wait { until } => now = until,
                SavingsDecision::TooLittle => panic!("it pays after half a second"),
            }
        }
        let used_s = used.as_secs_f64();
        assert!((4.9..=5.15).contains(&used_s), "{used_s}");
    }

    #[test]
    fn what_a_process_did_not_save_before_its_end_must_be_paid_by_others() {
        let mut budget = SavingsBudget::new(SavingsShare::default());
        for n in 0..100 {
            assert_eq!(
                budget.decide_whether_savings_pay(at_second(n), 100.0),
                SavingsDecision::Pays
            );
            promoted(&mut budget, at_second(n), process(1), 100.0, MS(5));
            budget.charge_promotion_cost(at_second(n), process(1), MS(5));
        }
        budget.retain_processes(at_second(100), |_| false);
        // 100 promotions cost 0.5 s and saved 100 us/s for 50 s on average.
        assert_eq!(
            budget.decide_whether_savings_pay(at_second(100), 1000.0),
            SavingsDecision::TooLittle
        );
        assert_eq!(
            budget.decide_whether_savings_pay(at_second(100), 10_000.0),
            SavingsDecision::Pays
        );
    }

    /// A budget from which a process took 30 s a minute ago, because it was expected to save half
    /// of a core.
    fn budget_in_debt(now: Duration) -> SavingsBudget {
        let mut budget = SavingsBudget::new(SavingsShare::default());
        let then = now - Duration::from_secs(60);
        budget.record_promotion_saving(then, process(1), 500_000.0);
        budget.charge_promotion_cost(then, process(1), Duration::from_secs(30));
        budget
    }

    #[test]
    fn the_debt_of_an_ended_process_does_not_stop_others() {
        let end = at_second(100);
        for (later_s, idle) in [(0, false), (120, false), (0, true), (120, true)] {
            let mut budget = budget_in_debt(end);
            if idle {
                budget.limit_process_saving_to_cpu_use(end, process(1), 0.0);
            }
            // Another one is expected to pay all of it when the first ends, and ends later.
            budget.record_promotion_saving(end, process(2), 400_000.0);
            budget.retain_processes(end, |it| it == process(2));
            budget.retain_processes(end, |_| false);
            let now = end + Duration::from_secs(later_s);
            let mut decide =
                |saved_us_per_s| budget.decide_whether_savings_pay(now, saved_us_per_s);
            assert_eq!(decide(50_000.0), SavingsDecision::Pays, "{later_s} {idle}");
            assert_eq!(decide(1000.0), SavingsDecision::TooLittle, "some debt is left");
        }
    }

    #[test]
    fn the_end_of_a_process_changes_nothing_of_what_others_owe() {
        let end = at_second(100);
        let mut budget = budget_in_debt(end);
        budget.record_promotion_saving(end, process(2), 1.0);
        // The one that owes is idle, so nothing more is expected of it.
        budget.limit_process_saving_to_cpu_use(end, process(1), 0.0);
        let settled_s = budget.settled_s;
        assert!(settled_s < -20.0, "{settled_s}");
        budget.retain_processes(end, |it| it == process(1));
        assert_eq!(budget.settled_s, settled_s);
    }

    #[test]
    fn a_process_saves_no_more_than_it_uses() {
        let mut budget = SavingsBudget::new(SavingsShare::default());
        promoted(&mut budget, at_second(0), process(1), 500_000.0, MS(5));
        assert_eq!(budget.decide_whether_savings_pay(at_second(1), 0.0), SavingsDecision::Pays);
        for (used, saved) in [(0.0, 0.0), (0.25, 0.25), (1.0, 0.5)] {
            budget.limit_process_saving_to_cpu_use(at_second(1), process(1), used);
            assert!((budget.saved_cores() - saved).abs() < 0.01, "{used} cores: {budget:?}");
        }
    }

    /// A process is idle at one sample, and works at the next.
    #[test]
    fn a_process_that_was_idle_pays_its_debt_when_it_works_again() {
        let mut budget = budget_in_debt(at_second(60));
        budget.limit_process_saving_to_cpu_use(at_second(60), process(1), 0.0);
        let idle_s = budget.settled_s;
        budget.limit_process_saving_to_cpu_use(at_second(70), process(1), 1.0);
        assert_eq!(budget.settled_s, idle_s);
        budget.settle_savings(at_second(100));
        // A quarter of 0.4 cores for 30 s.
        let paid_s = budget.settled_s - idle_s;
        assert!((2.0..4.0).contains(&paid_s), "{paid_s}");
    }

    #[test]
    fn a_recovered_region_saves_nothing_any_more() {
        let mut budget = SavingsBudget::new(SavingsShare::default());
        for _ in 0..4 {
            promoted(&mut budget, at_second(0), process(1), 1000.0, MS(5));
        }
        let cores = |budget: &SavingsBudget| budget.saving[&process(1)].cores;
        assert!((cores(&budget) - 0.004).abs() < 1e-9);
        budget.record_recovery(at_second(0), process(1));
        assert!((cores(&budget) - 0.003).abs() < 1e-9);
        for _ in 0..5 {
            budget.record_recovery(at_second(0), process(1));
        }
        assert!(cores(&budget) == 0.0);
    }

    /// A call waits for the program's locks, and one that is late took seconds.
    #[test]
    fn the_length_of_a_call_is_not_what_it_costs() {
        let mut budget = SavingsBudget::new(SavingsShare::default());
        let mut event =
            crate::test_support::promoted_event(process(1), crate::test_support::region(0));
        if let Event::Promoted { took, .. } = &mut event {
            *took = Duration::from_secs(10);
        }
        for _ in 0..100 {
            budget.apply_event(at_second(0), &event);
        }
        assert_eq!(budget.decide_whether_savings_pay(at_second(1), 100.0), SavingsDecision::Pays);
    }

    proptest! {
        /// What promotions cost is at most their share of what they saved and are expected to save.
        #[test]
        fn the_cost_is_within_the_share(
            steps in proptest::collection::vec((0u64..5_000, 1u32..4, 0.0..2000.0f64, 1u64..8), 1..300),
        ) {
            let mut budget = SavingsBudget::new(SavingsShare::default());
            let (mut now, mut most_s) = (Duration::ZERO, 0.0);
            for (pause_ms, pid, saved_us_per_s, cost_ms) in steps {
                now += MS(pause_ms);
                if budget.decide_whether_savings_pay(now, saved_us_per_s) == SavingsDecision::Pays {
                    let cost = MS(cost_ms);
                    promoted(&mut budget, now, process(pid), saved_us_per_s, cost);
                    budget.charge_promotion_cost(now, process(pid), cost);
                    most_s += saved_us_per_s / 1e6 * 300.0 * 0.25;
                    // One call may cost more than calls do on average.
                    prop_assert!(budget.cpu_time_spent().as_secs_f64() <= most_s + 0.008, "{budget:?}");
                }
            }
        }
    }
}
