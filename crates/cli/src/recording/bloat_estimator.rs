//! Estimates the zeros in huge pages from a sample of them, because reading all would cost too
//! much.

use hawkeye_manager::{Machine, Manager};
use hawkeye_policy::{BASE_PAGE_BYTES, PAGES_PER_REGION, ProcessId, RegionAddr};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// Huge pages to read after each sample of a process.
const LOOKED_AT: usize = 16;
/// Time limit of this, for one process and for all that were sampled together.
const TIME: Duration = Duration::from_millis(5);
const TIME_IN_ALL: Duration = Duration::from_millis(20);
/// The latest huge pages read, on which an estimate is based: their number at most.
const KEPT: usize = 64;

#[derive(Debug, Default)]
pub struct BloatEstimator {
    shown: Duration,
    processes: HashMap<ProcessId, ProcessZeroPageSamples>,
}

#[derive(Debug, Default)]
struct ProcessZeroPageSamples {
    /// Zero base pages of each huge page read.
    zeros: VecDeque<u16>,
    huge: u64,
    /// Index of the huge page to start from.
    next: usize,
    looked: Duration,
}

impl ProcessZeroPageSamples {
    /// The huge pages to read now, evenly spaced, and different from the last ones.
    fn choose_huge_pages_to_read(&mut self, huge: &[RegionAddr]) -> Vec<RegionAddr> {
        self.huge = huge.len() as u64;
        let apart = huge.len().div_ceil(LOOKED_AT).max(1);
        self.next = (self.next + 1) % apart;
        huge.iter().skip(self.next).step_by(apart).copied().collect()
    }

    fn add_zero_page_count(&mut self, zeros: u16) {
        if self.zeros.len() == KEPT {
            self.zeros.pop_front();
        }
        self.zeros.push_back(zeros);
    }

    fn estimated_zero_bytes(&self) -> Option<u64> {
        if self.huge == 0 {
            return Some(0);
        }
        let sum: u64 = self.zeros.iter().map(|zeros| u64::from(*zeros)).sum();
        let read = self.zeros.len() as u64;
        (read > 0).then(|| sum * self.huge / read * BASE_PAGE_BYTES)
    }
}

impl BloatEstimator {
    /// Reads huge pages of processes sampled since the last call; not in a sampling window.
    pub fn scan_huge_pages_of_new_samples<M: Machine>(&mut self, manager: &mut Manager<M>) {
        let new = manager.last_samples().samples_after(self.shown);
        let Some(last) = new.last().map(|(at, _)| *at) else { return };
        let mut chosen = Vec::new();
        for (_, sample) in new {
            // Of shared memory recovery takes nothing back, so its zeros are no bloat.
            let recoverable = sample.regions.iter().filter(|region| region.is_recoverable());
            let huge = recoverable.filter(|region| region.is_huge());
            let huge: Vec<RegionAddr> = huge.map(|region| region.region).collect();
            let estimate = self.processes.entry(sample.process).or_default();
            let regions = estimate.choose_huge_pages_to_read(&huge);
            chosen.push((estimate.looked, sample.process, regions));
        }
        self.shown = last;
        // The time may not suffice for all: the process that has waited longest comes first.
        chosen.sort_by_key(|(looked, process, _)| (*looked, *process));
        let first = manager.machine().now();
        for (_, process, regions) in chosen {
            let machine = manager.machine_mut();
            let begun = machine.now();
            if begun >= first + TIME_IN_ALL {
                break;
            }
            let estimate = self.processes.entry(process).or_default();
            estimate.looked = begun;
            for region in regions {
                // A region that can't be read has ended or was split.
                let Ok(scan) =
                    machine.count_zero_pages_in_huge_page(process, region, PAGES_PER_REGION)
                else {
                    continue;
                };
                estimate.add_zero_page_count(scan.zero_pages);
                if machine.now() >= begun + TIME {
                    break;
                }
            }
        }
        let seen = manager.last_samples();
        self.processes.retain(|process, _| seen.footprint(*process).is_some());
    }

    /// Estimate for a process, in bytes; `None` until one of its huge pages was read.
    pub fn estimated_zero_bytes(&self, process: ProcessId) -> Option<u64> {
        self.processes.get(&process)?.estimated_zero_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::FileRegion;
    use hawkeye_test_support::builders::{
        GIB, ScriptedMachine, bloated_part, frequent_sampling_settings, manager_of,
        program_of_parts, region_at_index, run_manager_until, seconds,
    };

    #[test]
    fn zeros_in_shared_memory_are_no_bloat() {
        for (shared, expected) in [(20, 0), (10, 10 * 412 * BASE_PAGE_BYTES)] {
            let mut machine = ScriptedMachine::new(4 * GIB);
            let process = machine.add_program(program_of_parts(&[bloated_part(0, 20, 1.0)]));
            for index in 0..shared {
                let file = FileRegion { inode: 7, device: 1, index };
                machine.files.insert((process, region_at_index(index)), file);
            }
            let mut manager = manager_of(machine, "hawkeye-g", frequent_sampling_settings());
            run_manager_until(&mut manager, seconds(20.0));
            let mut bloat = BloatEstimator::default();
            bloat.scan_huge_pages_of_new_samples(&mut manager);
            assert_eq!(bloat.estimated_zero_bytes(process), Some(expected), "{shared} shared");
        }
    }

    #[test]
    fn every_huge_page_is_read_in_turn() {
        let huge: Vec<_> = (0..100).map(|n| RegionAddr::containing(n << 21)).collect();
        let mut estimate = ProcessZeroPageSamples::default();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..7 {
            let chosen = estimate.choose_huge_pages_to_read(&huge);
            assert!((10..=LOOKED_AT).contains(&chosen.len()));
            seen.extend(chosen);
        }
        assert_eq!(seen.len(), 100);
    }

    #[test]
    fn the_share_found_in_the_sample_is_taken_for_all_huge_pages() {
        let huge: Vec<_> = (0..1000).map(|n| RegionAddr::containing(n << 21)).collect();
        let mut estimate = ProcessZeroPageSamples::default();
        estimate.choose_huge_pages_to_read(&huge);
        assert_eq!(estimate.estimated_zero_bytes(), None);
        for _ in 0..KEPT {
            estimate.add_zero_page_count(512);
        }
        for n in 0..KEPT {
            estimate.add_zero_page_count(if n % 2 == 0 { 128 } else { 0 });
        }
        assert_eq!(estimate.estimated_zero_bytes(), Some(64 * 1000 * 4096));
        estimate.choose_huge_pages_to_read(&[]);
        assert_eq!(estimate.estimated_zero_bytes(), Some(0));
    }
}
