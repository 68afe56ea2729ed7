//! What sampling costs each program, and what it may cost.

use hawkeye_policy::{ProcessId, ProcessSample, SamplingCostLimits, SamplingSlowdownBudget};
use std::collections::HashMap;
use std::time::Duration;

/// Budgets by program. A program that has used its budget misses windows; the others do not wait.
pub(super) struct SamplingSlowdownBudgets {
    pace: SamplingCostLimits,
    budgets: HashMap<ProcessId, SamplingSlowdownBudget>,
}

impl SamplingSlowdownBudgets {
    /// Budgets from which nothing has been drawn yet.
    pub(super) fn new(pace: SamplingCostLimits) -> Self {
        Self { pace, budgets: HashMap::new() }
    }

    /// Takes in the touches of these processes since their bits were last cleared, each first touch
    /// at a cost of `each`.
    pub(super) fn record_touches(
        &mut self,
        now: Duration,
        samples: &[ProcessSample],
        each: Duration,
    ) {
        for sample in samples {
            let budget = self.get_or_create_budget(sample.process);
            budget.record_touches(now, sample.first_touches, each, sample.cpu_cores);
        }
    }

    pub(super) fn record_clear(&mut self, process: ProcessId) {
        self.get_or_create_budget(process).restart_touch_count();
    }

    /// When a process's bits may be cleared again, not before `now`.
    pub(super) fn may_clear_again_at(&self, now: Duration, process: ProcessId) -> Duration {
        self.budgets.get(&process).map_or(now, |budget| budget.may_clear_again_at(now))
    }

    pub(super) fn retain_processes(&mut self, processes: &[ProcessId]) {
        self.budgets.retain(|process, _| processes.contains(process));
    }

    fn get_or_create_budget(&mut self, process: ProcessId) -> &mut SamplingSlowdownBudget {
        self.budgets.entry(process).or_insert_with(|| SamplingSlowdownBudget::new(self.pace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_waits_for_its_own_touches_and_ended_ones_are_dropped() {
        let [small, large] = [1, 2].map(hawkeye_test_support::event_constructors::process_with_pid);
        let mut slowdowns = SamplingSlowdownBudgets::new(SamplingCostLimits::default());
        let now = Duration::from_secs(1);
        let touched = |process, first_touches| ProcessSample {
            first_touches,
            ..ProcessSample::from_present_pages(process, Vec::new())
        };
        for process in [small, large] {
            slowdowns.record_clear(process);
        }
        let samples = [touched(small, 1_000), touched(large, 1_000_000)];
        slowdowns.record_touches(now, &samples, Duration::from_nanos(500));
        assert_eq!(slowdowns.may_clear_again_at(now, small), now);
        // Half a second of its time is 1 % of 50 s.
        let wait = slowdowns.may_clear_again_at(now, large).saturating_sub(now);
        assert!((wait.as_secs_f64() - 50.0).abs() < 1e-6, "{wait:?}");
        slowdowns.retain_processes(&[small]);
        assert_eq!(slowdowns.may_clear_again_at(now, large), now);
    }
}
