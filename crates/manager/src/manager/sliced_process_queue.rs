//! Work on one process after the other, in slices, so that memory use is read in between.

use crate::machine::{CallResult, Machine, ResumableCallResult, SliceProgress};
use hawkeye_policy::ProcessId;
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

#[derive(Debug)]
pub(super) struct SlicedProcessQueue {
    rest: VecDeque<ProcessId>,
    pub(super) again_at: Duration,
}

impl SlicedProcessQueue {
    pub(super) fn new(processes: impl IntoIterator<Item = ProcessId>, now: Duration) -> Self {
        Self { rest: processes.into_iter().collect(), again_at: now }
    }

    /// These processes are next, in this order.
    pub(super) fn put_first(&mut self, processes: impl IntoIterator<Item = ProcessId>) {
        let mut order: Vec<ProcessId> = processes.into_iter().collect();
        if order.is_empty() {
            return;
        }
        let first: HashSet<ProcessId> = order.iter().copied().collect();
        order.extend(self.rest.drain(..).filter(|process| !first.contains(process)));
        self.rest = order.into();
    }

    pub(super) fn is_done(&self) -> bool {
        self.rest.is_empty()
    }

    /// `None` when all are done or the slice is over.
    pub(super) fn run_next<M: Machine, T>(
        &mut self,
        machine: &mut M,
        now: Duration,
        until: Duration,
        work: impl FnOnce(&mut M, ProcessId) -> ResumableCallResult<T>,
    ) -> Option<(ProcessId, CallResult<T>)> {
        let process = *self.rest.front()?;
        if machine.now() >= until {
            self.again_at = now;
            return None;
        }
        let outcome = match work(machine, process) {
            Ok(SliceProgress::Unfinished(wait)) => {
                self.again_at = machine.now() + wait;
                return None;
            }
            Ok(SliceProgress::Done(done)) => Ok(done),
            Err(error) => Err(error),
        };
        self.rest.pop_front();
        Some((process, outcome))
    }
}
