//! A thread that fills the regions handed to it, one after the other.

use super::calls::FillCalls;
use super::fill::{FillMethod, fill};
use crate::error::{LinuxError, Result};
use crate::processes::process::{ProcessHandle, thread_cpu};
use crate::processes::scheduled::Scheduled;
use crate::stop::bell::Bell;
use hawkeye_policy::fault_ahead::Task;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// A region to fill that was empty a moment ago.
pub(super) struct Job {
    pub(super) task: Task,
    pub(super) handle: Arc<ProcessHandle>,
    pub(super) method: FillMethod,
}

/// The kernel's answer to a job.
pub(super) struct Outcome {
    pub(super) task: Task,
    pub(super) result: Result<()>,
    pub(super) took: Duration,
}

impl Job {
    /// Fills the region on the calling thread. The wait for a process that does not answer is
    /// short.
    pub(super) fn carry_out(self, calls: &mut FillCalls) -> Outcome {
        let begun = Instant::now();
        let result = if self.handle.alive() {
            fill(calls.next(), &self.handle, self.task.region, self.method)
        } else {
            Err(LinuxError::NoSuchProcess(self.handle.id.pid))
        };
        Outcome {
            task: self.task,
            result,
            took: begun.elapsed(),
        }
    }
}

/// One outcome, and the counts of its worker.
pub(super) struct Report {
    /// Which worker.
    pub(super) worker: usize,
    pub(super) outcome: Outcome,
    /// CPU time used so far.
    pub(super) cpu: Duration,
    /// CPU time used by its helpers.
    pub(super) helper_cpu: Duration,
    /// Whether it gets a core when it wants one.
    pub(super) scheduled: Option<Scheduled>,
}

/// What a worker shares with the rest of the pool.
pub(super) struct Line {
    pub(super) worker: usize,
    pub(super) jobs: Receiver<Job>,
    pub(super) reports: Sender<Report>,
    /// Wakes the thread that waits for reports.
    pub(super) bell: Bell,
    /// Once set, jobs handed over before are left undone.
    pub(super) stop: Arc<AtomicBool>,
}

/// Works until the sender of jobs is dropped.
pub(super) fn work(line: Line) {
    // If there can be no helper now, the first job tries again.
    let mut calls = FillCalls::start().unwrap_or_default();
    for job in &line.jobs {
        if line.stop.load(Ordering::Relaxed) {
            return;
        }
        let report = Report {
            worker: line.worker,
            outcome: job.carry_out(&mut calls),
            cpu: thread_cpu(),
            helper_cpu: calls.cpu(),
            scheduled: calls.scheduled(),
        };
        if line.reports.send(report).is_err() {
            return;
        }
        line.bell.ring();
    }
}
