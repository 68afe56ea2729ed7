//! Whether there is a core that nobody else wants: the filler shall not take its time from the programs it fills for.

use std::time::Duration;

/// Time that a thread has run, and time that it could have run but waited for a core (`/proc/thread-self/schedstat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scheduled {
    ran: Duration,
    waited: Duration,
}

impl Scheduled {
    /// Of the calling thread; `None` where the kernel doesn't keep it.
    pub(super) fn now() -> Option<Self> {
        Self::parse(&std::fs::read_to_string("/proc/thread-self/schedstat").ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(str::parse);
        let mut next = || numbers.next()?.ok().map(Duration::from_nanos);
        Some(Self {
            ran: next()?,
            waited: next()?,
        })
    }
}

/// Waiting more than this share of the time it wanted to run tells that others want the core too.
const LONGEST_WAIT: f64 = 0.2;
/// It is judged by at least so much time: one that was just woken may share a core until the scheduler moves it.
const LEAST: Duration = Duration::from_millis(20);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1600);

/// Pauses while there is none.
#[derive(Debug, Default)]
pub(super) struct SpareCore {
    last: Scheduled,
    paused_until: Duration,
    pause: Duration,
}

impl SpareCore {
    /// How long to do nothing at all: even to hear of somebody takes the core from him.
    pub(super) fn pause(&self, now: Duration) -> Duration {
        self.paused_until.saturating_sub(now)
    }

    /// Whether to work now; `scheduled` as of now.
    pub(super) fn is_there(&mut self, now: Duration, scheduled: Scheduled) -> bool {
        if now < self.paused_until {
            return false;
        }
        let ran = scheduled.ran.saturating_sub(self.last.ran);
        let waited = scheduled.waited.saturating_sub(self.last.waited);
        let wanted = ran + waited;
        if wanted < LEAST {
            return true;
        }
        self.last = scheduled;
        if waited.as_secs_f64() <= LONGEST_WAIT * wanted.as_secs_f64() {
            self.pause = Duration::ZERO;
            return true;
        }
        self.pause = (self.pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.paused_until = now + self.pause;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn scheduled(ran_ms: u32, waited_ms: u32) -> Scheduled {
        Scheduled {
            ran: MS * ran_ms,
            waited: MS * waited_ms,
        }
    }

    #[test]
    fn the_kernels_figures_are_read() {
        let read = Scheduled::parse("5000000 7000000 12\n");
        assert_eq!(read, Some(scheduled(5, 7)));
        assert_eq!(Scheduled::parse("5"), None);
        assert!(Scheduled::now().is_some());
    }

    #[test]
    fn whoever_waits_for_a_core_pauses_ever_longer_until_there_is_one() {
        let mut core = SpareCore::default();
        assert!(core.is_there(MS * 100, scheduled(100, 0)));
        assert!(
            core.is_there(MS * 105, scheduled(100, 5)),
            "too short to judge"
        );
        assert!(!core.is_there(MS * 200, scheduled(150, 50)));
        assert_eq!(core.pause(MS * 205), MS * 15);
        assert!(!core.is_there(MS * 219, scheduled(150, 50)));
        // It has not run since, so there is nothing to judge by: it tries.
        assert!(core.is_there(MS * 220, scheduled(150, 50)));
        assert!(!core.is_there(MS * 300, scheduled(200, 100)));
        assert!(
            !core.is_there(MS * 339, scheduled(200, 100)),
            "twice as long"
        );
        assert!(core.is_there(MS * 340, scheduled(200, 100)));
        assert!(core.is_there(MS * 400, scheduled(300, 100)));
        assert!(!core.is_there(MS * 500, scheduled(320, 180)));
        assert!(
            core.is_there(MS * 520, scheduled(320, 180)),
            "from the start"
        );
    }
}
