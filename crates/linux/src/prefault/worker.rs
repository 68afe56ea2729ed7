//! A thread that fills the regions handed to it, one after the other.

use super::prefault_calls::PrefaultCalls;
use super::prefault_method::{PrefaultMethod, prefault_region};
use crate::error::{LinuxError, Result};
use crate::processes::process::{ProcessHandle, thread_cpu};
use crate::processes::schedstat::SchedStat;
use crate::stop::Waker;
use hawkeye_policy::prefault::PrefaultTask;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::{Duration, Instant};

/// A region to fill that was empty a moment ago.
pub(super) struct PrefaultJob {
    pub(super) task: PrefaultTask,
    pub(super) handle: Arc<ProcessHandle>,
    pub(super) method: PrefaultMethod,
}

pub(super) struct PrefaultOutcome {
    pub(super) task: PrefaultTask,
    pub(super) result: Result<()>,
    pub(super) took: Duration,
}

impl PrefaultJob {
    /// Fills the region on the calling thread. Waits briefly for a process that does not answer.
    pub(super) fn run(self, calls: &mut PrefaultCalls) -> PrefaultOutcome {
        let begun = Instant::now();
        let result = if self.handle.is_alive() {
            prefault_region(
                calls.next_call(),
                &self.handle,
                self.task.region,
                self.method,
            )
        } else {
            Err(LinuxError::NoSuchProcess(self.handle.id.pid))
        };
        PrefaultOutcome {
            task: self.task,
            result,
            took: begun.elapsed(),
        }
    }
}

pub(super) struct WorkerReport {
    pub(super) worker: usize,
    pub(super) outcome: PrefaultOutcome,
    /// CPU time used so far.
    pub(super) cpu: Duration,
    /// CPU time used by its helpers.
    pub(super) helper_cpu: Duration,
    /// Whether it gets a core when it wants one.
    pub(super) scheduled: Option<SchedStat>,
}

pub(super) struct WorkerChannels {
    pub(super) worker: usize,
    pub(super) jobs: Receiver<PrefaultJob>,
    pub(super) reports: Sender<WorkerReport>,
    /// Wakes the thread that waits for reports.
    pub(super) waker: Waker,
    /// Once set, jobs handed over before are left undone.
    pub(super) stop: Arc<AtomicBool>,
}

/// Works until the sender of jobs is dropped.
pub(super) fn run_worker(line: WorkerChannels) {
    // If there can be no helper now, the first job tries again.
    let mut calls = PrefaultCalls::start().unwrap_or_default();
    for job in &line.jobs {
        if line.stop.load(Ordering::Relaxed) {
            return;
        }
        let report = WorkerReport {
            worker: line.worker,
            outcome: job.run(&mut calls),
            cpu: thread_cpu(),
            helper_cpu: calls.helper_cpu_time(),
            scheduled: calls.scheduled(),
        };
        if line.reports.send(report).is_err() {
            return;
        }
        line.waker.wake();
    }
}
