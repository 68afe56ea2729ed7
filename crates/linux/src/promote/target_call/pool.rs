//! Helpers for all targets, and which targets do not answer.

use super::TargetCaller;
use super::message::{Answer, Request};
use crate::error::{LinuxError, Result};
use hawkeye_policy::ProcessId;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the loop waits for one call: what memory does meanwhile must not be missed.
const WAIT: Duration = Duration::from_millis(20);
/// After calls that take longer the manager backs off.
const SLOW: Duration = Duration::from_millis(30);
/// At most that many targets may keep helpers waiting; no call into another process is made beyond.
const MAX_UNANSWERED: usize = 64;
/// Helpers that are kept for the next call.
const MAX_IDLE: usize = 1;

/// Calls into targets, timed and counted. While a target has not answered one, it gets no other.
#[derive(Debug)]
pub struct TargetCalls {
    /// How long one call is waited for.
    wait: Duration,
    pub(super) idle: Vec<TargetCaller>,
    waiting: BTreeMap<ProcessId, Waiting>,
    /// The longest call so far.
    longest: Duration,
    /// The last one.
    last: Duration,
    /// How many took longer than `SLOW`.
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

/// A target that has not answered a call yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered {
    /// Which.
    pub process: ProcessId,
    /// What was tried.
    pub call: &'static str,
    /// For how long.
    pub waited: Duration,
}

/// A call that was answered after the manager had stopped waiting for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedCall {
    /// Of which target.
    pub process: ProcessId,
    /// What was tried.
    pub call: &'static str,
    /// What came of it; `None` if the helper has died.
    pub answer: Option<Answer>,
    /// Since the call was made.
    pub waited: Duration,
}

impl Default for TargetCalls {
    /// Of the loop.
    fn default() -> Self {
        Self::waiting(WAIT)
    }
}

impl TargetCalls {
    /// Waits so long for one call.
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

    /// Has helpers ready before the program has threads.
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
    /// `NotAnswering` if the target does not answer in time (20 ms where the loop waits), or has not answered an earlier call;
    /// else what the kernel says.
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
            // It was killed, by whatever: the next call gets another.
            Err(_) => {
                caller = TargetCaller::start()?;
                caller.send(request)?;
                caller.answer(self.wait)?
            }
        };
        let Some(answer) = answer else {
            let waiting = Waiting {
                caller,
                call,
                since,
            };
            self.waiting.insert(process, waiting);
            return Err(LinuxError::NotAnswering(process.pid));
        };
        self.keep(caller);
        self.count(&answer);
        match answer.result {
            Ok(_) => Ok(answer),
            Err(errno) => Err(LinuxError::Call { call, errno }),
        }
    }

    /// Calls that were answered late, since this was last asked.
    pub fn finished(&mut self) -> Vec<FinishedCall> {
        let mut finished = Vec::new();
        let processes: Vec<ProcessId> = self.waiting.keys().copied().collect();
        for process in processes {
            let Some(waiting) = self.waiting.get_mut(&process) else {
                continue;
            };
            let answer = match waiting.caller.answer(Duration::ZERO) {
                Ok(None) => continue,
                Ok(Some(answer)) => Some(answer),
                Err(_) => None,
            };
            let Some(waiting) = self.waiting.remove(&process) else {
                continue;
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
    pub fn unanswered(&self) -> Vec<Unanswered> {
        let waiting = self.waiting.iter();
        waiting
            .map(|(process, waiting)| Unanswered {
                process: *process,
                call: waiting.call,
                waited: waiting.since.elapsed(),
            })
            .collect()
    }

    /// Whether a target has not answered an earlier call.
    pub fn is_unanswered(&self, process: ProcessId) -> bool {
        self.waiting.contains_key(&process)
    }

    /// Takes note of a call that was made elsewhere.
    pub fn note(&mut self, took: Duration) {
        self.longest = self.longest.max(took);
        self.last = took;
        self.slow += u64::from(took > SLOW);
    }

    /// Runs a call that takes no lock of a target's, and takes note of it.
    pub fn time<T>(&mut self, call: impl FnOnce() -> T) -> (T, Duration) {
        let begun = Instant::now();
        let result = call();
        let took = begun.elapsed();
        self.note(took);
        (result, took)
    }

    /// The longest call so far.
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// The last call.
    pub(crate) fn last(&self) -> Duration {
        self.last
    }

    /// How many calls took longer than 30 ms.
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
