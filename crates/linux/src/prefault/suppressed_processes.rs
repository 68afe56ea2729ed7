//! Processes that do not use what is filled: suppressed for a while, then for twice as long.

use hawkeye_policy::ProcessId;
use std::collections::HashMap;
use std::time::Duration;

const FIRST_SILENCE: Duration = Duration::from_secs(1);
const LONGEST_SILENCE: Duration = Duration::from_secs(64);

#[derive(Default)]
pub(super) struct SuppressedProcesses(HashMap<ProcessId, FaultReportSuppression>);

struct FaultReportSuppression {
    until: Duration,
    pause: Duration,
    silent: bool,
}

impl SuppressedProcesses {
    pub(super) fn contains(&self, now: Duration, process: ProcessId) -> bool {
        let silence = self.0.get(&process);
        silence.is_some_and(|silence| now < silence.until)
    }

    pub(super) fn suppress(&mut self, now: Duration, process: ProcessId) {
        let before = self.0.get(&process).map(|silence| silence.pause * 2);
        let pause = before.unwrap_or(FIRST_SILENCE).min(LONGEST_SILENCE);
        let silence = FaultReportSuppression { until: now + pause, pause, silent: true };
        self.0.insert(process, silence);
    }

    /// Processes that must be reported again: those suppressed for long enough, which may
    /// have changed, and those that have ended.
    pub(super) fn take_released(
        &mut self,
        now: Duration,
        is_there: impl Fn(ProcessId) -> bool,
    ) -> Vec<ProcessId> {
        let mut heard = Vec::new();
        self.0.retain(|process, silence| {
            let stays = is_there(*process);
            if !stays || (silence.until <= now && silence.silent) {
                silence.silent = false;
                heard.push(*process);
            }
            stays
        });
        heard
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_test_support::event_constructors::process_with_pid;

    #[test]
    fn each_suppression_lasts_twice_as_long() {
        let process = process_with_pid(1);
        let (s, there) = (Duration::from_secs, |_| true);
        let mut muted = SuppressedProcesses::default();
        muted.suppress(s(10), process);
        assert!(muted.contains(s(10), process));
        assert_eq!(muted.take_released(s(10), there), []);
        assert_eq!(muted.take_released(s(11), there), [process]);
        assert!(!muted.contains(s(11), process));
        let again = muted.take_released(s(12), there);
        assert_eq!(again, [], "each process is returned once");
        muted.suppress(s(20), process);
        assert_eq!(muted.take_released(s(21), there), []);
        assert_eq!(muted.take_released(s(22), there), [process]);
        muted.suppress(s(30), process);
        let ended = muted.take_released(s(31), |_| false);
        assert_eq!(ended, [process], "an ended process is returned");
        // An ended process starts again from the shortest time.
        muted.suppress(s(40), process);
        assert_eq!(muted.take_released(s(41), there), [process]);
    }
}
