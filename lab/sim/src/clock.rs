//! Time goes on: processes arrive, run and end, and what is scheduled happens.

use crate::machine::SimMachine;
use crate::process::{End, Life, SimProcess};
use hawkeye_policy::BASE_PAGE_BYTES;
use std::time::Duration;

/// A fraction of an access that rounding may leave undone.
const ROUNDING: f64 = 0.5;

impl SimMachine {
    /// Lets all processes run until `target`, or, if so asked, until all have ended.
    pub(crate) fn advance_to(&mut self, target: Duration, stop_when_over: bool) {
        loop {
            self.happen();
            if self.now >= target || (stop_when_over && self.is_over()) {
                return;
            }
            let next = target.min(self.next_event());
            let elapsed_ns = next.saturating_sub(self.now).as_nanos() as f64;
            for process in self.processes.iter_mut().filter(|p| p.is_alive()) {
                process.run(elapsed_ns, &self.spec.costs);
            }
            self.now = next;
        }
    }

    /// Whether no process is there or to come.
    pub(crate) fn is_over(&self) -> bool {
        self.processes.iter().all(|p| p.ended().is_some())
    }

    /// A call that takes the manager `cpu` and waits for `waiting` besides.
    pub(crate) fn spend(&mut self, cpu: Duration, waiting: Duration) {
        self.manager_cpu += cpu;
        self.advance_to(self.now + cpu + waiting, false);
    }

    /// Does all that is due.
    fn happen(&mut self) {
        self.end_and_arrive();
        while let Some(due) = self.scheduled.first_entry() {
            if *due.key() > self.now {
                break;
            }
            for change in due.remove() {
                self.apply(change);
            }
        }
    }

    fn end_and_arrive(&mut self) {
        let now = self.now;
        for process in self.processes.iter_mut().filter(|p| p.is_alive()) {
            if process.is_done(now) {
                process.end(now, End::Exited);
            }
        }
        for index in 0..self.processes.len() {
            let Some(process) = self.processes.get(index) else {
                continue;
            };
            if process.life != Life::ToCome || process.arrives > now {
                continue;
            }
            let needed_bytes = process.first_pages() * BASE_PAGE_BYTES;
            let fits = needed_bytes <= self.room(process.group.as_deref());
            if let Some(process) = self.processes.get_mut(index) {
                if fits {
                    process.arrive();
                } else {
                    process.end(now, End::OutOfMemory);
                }
            }
        }
    }

    /// When something happens next; [`Duration::MAX`] if nothing ever does. Later than now.
    fn next_event(&self) -> Duration {
        let scheduled = self.scheduled.keys().next().copied();
        let processes = self.processes.iter().filter_map(|p| match p.life {
            Life::ToCome => Some(p.arrives),
            Life::Alive => p.ends_at(self),
            Life::Ended(_) => None,
        });
        let next = processes.chain(scheduled).min().unwrap_or(Duration::MAX);
        next.max(self.now + Duration::from_nanos(1))
    }
}

impl SimProcess {
    fn is_done(&self, now: Duration) -> bool {
        let work = self.ends.after_accesses;
        work.is_some_and(|work| self.accesses + ROUNDING >= work as f64)
            || self.ends.at.is_some_and(|at| now >= at)
    }

    /// When it ends if nothing changes.
    fn ends_at(&self, machine: &SimMachine) -> Option<Duration> {
        let work = self.ends.after_accesses;
        let worked = work.and_then(|work| {
            let left = (work as f64 - self.accesses).max(0.0);
            let ns = self.time_for(left, &machine.spec.costs)?;
            // Beyond all time a cast saturates.
            Some(
                machine
                    .now
                    .saturating_add(Duration::from_nanos(ns.ceil() as u64)),
            )
        });
        worked.into_iter().chain(self.ends.at).min()
    }
}
