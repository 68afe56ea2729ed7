//! Which of a machine's processes are large enough to be managed, and how often to look for new
//! ones.

use crate::page::HUGE_PAGE_BYTES;
use crate::setting_error::{Setting, SettingError};
use std::time::Duration;

/// How processes are found. A process joins with `min_resident_bytes` of anonymous memory and
/// leaves with less than half of that. So a process that varies around the limit keeps its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSelectionSettings {
    min_resident_bytes: u64,
    look_every: Duration,
    max_processes: usize,
}

impl ProcessSelectionSettings {
    /// In per cent of one core: a quarter of the manager's default budget.
    const SWEEP_SHARE_PERCENT: f64 = 0.5;

    /// Manages processes of at least `min_resident_bytes` (2 MiB and up), at most `max_processes`
    /// of them (1-100,000). It scans for them every `look_every` (1 s to 1 h; less often where that
    /// would cost too much).
    pub fn new(
        min_resident_bytes: u64,
        look_every: Duration,
        max_processes: usize,
    ) -> Result<Self, SettingError> {
        let large = min_resident_bytes >= HUGE_PAGE_BYTES;
        let allowed = "at least one huge page (2 MiB)";
        SettingError::error_unless_valid(large, Setting::MinResident, min_resident_bytes, allowed)?;
        let at_times = (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&look_every);
        let (seconds, allowed) = (look_every.as_secs_f64(), "at least 1 s and at most 1 h");
        SettingError::error_unless_valid(at_times, Setting::ScanInterval, seconds, allowed)?;
        let some = (1..=100_000).contains(&max_processes);
        let allowed = "at least 1 and at most 100000";
        SettingError::error_unless_valid(some, Setting::MaxProcesses, max_processes, allowed)?;
        Ok(Self { min_resident_bytes, look_every, max_processes })
    }

    /// Anonymous memory at which a process joins, in bytes.
    pub fn min_bytes_to_join(self) -> u64 {
        self.min_resident_bytes
    }

    /// Anonymous memory below which a managed process leaves, in bytes.
    pub fn min_bytes_to_stay(self) -> u64 {
        self.min_resident_bytes / 2
    }

    /// The shortest interval between scans for processes.
    pub fn scan_interval(self) -> Duration {
        self.look_every
    }

    /// The most processes managed at a time.
    pub fn max_processes(self) -> usize {
        self.max_processes
    }

    /// Pause after a scan that took `cpu` of the manager's time.
    pub fn pause_after_scan(self, cpu: Duration) -> Duration {
        self.look_every.max(Self::affordable_pause(cpu))
    }

    /// The shortest pause that the cost of such a scan allows.
    pub fn affordable_pause(cpu: Duration) -> Duration {
        let affordable = cpu.as_secs_f64() * 100.0 / Self::SWEEP_SHARE_PERCENT;
        Duration::try_from_secs_f64(affordable).unwrap_or(Duration::MAX)
    }
}

impl Default for ProcessSelectionSettings {
    /// 64 MiB (32 huge pages), every 5 s, 1,000 processes.
    fn default() -> Self {
        Self {
            min_resident_bytes: 64 << 20,
            look_every: Duration::from_secs(5),
            max_processes: 1000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: fn(u64) -> Duration = Duration::from_secs;

    #[test]
    fn a_costly_sweep_is_done_less_often() {
        let selection = ProcessSelectionSettings::default();
        let pause = |ms| selection.pause_after_scan(Duration::from_millis(ms));
        assert_eq!(pause(0), S(5));
        assert_eq!(pause(25), S(5), "0.5 % of 5 s");
        assert_eq!(pause(50), S(10));
        assert_eq!(selection.pause_after_scan(Duration::MAX), Duration::MAX);
    }

    #[test]
    fn settings_have_ranges() {
        let made = |min_bytes, every, most| {
            let made = ProcessSelectionSettings::new(min_bytes, every, most);
            made.map_err(|error| error.setting)
        };
        let usual = 64 << 20;
        assert_eq!(made(usual, S(5), 1000), Ok(ProcessSelectionSettings::default()));
        assert_eq!(made(4096, S(5), 1000), Err(Setting::MinResident));
        assert_eq!(made(usual, S(0), 1000), Err(Setting::ScanInterval));
        assert_eq!(made(usual, S(5), 0), Err(Setting::MaxProcesses));
    }
}
