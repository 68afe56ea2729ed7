//! Takes memory back from bloated huge pages while there is too little of it.

use super::{BATCH, Manager};
use crate::journal::Event;
use crate::machine::{Machine, MachineError};
use hawkeye_policy::{AfterCall, Reason, ScanTarget};
use std::time::Duration;

impl<M: Machine> Manager<M> {
    /// Scans and splits until the batch's time is up. Returns when to go on, if there is a reason to
    /// before the next look.
    pub(super) fn recover_batch(&mut self) -> Option<Duration> {
        let begun = self.machine.now();
        if !self.recovery_backoff.ready(begun) {
            return Some(self.recovery_backoff.ready_at());
        }
        let mut called = false;
        let more = loop {
            let now = self.machine.now();
            self.cpu.update(now, self.machine.manager_cpu());
            if self.cpu.exhausted(now) {
                break Some(self.cpu.ready_at(now));
            }
            if now >= begun + BATCH {
                break Some(now);
            }
            let guard = &self.guard;
            let covered = |process| {
                guard
                    .recovering()
                    .is_some_and(|recovering| recovering.covers(process))
            };
            let Some(target) = self.planner.next(now, covered) else {
                self.guard.found_nothing_more();
                break None;
            };
            let Some(reason) = self.search(target, now) else {
                continue;
            };
            called = true;
            if self.split(target, reason, now) == AfterCall::StopBatch {
                break Some(now);
            }
        };
        let now = self.machine.now();
        if called {
            self.recovery_backoff.end_batch(now);
            // What was freed shows at once: stop as soon as it is enough.
            self.assess_memory(now);
        }
        let ready = self.recovery_backoff.ready_at();
        more.map(|at| if called { at.max(ready) } else { at })
    }

    /// Looks for zero pages in a huge page; the reason to split it, if there is one.
    fn search(&mut self, target: ScanTarget, now: Duration) -> Option<Reason> {
        let ScanTarget {
            process, region, ..
        } = target;
        let used_percent = self.guard.recovering()?.used_percent(process)?;
        let enough = self.planner.threshold().zero_pages();
        match self.machine.scan_zeros(process, region, enough) {
            Ok(scan) => {
                self.journal.note_scan();
                self.planner.judge(scan.zero_pages, used_percent)
            }
            Err(error) => {
                self.trouble(now, &error);
                None
            }
        }
    }

    fn split(&mut self, target: ScanTarget, reason: Reason, now: Duration) -> AfterCall {
        let ScanTarget {
            process, region, ..
        } = target;
        match self.machine.recover(process, region) {
            Ok(done) => {
                self.planner.note_split(process, region);
                self.recovered.note_split(process, region);
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
            Err(error @ MachineError::Other(_)) => {
                // Recovery as such does not work: don't try it on every page of the machine.
                self.trouble(now, &error);
                AfterCall::StopBatch
            }
            Err(error) => {
                self.trouble(now, &error);
                AfterCall::Continue
            }
        }
    }
}
