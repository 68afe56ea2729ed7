//! When the processes and the machine's memory are looked at, and how far a look has come.

use super::idle_processes::IdleProcesses;
use super::sliced_process_queue::SlicedProcessQueue;
use crate::journal::FootprintAtTime;
use hawkeye_policy::{Event, TokenBucket};
use std::time::Duration;

/// Interval of reading footprints and memory. Memory that could be full sooner is read more often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same where memory stands still.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(5);
/// The shortest interval of looks caused by processes that have just joined.
const JOIN_EVERY: Duration = Duration::from_millis(50);
/// CPU time for footprints, in cores, and the CPU seconds that may be used at once.
const FOOTPRINT_CORES: f64 = 0.005;
const FOOTPRINTS_AT_ONCE_S: f64 = 0.05;

/// When to look at the machine, and the progress of the look.
#[derive(Debug)]
pub(super) struct RefreshSchedule {
    pub(super) next: Duration,
    /// Whether something needs the next look, so that it is not left out.
    is_needed: bool,
    /// When the last look began.
    pub(super) begun: Duration,
    /// When to go on admitting processes, while many join.
    pub(super) joining: Option<Duration>,
    pub(super) under_way: Option<FootprintReadProgress>,
    /// CPU seconds for footprints. With many processes a look takes longer instead.
    pub(super) footprint_cpu_s: TokenBucket,
    /// Processes with sizes that need no look.
    pub(super) idle: IdleProcesses,
}

#[derive(Debug)]
pub(super) struct FootprintReadProgress {
    pub(super) slices: SlicedProcessQueue,
    pub(super) cpu: Duration,
    pub(super) sum: FootprintAtTime,
}

impl Default for RefreshSchedule {
    fn default() -> Self {
        Self {
            next: Duration::ZERO,
            is_needed: true,
            begun: Duration::ZERO,
            joining: None,
            under_way: None,
            footprint_cpu_s: TokenBucket::new_full(FOOTPRINT_CORES, FOOTPRINTS_AT_ONCE_S),
            idle: IdleProcesses::default(),
        }
    }
}

impl RefreshSchedule {
    pub(super) fn due_at(&self) -> Duration {
        let under_way = self.under_way.as_ref().map(|look| look.slices.again_at);
        [under_way, self.joining].into_iter().flatten().fold(self.next, Duration::min)
    }

    pub(super) fn schedule_regular_look(&mut self, now: Duration) {
        self.next = now + LOOK_EVERY;
        self.is_needed = false;
    }

    /// Something needs a look at this time.
    pub(super) fn request_look_at(&mut self, at: Duration) {
        self.next = self.next.min(at);
        self.is_needed = true;
    }

    /// Whether the look that is due at `now` can be left out where memory stands still.
    pub(super) fn may_leave_out_look(&self, now: Duration) -> bool {
        !self.is_needed
            && self.joining.is_none()
            && now.saturating_sub(self.begun) < LOOK_AT_LEAST_EVERY
    }

    pub(super) fn apply_event(&mut self, event: &Event) {
        if let Event::Promoted { process, .. } | Event::Recovered { process, .. } = event {
            self.idle.forget(*process);
            // Pressure that this causes is noticed.
            self.is_needed = true;
        }
    }

    /// A process has joined and is looked at soon. Programs may be started by the thousand.
    pub(super) fn on_process_joined(&mut self, now: Duration) {
        let soonest = self.begun + JOIN_EVERY;
        self.request_look_at(soonest.max(now));
    }
}
