//! Decides whether reports of first touches are useful enough for what they cost the programs.

use std::time::Duration;

/// Least number of touches to judge by.
const MIN_TOUCHES: u64 = 4096;
/// Reports are useful if more than one in this many touches is in order.
const MAX_RANDOM_PER_ORDERED: u64 = 16;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// A stream that begins during a pause is noticed only at its end.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Pauses the reports, for longer each time, while all reported touches are random.
#[derive(Debug, Default)]
pub(super) struct TraceBackoff {
    seen: (u64, u64),
    paused_until: Option<Duration>,
    pause: Duration,
}

impl TraceBackoff {
    pub(super) fn is_tracing(&self) -> bool {
        self.paused_until.is_none()
    }

    /// Whether to report touches from now on. `touches` counts those in order and those at random.
    pub(super) fn should_report_touches(&mut self, now: Duration, touches: (u64, u64)) -> bool {
        if let Some(until) = self.paused_until {
            if now < until {
                return false;
            }
            self.paused_until = None;
            self.seen = touches;
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
