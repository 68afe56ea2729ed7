//! A workload on a machine.

use super::kernel::LargePageStatistics;
use super::mmu::ItaniumCounters;
use super::workloads::{ProgramEvent, ThesisWorkload};
use super::{ItaniumError, ItaniumMachine, MachineSettings, Result};

/// Results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct ItaniumRunFigures {
    /// Counts while the workload is measured.
    pub counters: ItaniumCounters,
    /// Cycles of all counted events.
    pub cycles: f64,
    /// Cycles from the beginning, including those before the measurement.
    pub all_cycles: f64,
    /// Bytes copied since the beginning.
    pub copied_bytes: u64,
    /// Cycles in second-level TLB misses, among `cycles`.
    pub miss_cycles: f64,
    /// Counts of large pages, since the beginning.
    pub statistics: LargePageStatistics,
}

impl ItaniumRunFigures {
    /// Cycles of an average second-level miss. None without misses.
    pub fn cycles_per_miss(&self) -> Option<f64> {
        let cycles = self.miss_cycles / self.counters.misses as f64;
        Some(cycles).filter(|cycles| cycles.is_finite())
    }
}

/// First byte and length, by process and the workload's mapping. Both number processes alike.
#[derive(Default)]
struct WorkloadMappings(Vec<Vec<Option<(u64, u64)>>>);

impl WorkloadMappings {
    fn set(&mut self, process: u32, mapping: u32, range: Option<(u64, u64)>) {
        let (process, mapping) = (process as usize, mapping as usize);
        let processes = &mut self.0;
        processes.resize(processes.len().max(process + 1), Vec::new());
        let mappings = &mut processes[process];
        mappings.resize(mappings.len().max(mapping + 1), None);
        mappings[mapping] = range;
    }

    fn get(&self, process: u32, mapping: u32) -> Result<(u64, u64)> {
        let mappings = self.0.get(process as usize);
        let found = mappings.and_then(|all| *all.get(mapping as usize)?);
        let address = 0;
        found.ok_or(ItaniumError::NotMapped(process, address))
    }
}

/// Runs a workload on a machine. The same setup, workload and seed give the same figures.
///
/// # Errors
/// Invalid settings, or too little memory.
pub fn simulate_workload(
    setup: &MachineSettings,
    workload: &ThesisWorkload,
    seed: u64,
) -> Result<ItaniumRunFigures> {
    let mut machine = ItaniumMachine::new(*setup, seed)?;
    let mut mappings = WorkloadMappings::default();
    let mut before = ItaniumCounters::default();
    workload.emit_events(seed, &mut |event| {
        match event {
            ProgramEvent::Map { process, mapping, bytes, at, backing } => {
                while machine.count_started_processes() <= process {
                    machine.spawn_process()?;
                }
                let start = machine.mmap(process, bytes, at, backing)?;
                mappings.set(process, mapping, Some((start, bytes)));
            }
            ProgramEvent::Unmap { process, mapping } => {
                let (start, bytes) = mappings.get(process, mapping)?;
                machine.munmap(process, start, bytes)?;
                mappings.set(process, mapping, None);
            }
            ProgramEvent::Lock { process, mapping } => {
                let (start, bytes) = mappings.get(process, mapping)?;
                machine.populate_range(process, start, bytes)?;
            }
            ProgramEvent::Touch(it) => {
                let (start, _) = mappings.get(it.process, it.mapping)?;
                machine.add_useful_cycles(it.useful_cycles.into());
                machine.access_memory(it.process, start + it.offset, it.write, it.references)?;
            }
            ProgramEvent::Measure => before = machine.counters(),
        }
        Ok(())
    })?;
    // Large runs are checked once, in debug builds.
    debug_assert_eq!(machine.check_invariants(), Ok(()), "the machine contradicts the model");
    let all = machine.counters();
    let counters = all.since(before);
    let costs = &setup.processor.costs;
    Ok(ItaniumRunFigures {
        counters,
        cycles: counters.total_cycles(costs, setup.walker),
        copied_bytes: all.copied_bytes,
        all_cycles: all.total_cycles(costs, setup.walker),
        miss_cycles: counters.total_miss_cycles(costs, setup.walker),
        statistics: machine.large_page_statistics().clone(),
    })
}
