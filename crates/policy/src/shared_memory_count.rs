//! Shared memory of several processes, counted once however many of them map it.

use crate::file_region::{FileRegion, device_numbers};
use crate::observation::{ProcessId, RegionSample};
use crate::page::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::AddAssign;

/// Memory in sampled regions, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampledMemory {
    /// Resident memory.
    pub resident_bytes: u64,
    /// The part of it under huge pages.
    pub huge_bytes: u64,
}

impl SampledMemory {
    /// The memory of these regions together.
    pub fn of_regions<'a>(regions: impl IntoIterator<Item = &'a RegionSample>) -> Self {
        let mut sum = Self::default();
        for region in regions {
            sum.add_region(region);
        }
        sum
    }

    /// Adds the memory of a region.
    pub fn add_region(&mut self, region: &RegionSample) {
        self.add_pages(region.present, region.is_huge());
    }

    fn add_pages(&mut self, present: u16, is_huge: bool) {
        self.resident_bytes += u64::from(present) * BASE_PAGE_BYTES;
        self.huge_bytes += u64::from(is_huge) * HUGE_PAGE_BYTES;
    }
}

impl AddAssign for SampledMemory {
    fn add_assign(&mut self, other: Self) {
        self.resident_bytes += other.resident_bytes;
        self.huge_bytes += other.huge_bytes;
    }
}

/// Shared memory of several processes, each part of a file once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedMemoryTotals {
    /// The memory.
    #[serde(flatten)]
    pub memory: SampledMemory,
    /// Number of files.
    pub files: usize,
    /// Number of processes that map one of them.
    pub processes: usize,
    /// By how much a sum over all processes exceeds `memory`.
    #[serde(skip)]
    pub counted_again: SampledMemory,
}

/// A file of shared memory, as sampled in the processes that map it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampledFile {
    /// Its device, as the kernel encodes it.
    pub device: u32,
    /// Its inode.
    pub inode: u64,
    /// Its memory.
    pub memory: SampledMemory,
    /// The processes that map it, in order.
    pub processes: Vec<ProcessId>,
}

impl SampledFile {
    /// Major and minor number of its device.
    pub fn device_numbers(&self) -> (u32, u32) {
        device_numbers(self.device)
    }
}

/// Adds up the shared memory of processes. Of each part of a file, the process with most of it
/// counts. A file has more resident where processes map different base pages of one region.
#[derive(Clone, Debug, Default)]
pub struct SharedMemoryCount {
    regions: HashMap<FileRegion, MostSeen>,
    mappers: BTreeMap<FileId, BTreeSet<ProcessId>>,
    /// Sum over all mappings.
    mapped: SampledMemory,
}

/// Device and inode.
type FileId = (u32, u64);

#[derive(Clone, Copy, Debug, Default)]
struct MostSeen {
    present: u16,
    is_huge: bool,
}

