//! Memory at the end of a recording, by kind: private memory, and shared memory by file.

use hawkeye_policy::{
    ProcessId, RegionSample, SampledFile, SampledMemory, SharedMemoryCount, SharedMemoryTotals,
};
use serde::Serialize;

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
#[derive(Debug, Default)]
pub struct LastWindowMemory {
    private: SampledMemory,
    shared: Vec<RegionSample>,
}

impl LastWindowMemory {
    pub fn add_region(&mut self, region: &RegionSample) {
        match region.file {
            Some(_) => self.shared.push(*region),
            None => self.private.add_region(region),
        }
    }

    pub fn shared(&self) -> SampledMemory {
        SampledMemory::of_regions(&self.shared)
    }
}

/// Adds up the last windows of processes.
#[derive(Default)]
pub struct MemoryByKindBuilder {
    private: SampledMemory,
    shared: SharedMemoryCount,
}

impl MemoryByKindBuilder {
    pub fn add_process(&mut self, process: ProcessId, window: &LastWindowMemory) {
        self.private += window.private;
        self.shared.add_regions(process, &window.shared);
    }

    pub fn finish(self) -> MemoryByKind {
        let files = self.shared.files().into_iter().take(MOST_FILES);
        MemoryByKind {
            private: self.private,
            shared: self.shared.totals(),
            files: files.map(SharedFileFigures::from).collect(),
        }
    }
}
