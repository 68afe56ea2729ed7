//! How often memory use is read.

use super::growth::time_to_full;
use crate::observation::MemoryUse;
use std::time::Duration;

/// The longest and the shortest interval between reads of memory use.
pub(super) const SELDOM: Duration = Duration::from_secs(1);
pub(super) const OFTEN: Duration = Duration::from_millis(40);
/// The most that one thread can fill: clearing huge pages, in bytes per second.
const FASTEST_FILL: f64 = 4e9;
/// Reading takes at most this share of one core.
const SHARE_OF_A_CORE: f64 = 0.005;
/// Weight of the newest read in the average cost.
const NEWEST: f64 = 0.2;

/// Half of the time in which memory could be full, at its growth or at the speed of page faults.
pub(super) fn wanted_interval(usage: MemoryUse, growth_bytes_per_s: f64) -> Duration {
    let fastest = growth_bytes_per_s.max(FASTEST_FILL);
    let full = time_to_full(usage, fastest).unwrap_or(Duration::MAX);
    (full / 2).clamp(OFTEN, SELDOM)
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadRateLimit {
    cost_s: f64,
}

impl ReadRateLimit {
    pub(super) fn record_cost(&mut self, cost: Duration) {
        self.cost_s += NEWEST * (cost.as_secs_f64() - self.cost_s);
    }

    /// `wanted`, or longer where reading that often would cost too much; at most a second.
    pub(super) fn affordable_interval(self, wanted: Duration) -> Duration {
        let least = Duration::try_from_secs_f64(self.cost_s / SHARE_OF_A_CORE).unwrap_or(SELDOM);
        wanted.max(least).min(SELDOM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(used_mib: u64, total_mib: u64) -> MemoryUse {
        MemoryUse {
            used_bytes: used_mib << 20,
            total_bytes: total_mib << 20,
        }
    }

    #[test]
    fn memory_is_checked_more_often_the_less_is_left() {
        assert_eq!(wanted_interval(usage(4096, 24 << 10), 0.0), SELDOM);
        let half = wanted_interval(usage(1024, 2048), 0.0);
        assert!(half > OFTEN && half < SELDOM / 5, "{half:?}");
        assert_eq!(wanted_interval(usage(1800, 2048), 0.0), OFTEN);
        assert_eq!(wanted_interval(usage(3000, 2048), 0.0), OFTEN);
        assert!(wanted_interval(usage(1024, 2048), 8e9) < half);
    }

    #[test]
    fn checks_of_memory_stay_cheap() {
        let mut pace = ReadRateLimit::default();
        assert_eq!(pace.affordable_interval(OFTEN), OFTEN);
        (0..50).for_each(|_| pace.record_cost(Duration::from_micros(50)));
        assert_eq!(pace.affordable_interval(OFTEN), OFTEN);
        // Fifty groups: 2 ms a read.
        (0..50).for_each(|_| pace.record_cost(Duration::from_millis(2)));
        let paced = pace.affordable_interval(OFTEN).as_secs_f64();
        assert!((paced - 0.4).abs() < 0.01, "{paced}");
        (0..50).for_each(|_| pace.record_cost(Duration::from_secs(1)));
        assert_eq!(pace.affordable_interval(OFTEN), SELDOM);
    }
}
