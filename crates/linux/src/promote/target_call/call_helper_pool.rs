//! Helpers for all targets, and the targets that do not answer.

use super::CallHelper;
use super::helper_messages::{CallResult, LISTING_MAPPINGS, TargetRequest};
use crate::error::{LinuxError, Result};
use crate::processes::process::effective_uid;
use hawkeye_manager::UnresponsiveProcess;
use hawkeye_policy::{ProcessId, TokenBucket};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time for which the loop waits for one call. A longer wait could miss a change of free memory.
/// Tests wait longer, because a helper may get no core for that long on a busy machine.
const WAIT: Duration = Duration::from_millis(if cfg!(test) { 3_000 } else { 20 });
/// Time from a call in which work that can wait pauses for its answer.
const PATIENCE: Duration = Duration::from_millis(500);
/// Time from a call in which a listing of mappings is of use.
const LISTING_LIFETIME: Duration = Duration::from_secs(1);
/// One pause of such work.
pub(crate) const PAUSE_FOR_LATE_CALL: Duration = Duration::from_millis(5);
/// Most pauses of all work together, per second: a tenth of the time. Targets may be slow on
/// purpose.
const MOST_PAUSES_PER_S: f64 = 20.0;
/// Time after which the loop ends a series of calls into one target, even if each was answered.
pub(crate) const SERIES_TIME: Duration = Duration::from_millis(50);
/// The manager backs off after calls that take longer than this.
const SLOW: Duration = Duration::from_millis(30);
/// Most targets that may keep helpers waiting. Beyond that no call into another process is made.
const MAX_UNANSWERED: usize = 64;
/// Most of them that may belong to one user. Beyond that no call into another of that user's
/// processes is made: others must still be served if one user keeps helpers waiting on purpose.
const MAX_UNANSWERED_OF_USER: usize = MAX_UNANSWERED / 2;
/// Helpers that are kept for the next call.
const MAX_IDLE: usize = 1;

/// Calls into targets, timed and counted. A target with an unanswered call gets no other call.
#[derive(Debug)]
pub struct CallHelperPool {
    pub(super) wait: Duration,
    pub(super) idle: Vec<CallHelper>,
    waiting: BTreeMap<ProcessId, UnansweredCall>,
    /// Listings of mappings that came late, and when they were asked for.
    late_listings: BTreeMap<ProcessId, (Instant, CallResult)>,
    /// Pauses that may still be made.
    pauses: TokenBucket,
    began: Instant,
    pub(crate) statistics: CallTimingStatistics,
    /// The longest call since [`Self::take_longest_call`].
    longest_recent: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CallTimingStatistics {
    pub(crate) longest: Duration,
    pub(crate) last: Duration,
    /// Number of calls that took longer than `SLOW`.
    pub(crate) slow: u64,
    /// CPU time that the helpers have used.
    pub(crate) helper_cpu: Duration,
}

#[derive(Debug)]
struct UnansweredCall {
    caller: CallHelper,
    call: &'static str,
    since: Instant,
    /// Of the target; `None` if it has ended.
    user: Option<u32>,
}

/// A call that was answered after the manager had stopped waiting for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LateCall {
    /// Target of the call.
    pub process: ProcessId,
    /// Name of the call.
    pub call: &'static str,
    /// Result of the call; `None` if the helper has died.
    pub answer: Option<CallResult>,
    /// Time since the call was made.
    pub waited: Duration,
}

impl Default for CallHelperPool {
    /// With the loop's time limit.
    fn default() -> Self {
        Self::with_time_limit(WAIT)
    }
}

impl CallHelperPool {
    /// A pool that waits this long for each call.
    pub fn with_time_limit(wait: Duration) -> Self {
        let statistics = CallTimingStatistics::default();
        Self {
            wait,
            idle: Vec::new(),
            waiting: BTreeMap::new(),
            late_listings: BTreeMap::new(),
            pauses: TokenBucket::new_full(MOST_PAUSES_PER_S, 10.0 * MOST_PAUSES_PER_S),
            began: Instant::now(),
            statistics,
            longest_recent: Duration::ZERO,
        }
    }

    /// Starts helpers before the program has threads.
    pub fn start_idle_helper(&mut self) -> Result<()> {
        if self.idle.is_empty() {
            self.idle.push(CallHelper::start()?);
        }
        Ok(())
    }

