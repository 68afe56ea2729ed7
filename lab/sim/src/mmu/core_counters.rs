//! Counters of the simulated core, like those of a real one.

use serde::Serialize;
use std::time::Duration;

/// Counts since the start of a run, or over a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CoreCounters {
    /// Loads of the program.
    pub accesses: u64,
    /// Instructions, the loads among them.
    pub instructions: u64,
    /// Translations that hit the second TLB level after a miss in the first.
    pub l2_tlb_hits: u64,
    /// Page walks: translations that missed all TLBs.
    pub walks: u64,
    /// Loads of page walks by where the line was: L1, L2, L3, memory.
    pub walk_loads: [u64; 4],
    /// Cycles in which at least one walk was active (Intel's WALK_ACTIVE).
    pub walk_active_cycles: f64,
    /// The same for each walker, summed (Intel's WALK_PENDING, or WALK_DURATION).
    pub walk_pending_cycles: f64,
    /// All cycles.
    pub cycles: f64,
    /// All cycles as time on the processor.
    pub cpu_time: Duration,
}

impl CoreCounters {
    /// Counts since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut walk_loads = self.walk_loads;
        for (loads, before) in walk_loads.iter_mut().zip(earlier.walk_loads) {
            *loads -= before;
        }
        Self {
            accesses: self.accesses - earlier.accesses,
            instructions: self.instructions - earlier.instructions,
            l2_tlb_hits: self.l2_tlb_hits - earlier.l2_tlb_hits,
            walks: self.walks - earlier.walks,
            walk_loads,
            walk_active_cycles: self.walk_active_cycles - earlier.walk_active_cycles,
            walk_pending_cycles: self.walk_pending_cycles - earlier.walk_pending_cycles,
            cycles: self.cycles - earlier.cycles,
            cpu_time: self.cpu_time.saturating_sub(earlier.cpu_time),
        }
    }

    /// Share of all cycles in which at least one walk was active, in per cent: what hardware
    /// counters would show as MMU overhead.
    pub fn walk_active_percent(&self) -> f64 {
        100.0 * ratio(self.walk_active_cycles, self.cycles)
    }

    /// Time on the processor per access, in nanoseconds.
    pub fn access_ns(&self) -> f64 {
        ratio(self.cpu_time.as_secs_f64() * 1e9, self.accesses as f64)
    }
}

/// The ratio; 0 if both are 0.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_since_are_the_difference() {
        let early = CoreCounters {
            accesses: 100,
            walks: 10,
            walk_active_cycles: 50.0,
            cycles: 1000.0,
            cpu_time: Duration::from_nanos(500),
            ..CoreCounters::default()
        };
        let late = CoreCounters {
            accesses: 300,
            walks: 110,
            walk_active_cycles: 550.0,
            cycles: 2000.0,
            cpu_time: Duration::from_nanos(1000),
            ..CoreCounters::default()
        };
        let part = late.since(&early);
        assert_eq!(part.walk_active_percent(), 50.0);
        assert_eq!(part.access_ns(), 2.5);
        assert_eq!(CoreCounters::default().walk_active_percent(), 0.0);
    }
}
