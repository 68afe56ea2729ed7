//! CPU time used over the last minute.

use crate::saturating_cast::usize_from_u64;
use std::time::Duration;

/// CPU time by the second, of the last 60 seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuMinute {
    /// CPU seconds used in each of them, indexed by the second modulo 60.
    used: [f64; SECONDS],
    /// The second up to which `used` is current.
    second: u64,
    used_total: Option<Duration>,
}

const SECONDS: usize = 60;

impl Default for CpuMinute {
    fn default() -> Self {
        Self { used: [0.0; SECONDS], second: 0, used_total: None }
    }
}

impl CpuMinute {
    /// Seconds that it has.
    pub(super) const SECONDS: usize = SECONDS;

    /// Takes in the total CPU time by `now`. The first call only sets the starting point, because
    /// start-up is not management.
    pub fn record_total_cpu_time(&mut self, now: Duration, used_total: Duration) {
        // It goes back where time turns out to be none of management: that was counted before.
        let before = self.used_total.unwrap_or(used_total);
        self.used_total = Some(before.max(used_total));
        // A clock that went back counts as standing still.
        let second = now.as_secs().max(self.second);
        for passed in (self.second + 1..=second).take(SECONDS) {
            self.used[ring_index_of_second(passed)] = 0.0;
        }
        self.second = second;
        self.used[ring_index_of_second(second)] += used_total.saturating_sub(before).as_secs_f64();
    }

    /// CPU time used over the last minute, in per cent of one core. A younger manager counts only
    /// the time since it started managing.
    pub fn percent_of_core(&self, now: Duration) -> f64 {
        let second = now.as_secs();
        let seconds = (second + 1).min(SECONDS as u64);
        self.cpu_seconds_to(second) * 100.0 / seconds as f64
    }

    /// CPU seconds used in the minute that ends with `second`.
    pub(super) fn cpu_seconds_to(&self, second: u64) -> f64 {
        let first = (second + 1).saturating_sub(SECONDS as u64);
        let oldest = (self.second + 1).saturating_sub(SECONDS as u64);
        (oldest.max(first)..=self.second)
            .map(|second| self.used[ring_index_of_second(second)])
            .sum()
    }
}

fn ring_index_of_second(second: u64) -> usize {
    usize_from_u64(second % SECONDS as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::at_second;

    #[test]
    fn time_that_turns_out_to_be_none_of_management_counts_once_at_most() {
        let mut cpu = CpuMinute::default();
        for total_ms in [0, 700, 300, 700, 800] {
            cpu.record_total_cpu_time(at_second(1), Duration::from_millis(total_ms));
        }
        let used_ms = cpu.percent_of_core(at_second(1)) * 10.0 * 2.0;
        assert!((used_ms - 800.0).abs() < 1.0, "{used_ms}");
    }
}
