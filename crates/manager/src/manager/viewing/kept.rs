//! What is kept of observations, and of what was done since, to be looked at.

use crate::machine::Footprint;
use hawkeye_policy::{
    BASE_PAGE_BYTES, Observation, ProcessId, ProcessSample, RegionAddr, RegionSample, Terms,
};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

/// What is kept to be looked at, by process.
pub(in crate::manager) struct Viewing {
    pub(super) footprints: HashMap<ProcessId, Footprint>,
    pub(super) samples: HashMap<ProcessId, Kept>,
    /// Base pages of huge pages that were empty when last seen.
    empty: HashMap<ProcessId, HashMap<RegionAddr, u16>>,
    empty_regions: usize,
    /// Regions in all samples together are kept up to this many.
    most_regions: usize,
}

/// The last sample of a process.
pub(super) struct Kept {
    pub(super) at: Duration,
    pub(super) sample: ProcessSample,
    /// Regions that were promoted (true) or split since.
    changed: HashMap<RegionAddr, bool>,
    /// What it would gain, and when that was reckoned up.
    gain_percent: Cell<Option<(Duration, Option<f64>)>>,
}

impl Kept {
    /// What is reckoned up once holds for so long: anybody may ask, and large processes have 100,000 regions to visit.
    const GAIN_HOLDS: Duration = Duration::from_secs(10);

    /// What it would gain, by `reckon` where that was not known a moment ago.
    pub(super) fn gain_percent(
        &self,
        now: Duration,
        reckon: impl FnOnce() -> Option<f64>,
    ) -> Option<f64> {
        let known = self.gain_percent.get();
        if let Some((at, gain)) = known {
            if now.saturating_sub(at) < Self::GAIN_HOLDS {
                return gain;
            }
        }
        let gain = reckon();
        self.gain_percent.set(Some((now, gain)));
        gain
    }

    /// Whether the region is huge now, as far as that is known.
    pub(super) fn is_huge(&self, region: &RegionSample) -> bool {
        let since = self.changed.get(&region.region).copied();
        since.unwrap_or(region.is_huge())
    }

    /// What was found in a region.
    pub(super) fn region(&self, region: RegionAddr) -> Option<&RegionSample> {
        let regions = &self.sample.regions;
        let index = regions.binary_search_by_key(&region, |sample| sample.region);
        regions.get(index.ok()?)
    }
}

impl Default for Viewing {
    fn default() -> Self {
        Self::holding(Self::MOST_REGIONS)
    }
}

impl Viewing {
    /// 512 GiB of memory, for 10 MiB of our own.
    const MOST_REGIONS: usize = 256 << 10;

    fn holding(most_regions: usize) -> Self {
        Self {
            footprints: HashMap::new(),
            samples: HashMap::new(),
            empty: HashMap::new(),
            empty_regions: 0,
            most_regions,
        }
    }

    pub(in crate::manager) fn note_footprint(&mut self, process: ProcessId, footprint: Footprint) {
        self.footprints.insert(process, footprint);
    }

    pub(in crate::manager) fn retain_processes(&mut self, there: impl Fn(ProcessId) -> bool) {
        self.footprints.retain(|process, _| there(*process));
        self.samples.retain(|process, _| there(*process));
        self.empty.retain(|process, _| there(*process));
        self.count_empty();
    }

    /// A region became huge, and so many of its base pages were not there before.
    pub(in crate::manager) fn note_promoted(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        added: u16,
    ) {
        self.note_change(process, region, true);
        self.note_empty(process, region, added);
    }

    /// A huge page was split.
    pub(in crate::manager) fn note_split(&mut self, process: ProcessId, region: RegionAddr) {
        self.note_change(process, region, false);
        self.note_empty(process, region, 0);
    }

    fn note_change(&mut self, process: ProcessId, region: RegionAddr, huge: bool) {
        if let Some(kept) = self.samples.get_mut(&process) {
            kept.changed.insert(region, huge);
        }
    }

    /// So many base pages of a huge page are known to be empty.
    pub(in crate::manager) fn note_empty(
        &mut self,
        process: ProcessId,
        region: RegionAddr,
        pages: u16,
    ) {
        let full = self.empty_regions >= self.most_regions;
        let regions = self.empty.entry(process).or_default();
        let before = regions.len();
        if pages == 0 {
            regions.remove(&region);
        } else if !full || regions.contains_key(&region) {
            regions.insert(region, pages);
        }
        self.empty_regions = self.empty_regions + regions.len() - before;
    }

    fn count_empty(&mut self) {
        self.empty.retain(|_, regions| !regions.is_empty());
        self.empty_regions = self.empty.values().map(HashMap::len).sum();
    }

    /// Memory of a process that is known to have been empty, in bytes.
    pub(super) fn empty_bytes(&self, process: ProcessId) -> u64 {
        let pages = self
            .empty
            .get(&process)
            .into_iter()
            .flat_map(HashMap::values);
        pages.map(|pages| u64::from(*pages) * BASE_PAGE_BYTES).sum()
    }

    /// Keeps what was sampled, in place of the samples before it. Where that is too much, the
    /// oldest samples go, then the largest.
    pub(in crate::manager) fn keep(&mut self, observation: Observation) {
        let at = observation.at;
        for sample in observation.processes {
            let process = sample.process;
            let kept = Kept {
                at,
                sample,
                changed: HashMap::new(),
                gain_percent: Cell::new(None),
            };
            if let Some(empty) = self.empty.get_mut(&process) {
                // Others split as well: the program itself, and the kernel.
                empty.retain(|region, _| kept.region(*region).is_some_and(RegionSample::is_huge));
            }
            self.samples.insert(process, kept);
        }
        self.count_empty();
        let regions = |kept: &Kept| kept.sample.regions.len();
        let mut kept: usize = self.samples.values().map(regions).sum();
        while kept > self.most_regions {
            let first_to_go = self
                .samples
                .iter()
                .min_by_key(|(_, kept)| (kept.at, Reverse(regions(kept))))
                .map(|(process, _)| *process);
            let Some(gone) = first_to_go.and_then(|process| self.samples.remove(&process)) else {
                break;
            };
            kept -= regions(&gone);
        }
    }

    pub(super) fn terms(&self, process: ProcessId) -> Terms {
        self.samples
            .get(&process)
            .map_or_else(Terms::default, |kept| kept.sample.terms)
    }
}

#[cfg(test)]
mod tests;
