//! Memory at the end of a recording, by kind: private memory, and shared memory by file.

use hawkeye_policy::{
    ProcessId, RegionSample, SampledFile, SampledMemory, SharedMemoryCount, SharedMemoryTotals,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// Files listed at most.
const MOST_FILES: usize = 16;

/// Memory in the regions of the last window of each process that was there at the end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemoryByKind {
    pub private: SampledMemory,
    /// Each part of a file once, whichever processes map it.
    pub shared: SharedMemoryTotals,
    /// Files of shared memory, those with most resident memory first. At most 16.
    pub files: Vec<SharedFileFigures>,
    /// Regions of shared memory that these figures lack, because the report keeps at most 262,144.
    pub shared_regions_left_out: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SharedFileFigures {
    /// Major and minor number of its device, with a colon between them.
    pub device: String,
    pub inode: u64,
    #[serde(flatten)]
    pub memory: SampledMemory,
    /// The processes that map it.
    pub pids: Vec<u32>,
}

impl From<SampledFile> for SharedFileFigures {
    fn from(file: SampledFile) -> Self {
        let (major, minor) = file.device_numbers();
        Self {
            device: format!("{major}:{minor}"),
            inode: file.inode,
            memory: file.memory,
            pids: file.processes.iter().map(|process| process.pid).collect(),
        }
    }
}

/// The last window of one process.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastWindowMemory {
    private: SampledMemory,
    /// Other processes may map it as well.
    pub shared: SampledMemory,
}

impl LastWindowMemory {
    pub fn add_region(&mut self, region: &RegionSample) {
        match region.file {
            Some(_) => self.shared.add_region(region),
            None => self.private.add_region(region),
        }
    }
}

/// The regions of shared memory in the last window of each process. All together are bounded.
#[derive(Debug)]
pub struct LastSharedRegions {
    processes: BTreeMap<ProcessId, SharedRegions>,
    /// Number of regions kept of all processes.
    kept: usize,
    most_regions: usize,
}

#[derive(Debug, Default)]
struct SharedRegions {
    kept: Vec<RegionSample>,
    /// Number of further regions.
    left_out: u64,
}

impl LastSharedRegions {
    /// 512 GiB of memory, for 16 MiB of the report's own.
    pub const MOST_REGIONS: usize = 256 << 10;

    pub fn with_max_regions(most_regions: usize) -> Self {
        Self { processes: BTreeMap::new(), kept: 0, most_regions }
    }

    /// Adds a region to the last window of a process. Private memory is left out.
    pub fn add_region(&mut self, process: ProcessId, region: &RegionSample) {
        if region.file.is_none() {
            return;
        }
        let regions = self.processes.entry(process).or_default();
        if self.kept < self.most_regions {
            self.kept += 1;
            regions.kept.push(*region);
        } else {
            regions.left_out += 1;
        }
    }

    /// Drops the regions of a process.
    pub fn remove_process(&mut self, process: ProcessId) {
        if let Some(removed) = self.processes.remove(&process) {
            self.kept -= removed.kept.len();
        }
    }

    pub fn retain_processes(&mut self, there: impl Fn(ProcessId) -> bool) {
        self.processes.retain(|process, _| there(*process));
        self.kept = self.processes.values().map(|regions| regions.kept.len()).sum();
    }
}

/// Adds up the last windows of processes.
#[derive(Default)]
pub struct MemoryByKindBuilder {
    private: SampledMemory,
    shared: SharedMemoryCount,
    shared_regions_left_out: u64,
}

impl MemoryByKindBuilder {
    pub fn add_process(
        &mut self,
        process: ProcessId,
        window: &LastWindowMemory,
        shared: &LastSharedRegions,
    ) {
        self.private += window.private;
        if let Some(regions) = shared.processes.get(&process) {
            self.shared.add_regions(process, &regions.kept);
            self.shared_regions_left_out += regions.left_out;
        }
    }

    pub fn finish(self) -> MemoryByKind {
        let files = self.shared.files().into_iter().take(MOST_FILES);
        MemoryByKind {
            private: self.private,
            shared: self.shared.totals(),
            files: files.map(SharedFileFigures::from).collect(),
            shared_regions_left_out: self.shared_regions_left_out,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::{FileRegion, RegionAddr};

    fn region(index: u32) -> RegionSample {
        RegionSample {
            file: Some(FileRegion { inode: 7, device: 1, index }),
            ..RegionSample::new_full_and_untouched(RegionAddr::containing(u64::from(index) << 21))
        }
    }

    #[test]
    fn regions_are_bounded_and_those_of_ended_processes_give_their_room_back() {
        let id = |pid| ProcessId { pid, start_ticks: 1 };
        let mut shared = LastSharedRegions::with_max_regions(4);
        let add = |shared: &mut LastSharedRegions, pid, regions: u32| {
            (0..regions).for_each(|index| shared.add_region(id(pid), &region(index)));
        };
        let counts = |shared: &LastSharedRegions, pid| {
            shared.processes.get(&id(pid)).map(|it| (it.kept.len(), it.left_out))
        };
        add(&mut shared, 1, 3);
        add(&mut shared, 2, 3);
        assert_eq!((counts(&shared, 1), counts(&shared, 2)), (Some((3, 0)), Some((1, 2))));
        let private = RegionSample { file: None, ..region(9) };
        shared.add_region(id(3), &private);
        assert_eq!(counts(&shared, 3), None);
        shared.retain_processes(|process| process != id(1));
        // A new window.
        shared.remove_process(id(2));
        add(&mut shared, 2, 3);
        assert_eq!((counts(&shared, 1), counts(&shared, 2)), (None, Some((3, 0))));
        assert_eq!(shared.kept, 3);
    }
}
