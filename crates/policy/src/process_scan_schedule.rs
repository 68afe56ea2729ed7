//! When to scan for processes: at intervals, and sooner where one may have become large.

use crate::process_selection_settings::ProcessSelectionSettings;
use std::time::Duration;

/// Growth of the machine's used memory after which a new process may be large enough to be managed
/// (by default). What grows less is found at the next regular scan.
const GROWTH_BYTES: u64 = 64 << 20;

/// Pause between scans. A younger program is not judged, and memory that grows fast is watched
/// instead.
const LEAST_PAUSE: Duration = Duration::from_secs(1);

/// Times of scans.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessScanSchedule {
    /// The next scan, where nothing makes one due sooner.
    regular_at: Duration,
    /// An earlier scan would cost too much.
    affordable_at: Duration,
    /// A scan is wanted from this time on.
    wanted_at: Option<Duration>,
    /// The least used memory since the last scan, and what was used last; `None`: not read yet.
    least_used_bytes: Option<u64>,
    last_used_bytes: Option<u64>,
}

impl ProcessScanSchedule {
    /// Whether to scan now.
    pub fn is_due(&self, now: Duration) -> bool {
        let wanted_at = self.wanted_at.map(|at| at.max(self.affordable_at));
        now >= wanted_at.map_or(self.regular_at, |at| at.min(self.regular_at))
    }

    /// A scan has ended, which took `cpu` of the manager's time.
    pub fn record_scan(
        &mut self,
        now: Duration,
        cpu: Duration,
        settings: ProcessSelectionSettings,
    ) {
        let affordable = ProcessSelectionSettings::affordable_pause(cpu);
        *self = Self {
            regular_at: now.saturating_add(settings.pause_after_scan(cpu)),
            affordable_at: now.saturating_add(affordable.max(LEAST_PAUSE)),
            wanted_at: None,
            least_used_bytes: self.last_used_bytes,
            last_used_bytes: self.last_used_bytes,
        };
    }

    /// Takes in the machine's used memory. Much growth makes a scan due.
    pub fn record_used_memory(&mut self, now: Duration, used_bytes: u64) {
        let least = self.least_used_bytes.map_or(used_bytes, |least| least.min(used_bytes));
        self.least_used_bytes = Some(least);
        self.last_used_bytes = Some(used_bytes);
        if used_bytes - least >= GROWTH_BYTES {
            self.want_scan_at(now);
        }
    }

    /// Makes a scan due from `at` on, as far as its cost allows.
    pub fn want_scan_at(&mut self, at: Duration) {
        self.wanted_at = Some(self.wanted_at.map_or(at, |wanted| wanted.min(at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// After a scan at 0 s that took this long.
    fn schedule(scan_cpu: Duration) -> ProcessScanSchedule {
        let mut schedule = ProcessScanSchedule::default();
        assert!(schedule.is_due(MS(0)));
        schedule.record_scan(MS(0), scan_cpu, ProcessSelectionSettings::default());
        schedule
    }

    #[test]
    fn a_machine_that_does_not_grow_is_scanned_every_five_seconds() {
        let mut schedule = schedule(MS(1));
        for second in 0..5 {
            // It grows by less, and shrinks.
            let used_mib = [900, 940, 950, 500, 560];
            schedule.record_used_memory(MS(second * 1000), used_mib[second as usize] * MIB);
            assert!(!schedule.is_due(MS(second * 1000 + 999)), "{second}");
        }
        assert!(schedule.is_due(MS(5000)));
    }

    #[test]
    fn growth_since_the_least_use_makes_a_scan_due_at_once() {
        let mut schedule = schedule(MS(1));
        for (second, used_mib) in [(0, 900), (1, 400), (2, 464)] {
            assert!(!schedule.is_due(MS(second * 1000)));
            schedule.record_used_memory(MS(second * 1000), used_mib * MIB);
        }
        assert!(schedule.is_due(MS(2000)));
        schedule.record_scan(MS(2500), MS(1), ProcessSelectionSettings::default());
        schedule.record_used_memory(MS(3000), 464 * MIB);
        assert!(!schedule.is_due(MS(7499)), "it has not grown since");
        assert!(schedule.is_due(MS(7500)));
    }

    #[test]
    fn scans_after_growth_cost_no_more_than_half_a_per_cent() {
        let mut schedule = schedule(MS(10));
        schedule.record_used_memory(MS(0), 0);
        schedule.record_used_memory(MS(100), 900 * MIB);
        assert!(!schedule.is_due(MS(1999)));
        assert!(schedule.is_due(MS(2000)));
    }

    #[test]
    fn a_scan_can_be_wanted_for_later() {
        let mut schedule = schedule(MS(1));
        for at in [900, 700, 4000] {
            schedule.want_scan_at(MS(at));
        }
        assert!(!schedule.is_due(MS(999)));
        assert!(schedule.is_due(MS(1000)));
        schedule.record_scan(MS(700), MS(1), ProcessSelectionSettings::default());
        schedule.want_scan_at(MS(9000));
        assert!(schedule.is_due(MS(5700)), "the regular one comes first");
    }
}
