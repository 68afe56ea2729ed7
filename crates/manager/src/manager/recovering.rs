//! Takes memory back from bloated huge pages while there is too little of it.

use super::{BATCH, Manager};
use crate::journal::Event;
use crate::machine::{Machine, MachineError};
use hawkeye_policy::{AfterCall, Reason, ScanTarget};
use std::time::Duration;

/// The next listing may come so soon after the last.
const RELIST: Duration = Duration::from_millis(10);

impl<M: Machine> Manager<M> {
    /// Scans and splits until the batch's time is up or it is enough. Returns when to go on, if there
    /// is a reason to before the next look.
    pub(super) fn recover_batch(&mut self) -> Option<Duration> {
        let begun = self.machine.now();
        if !self.guard.is_recovering() {
            return None;
        }
        // A program that would be killed meanwhile waits for neither the pause nor the budget.
        if !self.recovery_backoff.ready(begun) && !self.guard.in_danger() {
            return Some(self.recovery_backoff.ready_at());
        }
        let mut called = false;
        let more = loop {
            let now = self.machine.now();
            self.cpu.update(now, self.machine.own_costs().cpu);
            if self.cpu.exhausted(now) && !self.guard.in_danger() {
                break Some(self.cpu.ready_at(now));
            }
            if !self.guard.is_recovering() {
                break None;
            }
            if now >= begun + BATCH {
                break Some(now);
            }
            let guard = &self.guard;
            let short = |process| guard.shortage(process).is_some();
            let Some(target) = self.planner.next(now, short) else {
                self.guard.found_nothing_more(now);
                // Whose huge pages have to be listed first is searched when they are.
                break self.guard.is_recovering().then_some(now + RELIST);
            };
            called = true;
            if self.take_back(target, now) == AfterCall::StopBatch {
                break Some(now);
            }
        };
        if called {
            let now = self.machine.now();
            self.recovery_backoff.end_batch(now);
        }
        if self.guard.in_danger() {
            return more;
        }
        more.map(|at| at.max(self.recovery_backoff.ready_at()))
    }

    /// Searches one huge page and splits it if that is worth it; says whether the batch may go on.
    fn take_back(&mut self, target: ScanTarget, now: Duration) -> AfterCall {
        let ScanTarget {
            process, region, ..
        } = target;
        let Some(shortage) = self.guard.shortage(process) else {
            return AfterCall::Continue;
        };
        let enough = self.planner.threshold().zero_pages();
        let scan = match self.machine.scan_zeros(process, region, enough) {
            Ok(scan) => scan,
            Err(error) => return self.recovery_trouble(now, &error),
        };
        self.journal.note_scan();
        self.viewing.note_empty(process, region, scan.zero_pages);
        match self.planner.judge(scan.zero_pages, shortage) {
            Some(reason) => self.split(target, reason, scan.took, now),
            None => self.recovery_backoff.after_call(scan.took),
        }
    }

    fn split(
        &mut self,
        target: ScanTarget,
        reason: Reason,
        searched: Duration,
        now: Duration,
    ) -> AfterCall {
        let ScanTarget {
            process, region, ..
        } = target;
        match self.machine.recover(process, region) {
            Ok(done) => {
                self.planner.note_split(process, region);
                self.recovered.note_split(process, region);
                self.viewing.note_split(process, region);
                self.huge_limits.note_split(process);
                self.account(process, -(done.bytes as i64));
                self.guard.note_recovered(done.bytes, searched + done.took);
                let event = Event::Recovered {
                    process,
                    region,
                    reason,
                    bytes: done.bytes,
                    took: done.took,
                };
                self.journal.note(now, event);
                self.recovery_backoff.after_call(done.longest_call)
            }
            Err(error) => {
                if matches!(error, MachineError::Refused { .. }) {
                    // Who holds on to it lets go soon: it does not rest like one that is not worth it, but waits to be listed again.
                    self.planner.note_split(process, region);
                }
                self.recovery_trouble(now, &error)
            }
        }
    }

    fn recovery_trouble(&mut self, now: Duration, error: &MachineError) -> AfterCall {
        self.trouble(now, error);
        match error {
            // Recovery as such does not work: don't try it on every page of the machine.
            MachineError::PageSize(_) | MachineError::Other(_) => AfterCall::StopBatch,
            MachineError::Gone(_)
            | MachineError::NotAnswering(_)
            | MachineError::Refused { .. } => AfterCall::Continue,
        }
    }
}
