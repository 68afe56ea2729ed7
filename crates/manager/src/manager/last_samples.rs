//! The last sample of each process, and changes to the process since.

use crate::machine::ProcessFootprint;
use hawkeye_policy::{
    BASE_PAGE_BYTES, Event, Observation, PageOrder, ProcessId, ProcessSample, RegionAddr,
    RegionSample,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// The last sample of each process, its size, and its known empty memory. The size is bounded.
pub struct LastSamples {
    footprints: BTreeMap<ProcessId, ProcessFootprint>,
    samples: HashMap<ProcessId, LastSample>,
    /// Base pages of huge pages that were empty at the last search.
    empty: HashMap<ProcessId, HashMap<RegionAddr, u16>>,
    /// Upper limit of the regions in all samples together.
    most_regions: usize,
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
    /// 512 GiB of memory, for 10 MiB of the manager's own.
    const MOST_REGIONS: usize = 256 << 10;

    fn with_max_regions(most_regions: usize) -> Self {
        Self {
            footprints: BTreeMap::new(),
            samples: HashMap::new(),
            empty: HashMap::new(),
            most_regions,
        }
    }

    pub(super) fn apply_event(&mut self, event: &Event) {
        match *event {
            Event::Promoted { process, region, order, effect, .. } if order >= PageOrder::HUGE => {
                self.record_hugeness_change(process, region, true);
                self.set_zero_pages(process, region, effect.added_pages);
            }
            Event::Recovered { process, region, .. } => {
                self.record_hugeness_change(process, region, false);
                self.set_zero_pages(process, region, 0);
            }
            Event::Searched { process, region, zero_pages } => {
                self.set_zero_pages(process, region, zero_pages)
            }
            Event::Measured { process, rss_bytes, huge_bytes } => {
                self.footprints.insert(process, ProcessFootprint { rss_bytes, huge_bytes });
            }
            _ => {}
        }
    }

    pub(super) fn retain_processes(&mut self, there: impl Fn(ProcessId) -> bool) {
        self.footprints.retain(|process, _| there(*process));
        self.samples.retain(|process, _| there(*process));
        self.empty.retain(|process, _| there(*process));
    }

    fn record_hugeness_change(&mut self, process: ProcessId, region: RegionAddr, huge: bool) {
        if let Some(seen) = self.samples.get_mut(&process) {
            seen.changed.insert(region, huge);
        }
    }

    fn set_zero_pages(&mut self, process: ProcessId, region: RegionAddr, pages: u16) {
        let kept: usize = self.empty.values().map(HashMap::len).sum();
        let regions = self.empty.entry(process).or_default();
        if pages == 0 {
            regions.remove(&region);
        } else if kept < self.most_regions || regions.contains_key(&region) {
            regions.insert(region, pages);
        }
    }

    /// Memory of a process under huge pages that was empty at the last search, in bytes.
    pub fn zero_bytes_in_huge_pages(&self, process: ProcessId) -> u64 {
        let pages = self.empty.get(&process).into_iter().flat_map(HashMap::values);
        pages.map(|pages| u64::from(*pages) * BASE_PAGE_BYTES).sum()
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

    /// The last sample of a process.
    pub fn sample(&self, process: ProcessId) -> Option<&LastSample> {
        self.samples.get(&process)
    }

    /// The samples of windows that ended after `then` and are still kept. They come in order of
    /// time, and within one window by process.
    pub fn samples_after(&self, then: Duration) -> Vec<(Duration, &ProcessSample)> {
        let newer = self.samples.values().filter(|seen| seen.at > then);
        let mut newer: Vec<_> = newer.map(|seen| (seen.at, &seen.sample)).collect();
        newer.sort_by_key(|(at, sample)| (*at, sample.process));
        newer
    }

    /// Keeps an observation, in place of the previous samples. Where that is too much, the oldest
    /// samples are dropped first, then the largest.
    pub(super) fn store_observation(&mut self, observation: Observation) {
        let at = observation.at;
        for sample in observation.processes {
            let process = sample.process;
            let seen = LastSample { at, sample, changed: HashMap::new() };
            if let Some(empty) = self.empty.get_mut(&process) {
                // The program itself and the kernel split huge pages too.
                empty.retain(|region, _| seen.region(*region).is_some_and(RegionSample::is_huge));
            }
            self.samples.insert(process, seen);
        }
        self.empty.retain(|_, regions| !regions.is_empty());
        let regions = |seen: &LastSample| seen.sample.regions.len();
        let mut kept: usize = self.samples.values().map(regions).sum();
        while kept > self.most_regions {
            let first_to_go = self
                .samples
                .iter()
                .min_by_key(|(_, seen)| (seen.at, Reverse(regions(seen))))
                .map(|(process, _)| *process);
            let Some(gone) = first_to_go.and_then(|process| self.samples.remove(&process)) else {
                break;
            };
            kept -= regions(&gone);
        }
    }
}

#[cfg(test)]
mod tests;