impl SharedMemoryCount {
    /// Adds the shared memory among the regions of a process. Private memory is left out.
    pub fn add_regions<'a>(
        &mut self,
        process: ProcessId,
        regions: impl IntoIterator<Item = &'a RegionSample>,
    ) {
        let mut last_file: Option<FileId> = None;
        for region in regions {
            let Some(file) = region.file else { continue };
            let most = self.regions.entry(file).or_default();
            most.present = most.present.max(region.present);
            most.is_huge |= region.is_huge();
            self.mapped.add_region(region);
            let id = (file.device, file.inode);
            // Most regions of a file follow each other.
            if last_file != Some(id) {
                self.mappers.entry(id).or_default().insert(process);
                last_file = Some(id);
            }
        }
    }

    /// The sums.
    pub fn totals(&self) -> SharedMemoryTotals {
        let mut memory = SampledMemory::default();
        for most in self.regions.values() {
            memory.add_pages(most.present, most.is_huge);
        }
        let processes: BTreeSet<&ProcessId> = self.mappers.values().flatten().collect();
        SharedMemoryTotals {
            memory,
            files: self.mappers.len(),
            processes: processes.len(),
            counted_again: SampledMemory {
                resident_bytes: self.mapped.resident_bytes - memory.resident_bytes,
                huge_bytes: self.mapped.huge_bytes - memory.huge_bytes,
            },
        }
    }

    /// The files, those with most resident memory first.
    pub fn files(&self) -> Vec<SampledFile> {
        let mut memory: HashMap<FileId, SampledMemory> = HashMap::new();
        for (file, most) in &self.regions {
            let of_file = memory.entry((file.device, file.inode)).or_default();
            of_file.add_pages(most.present, most.is_huge);
        }
        let file = |(id, processes): (&FileId, &BTreeSet<ProcessId>)| SampledFile {
            device: id.0,
            inode: id.1,
            memory: memory.get(id).copied().unwrap_or_default(),
            processes: processes.iter().copied().collect(),
        };
        let mut files: Vec<SampledFile> = self.mappers.iter().map(file).collect();
        files.sort_by_key(|file| Reverse(file.memory.resident_bytes));
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageOrder;
    use crate::test_support::{process, region, sample};

    fn part(inode: u64, index: u32, present: u16, is_huge: bool) -> RegionSample {
        RegionSample {
            region: region(u64::from(index)),
            present,
            order: PageOrder::base_or_huge(is_huge),
            file: Some(FileRegion { inode, device: 1, index }),
            ..sample(0, 0)
        }
    }

    fn memory(pages: u64, huge_pages: u64) -> SampledMemory {
        SampledMemory {
            resident_bytes: pages * BASE_PAGE_BYTES,
            huge_bytes: huge_pages * HUGE_PAGE_BYTES,
        }
    }

    #[test]
    fn a_part_of_a_file_counts_once_whichever_processes_map_it() {
        let mut count = SharedMemoryCount::default();
        // The second process does not have the huge page in its page tables yet.
        count.add_regions(
            process(1),
            &[part(7, 0, 512, true), part(7, 1, 100, false), sample(9, 0)],
        );
        count.add_regions(process(2), &[part(7, 0, 12, false), part(7, 1, 90, false)]);
        count.add_regions(process(3), &[part(8, 1, 500, false)]);
        // One process may map a part twice.
        count.add_regions(process(3), &[part(8, 1, 500, false)]);
        let expected = SharedMemoryTotals {
            memory: memory(512 + 100 + 500, 1),
            files: 2,
            processes: 3,
            counted_again: memory(12 + 90 + 500, 0),
        };
        assert_eq!(count.totals(), expected);
        let file = |inode, memory, pids: &[u32]| SampledFile {
            device: 1,
            inode,
            memory,
            processes: pids.iter().map(|pid| process(*pid)).collect(),
        };
        let files = [file(7, memory(612, 1), &[1, 2]), file(8, memory(500, 0), &[3])];
        assert_eq!(count.files(), files);
    }

    #[test]
    fn a_process_may_map_several_files_in_turn() {
        let mut count = SharedMemoryCount::default();
        let regions = [(7, 0), (7, 1), (8, 0), (7, 2)];
        count.add_regions(process(1), &regions.map(|(inode, index)| part(inode, index, 1, false)));
        count.add_regions(process(2), &[part(7, 0, 1, false)]);
        let files = count.files().into_iter();
        let found: Vec<(u64, Vec<ProcessId>)> = files.map(|it| (it.inode, it.processes)).collect();
        let expected = vec![(7, vec![process(1), process(2)]), (8, vec![process(1)])];
        assert_eq!(found, expected);
    }

    #[test]
    fn private_memory_is_no_shared_memory() {
        let mut count = SharedMemoryCount::default();
        let private = [sample(1, 0), sample(2, 0)];
        count.add_regions(process(1), &private);
        assert_eq!((count.totals(), count.files()), (SharedMemoryTotals::default(), Vec::new()));
        assert_eq!(SampledMemory::of_regions(&private), memory(1024, 0));
    }
}
