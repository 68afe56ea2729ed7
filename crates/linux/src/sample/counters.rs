//! MMU overhead by hardware counters (paper, section 2.4 and Table 4).
//!
//! ```text
//!  events          WalkEventSet: which events count walks on this processor
//!     v
//!  perf_counters   counts them for each thread of a process: perf_event_open
//!     v
//!     |-- overhead_meter    cycles in walks over all cycles --> TranslationOverhead
//!     `-- instruction_rate  instructions over cycles, for trials of huge program text
//! ```
//!
//! Read [`CountableWalkEvents::find`], which tries the events here, then [`ProcessCounters`], and
//! `arch` to add a processor. None of this has run on hardware with counters. The arithmetic is
//! tested on made-up counts (those of the recording are made up, too), the calls on the kernel's
//! software events.

pub mod events;
pub mod instruction_rate;
pub mod overhead_meter;
pub mod perf_counters;

pub use events::{CountersUnavailable, EventCodeOverrides, WalkEventSet};

use crate::arch;
use crate::error::Result;
use crate::probe::kernel_checks::{TryResult, failed_try};
use crate::probe::probe_child::ProbeChild;
use crate::test_costs;
use events::EVENT_DEVICES;
use hawkeye_policy::TranslationOverhead;
use overhead_meter::{OverheadMeter, ThreadCounts};
use perf_counters::{PerfCounters, PerfEvent};
use perf_event_open_sys::bindings::{PERF_COUNT_HW_CPU_CYCLES, PERF_TYPE_HARDWARE, PERF_TYPE_RAW};
use std::path::Path;

/// Counters that work on this machine.
#[derive(Clone, Debug)]
pub struct CountableWalkEvents {
    events: WalkEventSet,
}

/// The counters of one process.
#[derive(Debug)]
pub struct ProcessCounters {
    events: WalkEventSet,
    source: PerfCounters,
    meter: OverheadMeter,
}

impl CountableWalkEvents {
    /// Finds the events that count page walks here, and tries on this process whether the kernel
    /// counts them.
    pub fn find(overrides: EventCodeOverrides) -> Result<Self, CountersUnavailable> {
        if test_costs::replace_counters() {
            let why = "a test provides the costs".into();
            return Err(CountersUnavailable::NotCounted(why));
        }
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let events = choose_walk_events(&cpuinfo, overrides)?;
        if let Some(name) = events.listed_as.filter(|n| !is_event_listed(EVENT_DEVICES, n)) {
            return Err(CountersUnavailable::NotListed(name));
        }
        PerfCounters::open(std::process::id(), perf_events_of_set(&events))
            .map_err(|error| CountersUnavailable::NotCounted(error.to_string()))?;
        Ok(Self { events })
    }

    /// The events that are counted.
    pub fn events(&self) -> &WalkEventSet {
        &self.events
    }

    /// File descriptors per process of one thread. Each thread takes the same number, but all
    /// threads except the first are left uncounted if none are available.
    pub fn descriptors_per_thread(&self) -> usize {
        perf_events_of_set(&self.events).len()
    }

    /// Counts a process from now on, in user mode: the cost of its own accesses. Fails if no more
    /// counters are available.
    pub fn bind(&self, pid: u32) -> Result<ProcessCounters> {
        Ok(ProcessCounters {
            events: self.events,
            source: PerfCounters::open(pid, perf_events_of_set(&self.events))?,
            meter: OverheadMeter::default(),
        })
    }
}

impl ProcessCounters {
    /// What each thread's counters show now.
    pub fn read_counts(&mut self) -> Result<ThreadCounts> {
        self.source.read_counts()
    }

    /// The overhead since the last call; `None` if the process did not run.
    pub fn overhead_since_last_call(&mut self) -> Result<Option<TranslationOverhead>> {
        let counts = self.read_counts()?;
        Ok(self.meter.overhead_since_last_counts(counts, &self.events))
    }
}

/// The events for the processor that `cpuinfo` describes; the configuration takes precedence.
fn choose_walk_events(
    cpuinfo: &str,
    overrides: EventCodeOverrides,
) -> Result<WalkEventSet, CountersUnavailable> {
    if let Some(load) = overrides.load_walk_cycles {
        return Ok(WalkEventSet {
            name: "",
            walks: (load, overrides.store_walk_cycles),
            cycles_per_count: 1.0,
            cycles: overrides.cycles,
            listed_as: None,
        });
    }
    if overrides != EventCodeOverrides::default() {
        return Err(CountersUnavailable::IncompleteOverride);
    }
    arch::walk_events(cpuinfo)
        .ok_or_else(|| CountersUnavailable::UnknownProcessor(arch::processor_model(cpuinfo)))
}

/// Whether the kernel lists an event by this name in one of the folders of `devices`. The kernel
/// opens an event that it does not list, too; it then counts nothing.
pub(crate) fn is_event_listed(devices: impl AsRef<Path>, name: &str) -> bool {
    let folders = std::fs::read_dir(devices).into_iter().flatten().flatten();
    folders.map(|folder| folder.path()).any(|folder| folder.join("events").join(name).exists())
}

/// Loads, stores if they are counted separately, cycles.
fn perf_events_of_set(events: &WalkEventSet) -> Vec<PerfEvent> {
    let event = |kind, config| PerfEvent { kind, config };
    let raw = |config| event(PERF_TYPE_RAW, config);
    let generic_cycles = event(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES.into());
    let (loads, stores) = events.walks;
    let mut all = vec![raw(loads)];
    all.extend(stores.map(raw));
    all.push(events.cycles.map_or(generic_cycles, raw));
    all
}

/// Counts the events of a throw-away child.
pub(crate) fn try_hardware_counters() -> TryResult {
    let counters = CountableWalkEvents::find(EventCodeOverrides::default()).or_else(failed_try)?;
    let child = ProbeChild::spawn()?;
    counters.bind(child.handle.id.pid).map(drop).or_else(failed_try)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_takes_precedence_over_the_table() {
        let overrides =
            EventCodeOverrides { load_walk_cycles: Some(0x1008), ..EventCodeOverrides::default() };
        let set = choose_walk_events("", overrides).expect("the configuration names the events");
        assert_eq!((set.walks, set.is_estimate()), ((0x1008, None), false));
        let half = EventCodeOverrides { cycles: Some(0x3c), ..EventCodeOverrides::default() };
        let incomplete = Err(CountersUnavailable::IncompleteOverride);
        assert_eq!(choose_walk_events("", half), incomplete);
        let unknown = Err(CountersUnavailable::UnknownProcessor("unknown".into()));
        assert_eq!(choose_walk_events("", EventCodeOverrides::default()), unknown);
    }
}
