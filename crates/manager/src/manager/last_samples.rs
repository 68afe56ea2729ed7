//! The last sample of each process, and changes to the process since.

use crate::machine::ProcessFootprint;
use hawkeye_policy::{
    Event, FileRegion, Observation, PageOrder, ProcessId, ProcessSample, ProcessSettings,
    RegionAddr, RegionSample, SharedMemoryCount, SharedMemoryTotals, TranslationOverhead,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The last sample of each process, and its size. All samples together are bounded. Of a sample
/// that is too large to keep, the figures of the whole process stay.
pub struct LastSamples {
    footprints: BTreeMap<ProcessId, ProcessFootprint>,
    figures: HashMap<ProcessId, SampledFigures>,
    samples: HashMap<ProcessId, LastSample>,
    shared: SharedMemoryTotals,
    /// Upper limit of the regions in all samples together.
    most_regions: usize,
}

/// What the last sample of a process showed of it as a whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampledFigures {
    /// End of its window.
    pub at: Duration,
    /// Cost of address translation to the process, where it could be determined.
    pub overhead: Option<TranslationOverhead>,
    /// CPU time that it uses, in cores.
    pub cpu_cores: f64,
    /// What the machine's rules set for it.
    pub terms: ProcessSettings,
}

/// The last sample of a process.
pub struct LastSample {
    /// End of its window.
    pub at: Duration,
    /// The sample.
    pub sample: ProcessSample,
    /// Regions that were promoted (true) or split since.
    changed: HashMap<RegionAddr, bool>,
}

impl LastSample {
    /// Whether the region is huge now, as far as known.
    pub fn is_huge_now(&self, region: &RegionSample) -> bool {
        self.changed.get(&region.region).copied().unwrap_or(region.is_huge())
    }

    fn has_shared_memory(&self) -> bool {
        self.sample.regions.iter().any(|region| region.file.is_some())
    }

    /// The sample of a region.
    pub fn region(&self, region: RegionAddr) -> Option<&RegionSample> {
        let regions = &self.sample.regions;
        let index = regions.binary_search_by_key(&region, |sample| sample.region);
        regions.get(index.ok()?)
    }
}

impl Default for LastSamples {
    fn default() -> Self {
        Self::with_max_regions(Self::MOST_REGIONS)
    }
}

impl LastSamples {
    /// 512 GiB of memory, for 16 MiB of the manager's own.
    const MOST_REGIONS: usize = 256 << 10;

    fn with_max_regions(most_regions: usize) -> Self {
        Self {
            footprints: BTreeMap::new(),
            figures: HashMap::new(),
            samples: HashMap::new(),
            shared: SharedMemoryTotals::default(),
            most_regions,
        }
    }

    pub(super) fn apply_event(&mut self, event: &Event) {
        match *event {
            Event::Promoted { process, region, order, .. } if order >= PageOrder::HUGE => {
                self.record_hugeness_change(process, region, true);
            }
            Event::Recovered { process, region, .. } => {
                self.record_hugeness_change(process, region, false);
            }
            Event::Measured { process, rss_bytes, huge_bytes } => {
                let footprint =
                    ProcessFootprint { rss_bytes, huge_bytes, has_lost_huge_pages: false };
                self.footprints.insert(process, footprint);
            }
            _ => {}
        }
    }

    pub(super) fn retain_processes(&mut self, there: impl Fn(ProcessId) -> bool) {
        self.footprints.retain(|process, _| there(*process));
        self.figures.retain(|process, _| there(*process));
        let mut shared_memory_changes = false;
        self.samples.retain(|process, seen| {
            let is_there = there(*process);
            shared_memory_changes |= !is_there && seen.has_shared_memory();
            is_there
        });
        if shared_memory_changes {
            self.count_shared_memory();
        }
    }

    fn count_shared_memory(&mut self) {
        let mut count = SharedMemoryCount::default();
        for (process, seen) in &self.samples {
            count.add_regions(*process, &seen.sample.regions);
        }
        self.shared = count.totals();
    }

    fn record_hugeness_change(&mut self, process: ProcessId, region: RegionAddr, huge: bool) {
        if let Some(seen) = self.samples.get_mut(&process) {
            seen.changed.insert(region, huge);
        }
    }

    /// Resident and huge memory of a process, at the last look.
    pub fn footprint(&self, process: ProcessId) -> Option<ProcessFootprint> {
        self.footprints.get(&process).copied()
    }

    /// Resident and huge memory of each process, at the last look, in order of process.
    pub fn footprints(&self) -> Vec<(ProcessId, ProcessFootprint)> {
        let seen = self.footprints.iter();
        seen.map(|(process, seen)| (*process, *seen)).collect()
    }

    /// What the last sample of a process showed of it as a whole; `None` before the first one.
    pub fn figures(&self, process: ProcessId) -> Option<&SampledFigures> {
        self.figures.get(&process)
    }

    /// The last sample of a process; `None` where there is none, or it was too large to keep.
    pub fn sample(&self, process: ProcessId) -> Option<&LastSample> {
        self.samples.get(&process)
    }

    /// Shared memory of all processes, as of these samples.
    pub fn shared_memory(&self) -> SharedMemoryTotals {
        self.shared
    }

    /// The processes that had pages of a part of a file in their page tables, as of these samples,
    /// in order. A process that maps it and has not used it yet is not among them.
    pub fn mappers_of_file_region(&self, file: FileRegion) -> Vec<ProcessId> {
        let maps = |seen: &LastSample| seen.sample.regions.iter().any(|it| it.file == Some(file));
        let mappers = self.samples.iter().filter(|(_, seen)| maps(seen));
        let mut mappers: Vec<ProcessId> = mappers.map(|(process, _)| *process).collect();
        mappers.sort_unstable();
        mappers
    }

    /// The samples of windows that ended after `then` and are still kept. They come in order of
    /// time, and within one window by process.
    pub fn samples_after(&self, then: Duration) -> Vec<(Duration, &ProcessSample)> {
        let newer = self.samples.values().filter(|seen| seen.at > then);
        let mut newer: Vec<_> = newer.map(|seen| (seen.at, &seen.sample)).collect();
        newer.sort_by_key(|(at, sample)| (*at, sample.process));
        newer
    }

    /// Keeps an observation, in place of the previous samples. Where that is too much, the largest
    /// samples are dropped first. An early window of one large process must not cost all others
    /// theirs, so their age does not matter.
    pub(super) fn store_observation(&mut self, observation: Observation) {
        let at = observation.at;
        for sample in observation.processes {
            let process = sample.process;
            let ProcessSample { overhead, cpu_cores, terms, .. } = sample;
            self.figures.insert(process, SampledFigures { at, overhead, cpu_cores, terms });
            let seen = LastSample { at, sample, changed: HashMap::new() };
            self.samples.insert(process, seen);
        }
        let regions = |seen: &LastSample| seen.sample.regions.len();
        let mut kept: usize = self.samples.values().map(regions).sum();
        while kept > self.most_regions {
            let first_to_go = self
                .samples
                .iter()
                .max_by_key(|(process, seen)| (regions(seen), Reverse(seen.at), **process))
                .map(|(process, _)| *process);
            let Some(gone) = first_to_go.and_then(|process| self.samples.remove(&process)) else {
                break;
            };
            kept -= regions(&gone);
        }
        self.count_shared_memory();
    }
}

#[cfg(test)]
mod tests;
