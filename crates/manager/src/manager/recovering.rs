//! Takes memory back from bloated huge pages while there is too little of it.

use super::{BATCH, Manager};
use crate::machine::{Machine, MachineError, Progress};
use hawkeye_policy::{
    AfterCall, Backoff, BackoffSettings, Event, Observation, ProcessId, ProcessSample, Reason,
    RecoveryPlanner, RecoverySettings, ScanTarget,
};
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// The next listing may come so soon after the last.
const RELIST: Duration = Duration::from_millis(10);

/// What is known of huge pages to be searched, and how fast that goes.
pub(super) struct Recovering {
    pub(super) planner: RecoveryPlanner,
    backoff: Backoff,
    /// A listing of huge pages that is under way.
    listing: Option<Listing>,
}

/// Processes whose huge pages are still to be listed.
struct Listing {
    rest: VecDeque<ProcessId>,
    again_at: Duration,
}

impl Recovering {
    pub(super) fn new(settings: RecoverySettings) -> Self {
        Self {
            planner: RecoveryPlanner::new(settings),
            backoff: Backoff::new(BackoffSettings::default()),
            listing: None,
        }
    }

    /// Whether huge pages are being listed.
    pub(super) fn is_listing(&self) -> bool {
        self.listing.is_some()
    }

    /// Takes in one round of samples.
    pub(super) fn observe(&mut self, observation: &Observation) {
        self.planner.observe(observation);
        for sample in &observation.processes {
            let percent = sample.overhead.map(|overhead| overhead.percent);
            self.planner.set_overhead(sample.process, percent);
        }
    }
}

impl<M: Machine> Manager<M> {
    /// Scans and splits until the batch's time is up or it is enough. Returns when to go on, if there
    /// is a reason to before the next look.
    pub(super) fn recover_batch(&mut self) -> Option<Duration> {
        let begun = self.machine.now();
        if !self.memory.guard().is_recovering() {
            return None;
        }
        // A program that would be killed meanwhile waits for neither the pause nor the budget.
        if !self.recovering.backoff.ready(begun) && !self.memory.guard().in_danger() {
            return Some(self.recovering.backoff.ready_at());
        }
        let mut called = false;
        let more = loop {
            let now = self.machine.now();
            self.cpu.update(now, self.machine.own_costs().cpu);
            if self.cpu.exhausted(now) && !self.memory.guard().in_danger() {
                break Some(self.cpu.ready_at(now));
            }
            if !self.memory.guard().is_recovering() {
                break None;
            }
            if now >= begun + BATCH {
                break Some(now);
            }
            let guard = self.memory.guard();
            let short = |process| guard.shortage(process).is_some();
            let Some(target) = self.recovering.planner.next(now, short) else {
                self.memory.guard_mut().found_nothing_more(now);
                // Whose huge pages have to be listed first is searched when they are.
                break self.memory.guard().is_recovering().then_some(now + RELIST);
            };
            called = true;
            if self.take_back(target, now) == AfterCall::StopBatch {
                break Some(now);
            }
        };
        if called {
            let now = self.machine.now();
            self.recovering.backoff.end_batch(now);
        }
        if self.memory.guard().in_danger() {
            return more;
        }
        more.map(|at| at.max(self.recovering.backoff.ready_at()))
    }

    /// Searches one huge page and splits it if that is worth it; says whether the batch may go on.
    fn take_back(&mut self, target: ScanTarget, now: Duration) -> AfterCall {
        let ScanTarget {
            process, region, ..
        } = target;
        let Some(shortage) = self.memory.guard().shortage(process) else {
            return AfterCall::Continue;
        };
        let enough = self.recovering.planner.threshold().zero_pages();
        let scan = match self.machine.scan_zeros(process, region, enough) {
            Ok(scan) => scan,
            Err(error) => return self.recovery_trouble(now, &error),
        };
        let event = Event::Searched {
            process,
            region,
            zero_pages: scan.zero_pages,
        };
        self.tell(now, event);
        match self.recovering.planner.judge(scan.zero_pages, shortage) {
            Some(reason) => self.split(target, reason, scan.took, now),
            None => self.recovering.backoff.after_call(scan.took),
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
                let event = Event::Recovered {
                    process,
                    region,
                    reason,
                    bytes: done.bytes,
                    took: done.took,
                    searched_for: searched,
                };
                self.tell(now, event);
                self.recovering.backoff.after_call(done.longest_call)
            }
            Err(error) => {
                if matches!(error, MachineError::Refused { .. }) {
                    self.tell(now, Event::NotSplit { process, region });
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

    /// Recovery needs to know where the huge pages are, also where the policy wants to know nothing
    /// or its next window is far away.
    pub(super) fn list_for_recovery(&mut self, now: Duration) {
        if self.settings.measure_only {
            return;
        }
        let wait = self.cpu.exhausted(now) && !self.memory.guard().in_danger();
        if self.sampling.in_window() || wait {
            return;
        }
        if self.recovering.listing.is_none() {
            let listed = self.memory.guard_mut().begin_listing(now, &self.processes);
            if listed.is_empty() {
                return;
            }
            let wanted = self.processes.iter().filter(|p| listed.contains(p));
            self.recovering.listing = Some(Listing {
                rest: wanted.copied().collect(),
                again_at: now,
            });
        }
        self.go_on_listing(now);
    }

    /// Lists some more; what was found is known to recovery at once.
    fn go_on_listing(&mut self, now: Duration) {
        let Some(mut listing) = self
            .recovering
            .listing
            .take_if(|listing| listing.again_at <= now)
        else {
            return;
        };
        let until = self.slice_end();
        let mut observation = Observation {
            at: now,
            ..Observation::default()
        };
        let mut read = HashSet::new();
        while let Some(&process) = listing.rest.front() {
            if self.machine.now() >= until {
                listing.again_at = now;
                break;
            }
            match self.machine.huge_pages(process, until) {
                Ok(Progress::Unfinished { again_at }) => {
                    listing.again_at = again_at;
                    break;
                }
                Ok(Progress::Done(regions)) => {
                    read.insert(process);
                    let sample = ProcessSample::population(process, regions);
                    observation.processes.push(sample);
                }
                Err(error) => {
                    if matches!(error, MachineError::Gone(_)) {
                        read.insert(process);
                    }
                    self.trouble(now, &error);
                }
            }
            listing.rest.pop_front();
        }
        let others = self.processes.iter().filter(|p| !read.contains(p));
        observation.unread.extend(others);
        self.recovering.planner.observe(&observation);
        if !listing.rest.is_empty() {
            self.recovering.listing = Some(listing);
        }
    }
}
