//! Decides which processes' first touches are reported: those for which that is useful enough for
//! what it costs them.

use hawkeye_policy::ProcessId;
use std::collections::HashMap;
use std::time::Duration;

/// Least number of touches to judge by.
const MIN_TOUCHES: u64 = 4096;
/// Reports are useful if more than one in this many touches is in order.
const MAX_RANDOM_PER_ORDERED: u64 = 16;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// A stream that begins during a pause is noticed only at its end.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Pause after reports could not be resumed, for example because the kernel had no memory.
const RESUME_PAUSE: Duration = Duration::from_secs(10);

/// Pauses the reports of processes with random touches. Others are reported meanwhile.
#[derive(Debug, Default)]
pub(super) struct TraceBackoffs {
    processes: HashMap<ProcessId, TraceBackoff>,
    /// Touches at random of all processes, when they were last judged.
    judged_at: u64,
}

impl TraceBackoffs {
    /// The processes to pause (true) and to report again (false). `at_random` counts touches of all
    /// processes. `touches_of` counts those of one since it was last reported again: in order, and
    /// at random. It is asked only after many touches at random, because it costs a system call.
    pub(super) fn changes(
        &mut self,
        now: Duration,
        followed: &[ProcessId],
        at_random: u64,
        touches_of: impl Fn(ProcessId) -> (u64, u64),
    ) -> Vec<(ProcessId, bool)> {
        let judges = at_random.saturating_sub(self.judged_at) >= MIN_TOUCHES;
        if judges {
            self.judged_at = at_random;
        }
        let mut known = std::mem::take(&mut self.processes);
        let mut changes = Vec::new();
        for process in followed {
            let mut backoff = known.remove(process).unwrap_or_default();
            let was_tracing = backoff.is_tracing();
            if judges || !was_tracing {
                let touches = if was_tracing { touches_of(*process) } else { (0, 0) };
                let reports = backoff.should_report_touches(now, touches);
                if reports != was_tracing {
                    changes.push((*process, !reports));
                }
            }
            self.processes.insert(*process, backoff);
        }
        changes
    }

    /// Whether the reports of all processes are paused, of which there is at least one.
    pub(super) fn has_paused_all(&self) -> bool {
        let mut backoffs = self.processes.values();
        !self.processes.is_empty() && backoffs.all(|backoff| !backoff.is_tracing())
    }
}

/// Tries to resume reports of all processes, and again after a pause where that fails.
#[derive(Debug, Default)]
pub(super) struct ResumeRetry {
    next_try: Duration,
}

impl ResumeRetry {
    /// Tries it, unless it failed a moment ago.
    pub(super) fn try_if_due<E>(
        &mut self,
        now: Duration,
        resume: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        if now < self.next_try {
            return Ok(());
        }
        resume().inspect_err(|_| self.next_try = now + RESUME_PAUSE)
    }
}

/// Pauses the reports of a process, for longer each time, while all its touches are random.
#[derive(Debug, Default)]
struct TraceBackoff {
    seen: (u64, u64),
    paused_until: Option<Duration>,
    pause: Duration,
}

impl TraceBackoff {
    fn is_tracing(&self) -> bool {
        self.paused_until.is_none()
    }

    /// Whether to report touches from now on. `touches` counts those in order and those at random.
    fn should_report_touches(&mut self, now: Duration, touches: (u64, u64)) -> bool {
        if let Some(until) = self.paused_until {
            if now < until {
                return false;
            }
            self.paused_until = None;
            self.seen = touches;
            return true;
        }
        if touches.0 < self.seen.0 || touches.1 < self.seen.1 {
            // The process executed another program, and is counted anew.
            *self = Self { seen: touches, ..Self::default() };
            return true;
        }
        let in_order = touches.0.saturating_sub(self.seen.0);
        let at_random = touches.1.saturating_sub(self.seen.1);
        if in_order + at_random < MIN_TOUCHES {
            return true;
        }
        self.seen = touches;
        if in_order * MAX_RANDOM_PER_ORDERED >= at_random {
            self.pause = Duration::ZERO;
            return true;
        }
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.paused_until = Some(now + self.pause);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_test_support::event_constructors::process_with_pid;

    #[test]
    fn only_the_process_with_random_touches_is_paused() {
        let [random, ordered, late] = [1, 2, 3].map(process_with_pid);
        let mut backoffs = TraceBackoffs::default();
        let touches_of = |process| if process == random { (0, 5000) } else { (5000, 0) };
        let mut changes = |second, followed: &[ProcessId], at_random| {
            let now = Duration::from_secs(second);
            let found = backoffs.changes(now, followed, at_random, touches_of);
            (found, backoffs.has_paused_all())
        };
        assert_eq!(changes(0, &[random, ordered], 4000), (vec![], false));
        assert_eq!(changes(1, &[random, ordered], 5000), (vec![(random, true)], false));
        assert_eq!(changes(1, &[random], 5000), (vec![], true));
        // A process that joins is reported at once.
        assert_eq!(changes(1, &[random, late], 5000), (vec![], false));
        assert_eq!(changes(2, &[random, late], 5000), (vec![(random, false)], false));
        // Touches are counted anew after a pause.
        assert_eq!(changes(3, &[random, late], 10_000), (vec![(random, true)], false));
        assert_eq!(changes(4, &[], 10_000), (vec![], false));
    }

    #[test]
    fn reports_that_could_not_be_resumed_are_tried_again_after_a_pause() {
        let mut retry = ResumeRetry::default();
        let mut tried = Vec::new();
        for (second, result) in
            [(1, Err(())), (5, Ok(())), (11, Err(())), (20, Ok(())), (21, Ok(()))]
        {
            let _: Result<(), ()> = retry.try_if_due(Duration::from_secs(second), || {
                tried.push(second);
                result
            });
        }
        assert_eq!(tried, [1, 11, 21]);
    }

    #[test]
    fn counts_that_begin_again_do_not_pause() {
        let mut backoff = TraceBackoff::default();
        assert!(backoff.should_report_touches(Duration::from_secs(1), (1_000_000, 0)));
        // The process has executed another program, which touches in order for the most part.
        assert!(backoff.should_report_touches(Duration::from_secs(2), (500_000, 5000)));
        assert!(!backoff.should_report_touches(Duration::from_secs(3), (500_000, 10_000)));
    }

    #[test]
    fn random_touches_are_watched_ever_less_often() {
        let mut attention = TraceBackoff::default();
        for (second, touches, paid) in [
            // Too few touches to judge by.
            (1, (0, 4000), true),
            (2, (0, 5000), false),
            (2, (0, 9000), false),
            (3, (0, 9000), true),
            // The second pause takes two seconds.
            (4, (100, 20_000), false),
            (5, (100, 20_000), false),
            (6, (100, 20_000), true),
            // One program touches in order: the pauses start again from the shortest.
            (7, (9000, 30_000), true),
            (8, (9000, 40_000), false),
            (9, (9000, 40_000), true),
        ] {
            let found = attention.should_report_touches(Duration::from_secs(second), touches);
            assert_eq!((found, attention.is_tracing()), (paid, paid), "{second}");
        }
    }
}
