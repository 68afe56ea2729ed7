//! Frees what processes gave back of huge pages. It stays allocated until its huge page is split.
//! That costs a program nothing, so it is done before memory is short.

use super::Manager;
use super::recovery::{KEPT_FOR_OTHERS, PlannedSplit};
use crate::machine::Machine;
use hawkeye_policy::{BatchDecision, RecoveryTarget};
use std::time::Duration;

/// Interval of the work.
const EVERY: Duration = Duration::from_secs(1);
/// Time for it at once: about 250 huge pages.
const AT_ONCE: Duration = Duration::from_millis(50);

impl<M: Machine> Manager<M> {
    /// Splits huge pages of which processes gave parts back. While memory is short, recovery itself
    /// does that.
    pub(super) fn free_given_back_parts(&mut self) {
        let begun = self.machine.now();
        let affordable_at = self.limits.cpu.time_when_above_reserve(begun, KEPT_FOR_OTHERS);
        let recovery = &self.recovery;
        let usable_at = recovery.unusable_until.max(recovery.backoff.pause_ends_at());
        let ready_at = recovery.free_parts_at.max(usable_at).max(affordable_at);
        if begun < ready_at || self.memory.guard.is_recovering() {
            return;
        }
        self.recovery.free_parts_at = begun + EVERY;
        let mut called = false;
        let mut now = begun;
        while now < begun + AT_ONCE {
            let Some((target, reason)) = self.recovery.planner.take_next_freed_part(now) else {
                break;
            };
            called = true;
            let RecoveryTarget { process, region, kind, .. } = target;
            let split = PlannedSplit { region, reason, searched_for: Duration::ZERO };
            let decision = self.split_huge_pages(process, kind, vec![split]);
            now = self.machine.now();
            if decision == BatchDecision::StopBatch {
                break;
            }
        }
        if called {
            self.recovery.backoff.end_batch(now);
        }
    }
}
