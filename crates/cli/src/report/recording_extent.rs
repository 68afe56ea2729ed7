//! The extent of a recording: its time, and the addresses of each process.

use hawkeye_policy::{HUGE_PAGE_BYTES, ProcessId};
use hawkeye_recording::{DecisionRow, RecordingRow};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Number of processes with a map of their coverage at most.
pub const MOST_MAPS: usize = 8;
/// Number of processes with figures at most.
const MOST_PROCESSES: usize = 4096;
/// Processes with their addresses kept at most: only the end shows which ones get a map.
const MOST_CANDIDATES: usize = 64;
/// Blocks of addresses kept per process.
const MOST_BLOCKS: usize = 1 << 16;

/// Result of the first reading.
#[derive(Debug, Default)]
pub struct RecordingExtent {
    /// Time of the last row.
    pub length: Duration,
    processes: BTreeMap<ProcessId, ProcessExtent>,
    /// The largest resident memory of each process.
    rss_peaks: BTreeMap<ProcessId, u64>,
}

#[derive(Debug, Default)]
pub struct ProcessExtent {
    /// Number of its sampling windows.
    pub windows: u32,
    last_window: Option<Duration>,
    /// Present base pages, summed over all windows. The processes with the highest sums are shown.
    weight: u64,
    pub addresses: AddressBlocks,
}

/// The addresses that a process ever used, in blocks. A block grows from one region to as many as
/// are needed to keep all of them.
#[derive(Clone, Debug, Default)]
pub struct AddressBlocks {
    /// A block has 2^`shift` regions.
    shift: u32,
    blocks: BTreeSet<u64>,
}

impl AddressBlocks {
    fn add_address(&mut self, address: u64) {
        self.blocks.insert((address / HUGE_PAGE_BYTES) >> self.shift);
        while self.blocks.len() > MOST_BLOCKS {
            self.shift += 1;
            self.blocks = self.blocks.iter().map(|block| block >> 1).collect();
        }
    }

    /// The first address of each block in order, and the bytes per block.
    pub fn block_starts_and_bytes(&self) -> (Vec<u64>, u64) {
        let bytes = HUGE_PAGE_BYTES << self.shift;
        (self.blocks.iter().map(|block| block * bytes).collect(), bytes)
    }
}

impl RecordingExtent {
    /// Adds a row; rows must come in order of time.
    pub fn add_row(&mut self, row: &RecordingRow) {
        self.length = self.length.max(row.time_since_start());
        self.add_rss_peak(row);
        let RecordingRow::Region(row) = row else { return };
        let reach = self.processes.entry(row.process).or_default();
        if reach.last_window != Some(row.at) {
            reach.last_window = Some(row.at);
            reach.windows += 1;
        }
        reach.weight += u64::from(row.region.present);
        reach.addresses.add_address(row.region.region.start());
        if self.processes.len() > MOST_CANDIDATES {
            keep_largest(&mut self.processes, MOST_CANDIDATES / 2, |reach| reach.weight);
        }
    }

    fn add_rss_peak(&mut self, row: &RecordingRow) {
        let (process, rss_bytes) = match row {
            RecordingRow::Process(row) => (row.process, row.rss_bytes),
            RecordingRow::Region(row) => (row.process, 0),
            RecordingRow::Decision(DecisionRow { process: Some((id, _)), .. }) => (*id, 0),
            _ => return,
        };
        let peak = self.rss_peaks.entry(process).or_default();
        *peak = rss_bytes.max(*peak);
        // A process that is left out here and grows later is added again.
        if self.rss_peaks.len() > 2 * MOST_PROCESSES {
            keep_largest(&mut self.rss_peaks, MOST_PROCESSES, |peak| *peak);
        }
    }

    /// The extents of the processes that have maps, and all processes that have figures.
    pub fn into_processes_to_show(
        mut self,
    ) -> (BTreeMap<ProcessId, ProcessExtent>, BTreeSet<ProcessId>) {
        keep_largest(&mut self.processes, MOST_MAPS, |reach| reach.weight);
        keep_largest(&mut self.rss_peaks, MOST_PROCESSES, |peak| *peak);
        let with_figures = self.processes.keys().chain(self.rss_peaks.keys()).copied().collect();
        (self.processes, with_figures)
    }
}

/// Keeps the `most` processes with the highest weights, and of equal ones those that come first.
fn keep_largest<T>(
    processes: &mut BTreeMap<ProcessId, T>,
    most: usize,
    weight: impl Fn(&T) -> u64,
) {
    let weights = processes.iter().map(|(id, process)| (Reverse(weight(process)), *id));
    let mut weights: Vec<_> = weights.collect();
    weights.sort_unstable();
    for (_, id) in weights.into_iter().skip(most) {
        processes.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_bounded_and_all_covered() {
        let mut addresses = AddressBlocks::default();
        let all: Vec<u64> = (0..(MOST_BLOCKS as u64 * 3)).map(|n| n << 21).collect();
        for address in &all {
            addresses.add_address(*address);
        }
        let (blocks, bytes) = addresses.block_starts_and_bytes();
        assert!(blocks.len() <= MOST_BLOCKS);
        assert_eq!(bytes, 8 << 20);
        let all_bytes = all.len() as u64 * HUGE_PAGE_BYTES;
        assert_eq!(blocks.len() as u64 * bytes, all_bytes);
    }
}