    /// Makes a call into a target.
    ///
    /// # Errors
    /// `NotAnswering` if the target does not answer in time (20 ms where the loop waits), or has
    /// not answered an earlier call. `HelperFailed` if no helper could make the call. Otherwise the
    /// kernel's error.
    pub fn call_target(
        &mut self,
        process: ProcessId,
        request: &TargetRequest<'_>,
    ) -> Result<CallResult> {
        if self.waiting.contains_key(&process) || !self.may_wait_for(process) {
            return Err(LinuxError::NotAnswering(process.pid));
        }
        let mut caller = match self.idle.pop() {
            Some(caller) => caller,
            None => CallHelper::start()?,
        };
        let since = Instant::now();
        let sent = caller.send_request(request);
        let answer = match sent.and_then(|()| caller.wait_for_result(self.wait)) {
            Ok(answer) => answer,
            // The helper was killed: the next call gets another one.
            Err(_) => {
                caller = CallHelper::start()?;
                caller.send_request(request)?;
                caller.wait_for_result(self.wait)?
            }
        };
        let Some(answer) = answer else {
            let user = effective_uid(process.pid);
            let call = request.call;
            self.waiting.insert(process, UnansweredCall { caller, call, since, user });
            self.longest_recent = self.longest_recent.max(self.wait);
            return Err(LinuxError::NotAnswering(process.pid));
        };
        self.return_helper_to_pool(caller);
        self.record_call_statistics(&answer);
        match answer.result {
            Ok(_) => Ok(answer),
            Err(errno) => Err(LinuxError::wrap_errno(request.call)(errno)),
        }
    }

    /// Whether a helper may be kept waiting by one more target, this one.
    fn may_wait_for(&self, process: ProcessId) -> bool {
        if self.waiting.len() < MAX_UNANSWERED_OF_USER {
            return true;
        }
        let user = effective_uid(process.pid);
        let of_user = self.waiting.values().filter(|waiting| waiting.user == user).count();
        self.waiting.len() < MAX_UNANSWERED && of_user < MAX_UNANSWERED_OF_USER
    }

    /// Calls that were answered late since this was last called.
    pub fn take_late_calls(&mut self) -> Vec<LateCall> {
        let mut finished = Vec::new();
        self.late_listings.retain(|_, (since, _)| since.elapsed() < LISTING_LIFETIME);
        for (process, mut waiting) in std::mem::take(&mut self.waiting) {
            let answer = match waiting.caller.wait_for_result(Duration::ZERO) {
                Ok(None) => {
                    self.waiting.insert(process, waiting);
                    continue;
                }
                answer => answer.ok().flatten(),
            };
            if let Some(answer) = &answer {
                self.return_helper_to_pool(waiting.caller);
                self.record_call_statistics(answer);
            }
            let (call, waited) = (waiting.call, waiting.since.elapsed());
            if let Some(listing) = answer.as_ref().filter(|_| call == LISTING_MAPPINGS) {
                self.late_listings.insert(process, (waiting.since, listing.clone()));
            }
            finished.push(LateCall { process, call, answer, waited });
        }
        finished
    }

    /// The helper that made the last call that was answered.
    pub(crate) fn idle_helper_pid(&self) -> Option<u32> {
        self.idle.last().map(|idle| idle.helper.as_raw().unsigned_abs())
    }

    /// Targets that have not answered yet.
    pub fn unresponsive_processes(&self) -> impl Iterator<Item = UnresponsiveProcess> {
        let waiting = self.waiting.iter();
        waiting.map(|(process, waiting)| UnresponsiveProcess {
            process: *process,
            call: waiting.call,
            waited: waiting.since.elapsed(),
        })
    }

    /// Whether work that met a call without an answer is to pause for [`PAUSE_FOR_LATE_CALL`], and
    /// then to ask again.
    pub(crate) fn take_pause_for_late_call(&mut self, process: ProcessId, now: Instant) -> bool {
        let since = |at| now.saturating_duration_since(at);
        self.waiting.get(&process).is_some_and(|waiting| since(waiting.since) < PATIENCE)
            && self.pauses.try_take_tokens(since(self.began), 1)
    }

    /// A listing of a process's mappings that came late, if it is still of use.
    pub(super) fn take_late_listing(&mut self, process: ProcessId) -> Option<CallResult> {
        let (since, listing) = self.late_listings.remove(&process)?;
        (since.elapsed() < LISTING_LIFETIME).then_some(listing)
    }

    /// Whether a target has not answered an earlier call.
    pub fn has_unanswered_call(&self, process: ProcessId) -> bool {
        self.waiting.contains_key(&process)
    }

    /// The longest call since this was last called. One that was not answered counts as long as it
    /// was waited for.
    pub(crate) fn take_longest_call(&mut self) -> Duration {
        std::mem::take(&mut self.longest_recent)
    }

    /// Records the duration of a call that was made elsewhere.
    pub fn record_call_duration(&mut self, took: Duration) {
        self.statistics.longest = self.statistics.longest.max(took);
        self.longest_recent = self.longest_recent.max(took);
        self.statistics.last = took;
        self.statistics.slow += u64::from(took > SLOW);
    }

    /// Runs and records a call that takes no lock of a target's.
    pub fn run_and_record_own_call<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = call();
        self.record_call_duration(begun.elapsed());
        result
    }

    fn record_call_statistics(&mut self, answer: &CallResult) {
        self.record_call_duration(answer.took);
        self.statistics.helper_cpu += answer.cpu;
    }

    fn return_helper_to_pool(&mut self, caller: CallHelper) {
        if self.idle.len() < MAX_IDLE {
            self.idle.push(caller);
        }
    }
}
