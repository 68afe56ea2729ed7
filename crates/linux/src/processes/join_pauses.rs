//! Processes that are left alone for a while: those that could not be managed, and those that the
//! rules exclude.

use crate::error::LinuxError;
use std::collections::HashMap;
use std::time::Duration;

/// A process that could not be managed is tried again after this pause. Each further pause is twice
/// the last.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_PAUSE: Duration = Duration::from_secs(480);

/// By pid, because a process that cannot be opened has no other name.
#[derive(Debug, Default)]
pub(crate) struct JoinPauses(HashMap<u32, JoinPause>);

#[derive(Clone, Copy, Debug)]
struct JoinPause {
    until: Duration,
    /// The pause after the next failure; zero if the rules exclude the process.
    next: Duration,
}

impl JoinPauses {
    /// Whether a process is left alone at this time.
    pub(crate) fn is_paused(&self, pid: u32, now: Duration) -> bool {
        self.0.get(&pid).is_some_and(|pause| now < pause.until)
    }

    /// Whether a process had a pause, which may be over.
    pub(crate) fn contains(&self, pid: u32) -> bool {
        self.0.contains_key(&pid)
    }

    /// Leaves a process that the rules exclude alone.
    pub(crate) fn record_exclusion(&mut self, pid: u32, until: Duration) {
        self.0.insert(pid, JoinPause { until, next: Duration::ZERO });
    }

    /// Records that a process could not be managed, and leaves it alone for a while. Logs only the
    /// first failure.
    pub(crate) fn record_refusal(&mut self, pid: u32, now: Duration, error: &LinuxError) {
        let before = self.0.get(&pid).map(|pause| pause.next);
        let pause = before.filter(|next| !next.is_zero()).unwrap_or(FIRST_PAUSE);
        if before.is_none_or(|next| next.is_zero()) {
            tracing::warn!("process {pid} cannot be managed for now: {error}");
        }
        let next = (pause * 2).min(LONGEST_PAUSE);
        self.0.insert(pid, JoinPause { until: now.saturating_add(pause), next });
    }

    /// Forgets the processes for which `is_there` is false.
    pub(crate) fn retain_pids(&mut self, is_there: impl Fn(u32) -> bool) {
        self.0.retain(|pid, _| is_there(*pid));
    }

    /// Forgets processes with pauses that were over long ago. A process that still exists was tried
    /// again then.
    pub(crate) fn forget_ended(&mut self, now: Duration) {
        self.0.retain(|_, pause| now < pause.until.saturating_add(LONGEST_PAUSE));
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
