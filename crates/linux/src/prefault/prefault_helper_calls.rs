//! One thread's calls into the processes that it fills, made by a helper process.

use crate::error::Result;
use crate::processes::schedstat::SchedStat;
use crate::promote::target_call::{CallHelperPool, CallTimingStatistics};
use std::time::Duration;

/// Longest wait for a call. A fill that takes longer, because memory must be compacted for it,
/// comes too late for its stream. Tests wait longer, because they check what is filled on any
/// machine.
const WAIT: Duration = Duration::from_millis(if cfg!(test) { 3_000 } else { 250 });

/// The calls, and how their helpers are scheduled: a fill uses their time, not the thread's.
pub(super) struct PrefaultHelperCalls {
    calls: CallHelperPool,
    /// The helper of the last call, and its scheduler counts at that time.
    helper: Option<(u32, SchedStat)>,
    /// Sum over all helpers.
    helpers: SchedStat,
}

impl Default for PrefaultHelperCalls {
    fn default() -> Self {
        let calls = CallHelperPool::with_time_limit(WAIT);
        Self { calls, helper: None, helpers: SchedStat::default() }
    }
}

impl PrefaultHelperCalls {
    /// Starts a helper at once, so that the first call does not wait for one.
    pub(super) fn start() -> Result<Self> {
        let mut new = Self::default();
        new.calls.start_idle_helper()?;
        Ok(new)
    }

    /// Prepares the next call. A process that has answered its last call gets calls again.
    pub(super) fn helper_pool_without_late_calls(&mut self) -> &mut CallHelperPool {
        // A region that is filled late is discarded, because its stream has ended.
        self.calls.take_late_calls();
        &mut self.calls
    }

    pub(super) fn statistics(&self) -> CallTimingStatistics {
        self.calls.statistics
    }

    /// Scheduler counts of the calling thread and its helpers together; `None` where the kernel
    /// does not keep them.
    pub(super) fn thread_and_helper_sched_stat(&mut self) -> Option<SchedStat> {
        let own = SchedStat::of_this_thread()?;
        let helper = self.calls.idle_helper_pid();
        if let Some((helper, now)) =
            helper.and_then(|it| Some((it, SchedStat::of_first_thread(it)?)))
        {
            let before = self.helper.filter(|(last, _)| *last == helper);
            if let Some((_, before)) = before {
                self.helpers = self.helpers + (now - before);
            }
            self.helper = Some((helper, now));
        }
        Some(own + self.helpers)
    }
}
