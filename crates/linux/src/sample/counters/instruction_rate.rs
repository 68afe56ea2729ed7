//! Instructions per cycle of a process, by hardware counters.
//!
//! Page walks for instructions stall a program before it executes them, so huge program text shows
//! as more instructions in the same cycles. The two events are the kernel's generic ones, which
//! every processor with counters has. A program that spins while it waits executes instructions
//! without work: its own rate says more.

use super::overhead_meter::{CountedSum, ThreadCounts};
use super::perf_counters::{PerfCounters, PerfEvent};
use crate::error::{LinuxError, Result};
use crate::test_costs;
use perf_event_open_sys::bindings::{
    PERF_COUNT_HW_CPU_CYCLES, PERF_COUNT_HW_INSTRUCTIONS, PERF_TYPE_HARDWARE,
};

/// Counts instructions and cycles of one process in user mode.
#[derive(Debug)]
pub struct InstructionRateCounters {
    source: PerfCounters,
    before: ThreadCounts,
}

impl InstructionRateCounters {
    /// Begins to count a process.
    pub fn open(pid: u32) -> Result<Self> {
        if test_costs::replace_counters() {
            return Err(LinuxError::NotMeasured("a test provides the costs"));
        }
        let event = |config: u32| PerfEvent { kind: PERF_TYPE_HARDWARE, config: config.into() };
        let events = [PERF_COUNT_HW_INSTRUCTIONS, PERF_COUNT_HW_CPU_CYCLES].map(event).to_vec();
        Ok(Self { source: PerfCounters::open(pid, events)?, before: ThreadCounts::new() })
    }

    /// Instructions per cycle since the last call; `None` if the process did not run.
    pub fn instructions_per_cycle_since_last_call(&mut self) -> Result<Option<f64>> {
        let now = self.source.read_counts()?;
        let rate = instructions_per_cycle(&self.before, &now);
        self.before = now;
        Ok(rate)
    }
}

/// The first of the two events of a read, instructions here, is in the field of loads.
fn instructions_per_cycle(before: &ThreadCounts, now: &ThreadCounts) -> Option<f64> {
    let CountedSum { events: instructions, cycles, .. } = CountedSum::since(before, now);
    (cycles > 0.0).then(|| instructions / cycles)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made-up counts of three windows, as a machine with counters would record them.
    #[test]
    fn instructions_per_cycle_follow_a_recording_of_counters() {
        let text = include_str!("../../../tests/fixtures/instruction-counters.json");
        let recorded: Vec<ThreadCounts> = serde_json::from_str(text).expect("the fixture is valid");
        let mut before = ThreadCounts::new();
        let rates = recorded.into_iter().map(|now| {
            let rate = instructions_per_cycle(&before, &now);
            before = now;
            rate
        });
        // The third was multiplexed, in the fourth nothing ran, in the fifth a thread came.
        let expected = [Some(1.5), Some(1.8), Some(2.0), None, Some(1.25)];
        assert_eq!(rates.collect::<Vec<_>>(), expected);
    }
}
