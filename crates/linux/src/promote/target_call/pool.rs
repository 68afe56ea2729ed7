//! Helpers for all targets, and the targets that do not answer.

use super::TargetCaller;
use super::message::{Answer, Request};
use crate::error::{LinuxError, Result};
use hawkeye_manager::NotAnswering;
use hawkeye_policy::ProcessId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time for which the loop waits for one call. A longer wait could miss a change of free memory.
const WAIT: Duration = Duration::from_millis(20);
/// The manager backs off after calls that take longer than this.
const SLOW: Duration = Duration::from_millis(30);
/// Most targets that may keep helpers waiting. Beyond that no call into another process is made.
const MAX_UNANSWERED: usize = 64;
/// Helpers that are kept for the next call.
const MAX_IDLE: usize = 1;

/// Calls into targets, timed and counted. A target with an unanswered call gets no other call.
#[derive(Debug)]
pub struct TargetCalls {
    /// Longest wait for one call.
    wait: Duration,
    pub(super) idle: Vec<TargetCaller>,
    waiting: BTreeMap<ProcessId, Waiting>,
    /// Duration of the longest call so far.
    longest: Duration,
    /// Duration of the last call.
    last: Duration,
    /// Number of calls that took longer than `SLOW`.
    slow: u64,
    /// CPU time of all helpers.
    cpu: Duration,
}

#[derive(Debug)]
struct Waiting {
    caller: TargetCaller,
    call: &'static str,
    since: Instant,
}

/// A call that was answered after the manager had stopped waiting for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedCall {
    /// Target of the call.
    pub process: ProcessId,
    /// Name of the call.
    pub call: &'static str,
    /// Result of the call; `None` if the helper has died.
    pub answer: Option<Answer>,
    /// Time since the call was made.
    pub waited: Duration,
}

impl Default for TargetCalls {
    /// With the loop's time limit.
    fn default() -> Self {
        Self::waiting(WAIT)
    }
}

impl TargetCalls {
    /// Waits at most `wait` for one call.
    pub(crate) fn waiting(wait: Duration) -> Self {
        Self {
            wait,
            idle: Vec::new(),
            waiting: BTreeMap::new(),
            longest: Duration::ZERO,
            last: Duration::ZERO,
            slow: 0,
            cpu: Duration::ZERO,
        }
    }

    /// Starts helpers before the program has threads.
    ///
    /// # Errors
    /// No process can be started.
    pub fn prepare(&mut self) -> Result<()> {
        if self.idle.is_empty() {
            self.idle.push(TargetCaller::start()?);
        }
        Ok(())
    }

    /// Makes a call into a target; `call` names it.
    ///
    /// # Errors
    /// `NotAnswering` if the target does not answer in time (20 ms where the loop waits), or has
    /// not answered an earlier call; otherwise the kernel's error.
    pub fn make(
        &mut self,
        process: ProcessId,
        call: &'static str,
        request: &Request<'_>,
    ) -> Result<Answer> {
        if self.waiting.contains_key(&process) || self.waiting.len() >= MAX_UNANSWERED {
            return Err(LinuxError::NotAnswering(process.pid));
        }
        let mut caller = match self.idle.pop() {
            Some(caller) => caller,
            None => TargetCaller::start()?,
        };
        let since = Instant::now();
        let sent = caller.send(request);
        let answer = match sent.and_then(|()| caller.answer(self.wait)) {
            Ok(answer) => answer,
            // The helper was killed: the next call gets another one.
            Err(_) => {
                caller = TargetCaller::start()?;
                caller.send(request)?;
                caller.answer(self.wait)?
            }
        };
        let Some(answer) = answer else {
            self.waiting.insert(
                process,
                Waiting {
                    caller,
                    call,
                    since,
                },
            );
            return Err(LinuxError::NotAnswering(process.pid));
        };
        self.keep(caller);
        self.count(&answer);
        match answer.result {
            Ok(_) => Ok(answer),
            Err(errno) => Err(LinuxError::call(call)(errno)),
        }
    }

    /// Calls that were answered late since this was last called.
    pub fn finished(&mut self) -> Vec<FinishedCall> {
        let mut finished = Vec::new();
        for (process, mut waiting) in std::mem::take(&mut self.waiting) {
            let answer = match waiting.caller.answer(Duration::ZERO) {
                Ok(None) => {
                    self.waiting.insert(process, waiting);
                    continue;
                }
                answer => answer.ok().flatten(),
            };
            if let Some(answer) = &answer {
                self.keep(waiting.caller);
                self.count(answer);
            }
            finished.push(FinishedCall {
                process,
                call: waiting.call,
                answer,
                waited: waiting.since.elapsed(),
            });
        }
        finished
    }

    /// The helper that made the last call that was answered.
    pub(crate) fn idle_helper(&self) -> Option<u32> {
        self.idle.last().map(TargetCaller::helper)
    }

    /// Targets that have not answered yet.
    pub fn unanswered(&self) -> impl Iterator<Item = NotAnswering> {
        let waiting = self.waiting.iter();
        waiting.map(|(process, waiting)| NotAnswering {
            process: *process,
            call: waiting.call,
            waited: waiting.since.elapsed(),
        })
    }

    /// Whether a target has not answered an earlier call.
    pub fn is_unanswered(&self, process: ProcessId) -> bool {
        self.waiting.contains_key(&process)
    }

    /// Records the duration of a call that was made elsewhere.
    pub fn note(&mut self, took: Duration) {
        self.longest = self.longest.max(took);
        self.last = took;
        self.slow += u64::from(took > SLOW);
    }

    /// Runs and records a call that takes no lock of a target's.
    pub fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = call();
        self.note(begun.elapsed());
        result
    }

    /// Duration of the longest call so far.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Duration of the last call.
    pub(crate) fn last(&self) -> Duration {
        self.last
    }

    /// Number of calls that took longer than 30 ms.
    pub fn slow(&self) -> u64 {
        self.slow
    }

    /// CPU time that the helpers have used.
    pub fn cpu(&self) -> Duration {
        self.cpu
    }

    fn count(&mut self, answer: &Answer) {
        self.note(answer.took);
        self.cpu += answer.cpu;
    }

    fn keep(&mut self, caller: TargetCaller) {
        if self.idle.len() < MAX_IDLE {
            self.idle.push(caller);
        }
    }
}
