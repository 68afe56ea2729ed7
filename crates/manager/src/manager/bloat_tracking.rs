//! Searches huge pages for unused memory in advance, so that recovery knows where most of it is.

use super::Manager;
use super::recovery::KEPT_FOR_OTHERS;
use crate::machine::{Machine, ZeroScanResult};
use hawkeye_policy::{BatchDecision, Event};
use std::time::Duration;

/// Interval of the searches.
const EVERY: Duration = Duration::from_secs(1);
/// Share of the CPU budget for them: with 2 % of a core, 2 ms a second, or about 60 MiB.
const SHARE: f64 = 0.1;

impl<M: Machine> Manager<M> {
    /// Searches the next huge pages. While memory is short, recovery itself searches.
    pub(super) fn track_bloat(&mut self) {
        let begun = self.machine.now();
        let left_at = self.limits.cpu.time_when_above_reserve(begun, KEPT_FOR_OTHERS);
        if begun < self.recovery.track_at || left_at > begun || self.memory.guard.is_recovering() {
            return;
        }
        let before = self.machine.management_costs().cpu;
        let percent = self.limits.cpu.limit_percent_of_core();
        let budget = EVERY.mul_f64(percent / 100.0 * SHARE);
        self.recovery.track_at = begun + EVERY;
        loop {
            let now = self.machine.now();
            let spent = self.machine.management_costs().cpu.saturating_sub(before);
            if spent >= budget || now >= begun + budget {
                return;
            }
            let Self { recovery, sampling, machine, .. } = self;
            let idle_since = |process| sampling.idle.idle_since(process, machine.cpu_time(process));
            let next = recovery.planner.next_huge_page_to_track(now, idle_since);
            let Some((process, region)) = next else { return };
            let all = self.recovery.planner.pages_to_count(false);
            match self.machine.count_zero_pages_in_huge_page(process, region, all) {
                Ok(ZeroScanResult { zero_pages, .. }) => {
                    self.dispatch_event(now, Event::Searched { process, region, zero_pages });
                }
                Err(error) => {
                    if self.record_recovery_error(now, &error) == BatchDecision::StopBatch {
                        return;
                    }
                }
            }
        }
    }
}
