//! Frees what processes gave back of huge pages. It stays allocated until its huge page is split.
//! That costs a program nothing, so it is done before memory is short.

use super::Manager;
use crate::machine::Machine;
use hawkeye_policy::BatchDecision;
use std::time::Duration;

/// Interval of the work.
const EVERY: Duration = Duration::from_secs(1);
/// Time for it at once: about 250 huge pages.
const AT_ONCE: Duration = Duration::from_millis(50);
/// Share of the CPU budget that it leaves to other work.
const KEPT_FOR_OTHERS: f64 = 0.5;

impl<M: Machine> Manager<M> {
    /// Splits huge pages of which processes gave parts back. While memory is short, recovery itself
    /// does that.
    pub(super) fn free_given_back_parts(&mut self) {
        let begun = self.machine.now();
        let affordable_at = self.limits.cpu.time_when_above_reserve(begun, KEPT_FOR_OTHERS);
        let recovery = &self.recovery;
        let ready_at = recovery.free_parts_at.max(recovery.unusable_until).max(affordable_at);
        if begun < ready_at || self.memory.guard.is_recovering() {
            return;
        }
        self.recovery.free_parts_at = begun + EVERY;
        loop {
            let now = self.machine.now();
            if now >= begun + AT_ONCE {
                return;
            }
            let Some((target, reason)) = self.recovery.planner.take_next_freed_part(now) else {
                return;
            };
            let decision = self.split_huge_page(target, reason, Duration::ZERO, now);
            if decision == BatchDecision::StopBatch {
                return;
            }
        }
    }
}
