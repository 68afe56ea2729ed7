//! A workload on a machine.

use super::kernel::{KernelSettings, Statistics};
use super::mmu::{Counters, MADISON, Walker};
use super::workloads::{Event, Workload};
use super::{ItaniumError, Machine, Setup};
use crate::address::BasePage;
use serde::Serialize;

impl Default for Setup {
    /// Itanium Linux without large pages: short format, 16 KiB pages.
    fn default() -> Self {
        Self {
            processor: MADISON,
            walker: Walker::ShortFormat,
            kernel: KernelSettings::plain(BasePage::Kib16),
            fake_pinned: 0,
            fragmentation: None,
            advice: None,
        }
    }
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Counts while the workload is measured.
    pub counters: Counters,
    /// Cycles of all counted events.
    pub cycles: f64,
    /// Cycles from the beginning, including those before the measurement.
    pub all_cycles: f64,
    /// Bytes copied since the beginning.
    pub copied_bytes: u64,
    /// Cycles in second-level TLB misses, among `cycles`.
    pub miss_cycles: f64,
    /// Counts of large pages, since the beginning.
    pub statistics: Statistics,
}

impl Figures {
    /// Cycles of an average second-level miss. None without misses.
    pub fn cycles_per_miss(&self) -> Option<f64> {
        let cycles = self.miss_cycles / self.counters.misses as f64;
        Some(cycles).filter(|cycles| cycles.is_finite())
    }
}

/// First byte and length.
type Range = (u64, u64);

/// A process of the workload on the machine.
struct Known {
    /// Its number on the machine.
    own: u32,
    /// Its mappings, by the workload's numbers.
    mappings: Vec<Option<Range>>,
}

/// The workload's processes, by number.
#[derive(Default)]
struct Numbers(Vec<Known>);

impl Numbers {
    fn process(&mut self, machine: &mut Machine, process: u32) -> Result<u32, ItaniumError> {
        while self.0.len() <= process as usize {
            self.0.push(Known {
                own: machine.spawn()?,
                mappings: Vec::new(),
            });
        }
        let known = self.0.get(process as usize);
        known
            .map(|known| known.own)
            .ok_or(ItaniumError::Process(process))
    }

    fn slot(&mut self, process: u32, mapping: u32) -> Option<&mut Option<Range>> {
        let mappings = &mut self.0.get_mut(process as usize)?.mappings;
        if mappings.len() <= mapping as usize {
            mappings.resize(mapping as usize + 1, None);
        }
        mappings.get_mut(mapping as usize)
    }

    fn mapping(&mut self, process: u32, mapping: u32) -> Result<(u32, u64, u64), ItaniumError> {
        let found = self.slot(process, mapping).and_then(|slot| *slot);
        let own = self.0.get(process as usize).map(|known| known.own);
        let unknown = ItaniumError::NotMapped {
            process,
            address: 0,
        };
        let (own, (start, bytes)) = own.zip(found).ok_or(unknown)?;
        Ok((own, start, bytes))
    }
}

/// Runs a workload on a machine. The same setup, workload and seed give the same figures.
///
/// # Errors
/// Invalid settings, or too little memory.
pub fn simulate(setup: &Setup, workload: &Workload, seed: u64) -> Result<Figures, ItaniumError> {
    let mut machine = Machine::new(*setup, seed)?;
    let mut numbers = Numbers::default();
    let mut before = Counters::default();
    workload.play(seed, &mut |event| {
        match event {
            Event::Map {
                process,
                mapping,
                bytes,
                at,
                backing,
            } => {
                let own = numbers.process(&mut machine, process)?;
                let start = machine.mmap(own, bytes, at, backing)?;
                if let Some(slot) = numbers.slot(process, mapping) {
                    *slot = Some((start, bytes));
                }
            }
            Event::Unmap { process, mapping } => {
                let (own, start, bytes) = numbers.mapping(process, mapping)?;
                machine.munmap(own, start, bytes)?;
                if let Some(slot) = numbers.slot(process, mapping) {
                    *slot = None;
                }
            }
            Event::Lock { process, mapping } => {
                let (own, start, bytes) = numbers.mapping(process, mapping)?;
                machine.populate(own, start, bytes)?;
            }
            Event::Touch(touch) => {
                let (own, start, _) = numbers.mapping(touch.process, touch.mapping)?;
                machine.work(touch.useful_cycles.into());
                machine.access(own, start + touch.offset, touch.write, touch.references)?;
            }
            Event::Measure => before = machine.counters(),
        }
        Ok(())
    })?;
    // Large runs are checked once, in debug builds.
    debug_assert_eq!(machine.check(), Ok(()));
    let counters = machine.counters().since(before);
    let costs = &setup.processor.costs;
    Ok(Figures {
        counters,
        cycles: counters.cycles(costs, setup.walker),
        copied_bytes: machine.counters().copied_bytes,
        all_cycles: machine.counters().cycles(costs, setup.walker),
        miss_cycles: counters.miss_cycles(costs, setup.walker),
        statistics: machine.kernel().statistics().clone(),
    })
}
