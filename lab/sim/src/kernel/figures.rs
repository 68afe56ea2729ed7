//! Figures of a kernel and its address spaces, for engines, policies and reports.

use super::address_space::{FaultCounts, RegionId};
use super::kernel_threads::KernelThreadTimes;
use super::region_mapping::RegionMapping;
use super::{KernelCosts, Result, SimulatedKernel, SpaceId};
use crate::memory::{FrameContent, PhysicalMemory};
use crate::page_bits::PageBits;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, MemoryUse, RegionAddr, RegionSample};
use std::time::Duration;

/// Figures of one address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceFigures {
    /// Resident memory. Pages of files count in each address space that has mapped them.
    pub rss_bytes: u64,
    /// Memory under huge pages.
    pub huge_bytes: u64,
    /// Memory in swap.
    pub swapped_bytes: u64,
    /// Faults so far.
    pub faults: FaultCounts,
    /// System time that its program was charged so far.
    pub system_time: Duration,
}

/// Figures of the machine's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryFigures {
    /// All memory.
    pub total_bytes: u64,
    /// Free memory.
    pub free_bytes: u64,
    /// Free memory that is known to be zero.
    pub zeroed_bytes: u64,
    /// The page cache.
    pub cached_bytes: u64,
    /// Files of shared memory, each page counted once.
    pub shared_file_bytes: u64,
    /// Swap in use.
    pub swapped_bytes: u64,
    /// Free huge pages that were zeroed.
    pub zeroed_huge_frames: u64,
    /// Other free huge pages.
    pub dirty_huge_frames: u64,
    /// Partly populated reservations.
    pub reservations: u64,
    /// Reservations that were broken because memory was short.
    pub broken_reservations: u64,
    /// Free memory fragmentation index for huge pages (0-1).
    pub fmfi: f64,
}

impl SimulatedKernel {
    /// Figures of one address space.
    pub fn space_figures(&self, space: SpaceId) -> Result<SpaceFigures> {
        let space = self.space(space)?;
        Ok(SpaceFigures {
            rss_bytes: space.resident * BASE_PAGE_BYTES,
            huge_bytes: space.huge * HUGE_PAGE_BYTES,
            swapped_bytes: space.swapped * BASE_PAGE_BYTES,
            faults: space.faults,
            system_time: space.charged,
        })
    }

    /// Figures of the machine's memory.
    pub fn figures(&self) -> MemoryFigures {
        let memory = &self.memory;
        MemoryFigures {
            total_bytes: memory.count_all_frames() * BASE_PAGE_BYTES,
            free_bytes: memory.count_free_frames() * BASE_PAGE_BYTES,
            zeroed_bytes: memory.count_zeroed_frames() * BASE_PAGE_BYTES,
            cached_bytes: self.reclaim_state.cache.count_pages() * BASE_PAGE_BYTES,
            shared_file_bytes: self.shared_file_bytes(),
            swapped_bytes: self.reclaim_state.swap.used * BASE_PAGE_BYTES,
            zeroed_huge_frames: memory.count_free_huge_frames(FrameContent::Zeroed),
            dirty_huge_frames: memory.count_free_huge_frames(FrameContent::Dirty),
            reservations: self.huge_frames.reservations.len(),
            broken_reservations: self.huge_frames.reservations.broken,
            fmfi: memory.unusable_free_index(),
        }
    }

    /// Memory in use as the manager sees it: neither free nor page cache.
    pub fn memory_use(&self) -> MemoryUse {
        let figures = self.figures();
        MemoryUse {
            used_bytes: figures.total_bytes - figures.free_bytes - figures.cached_bytes,
            total_bytes: figures.total_bytes,
        }
    }

    /// Living address spaces, oldest first.
    pub fn space_ids(&self) -> impl Iterator<Item = SpaceId> {
        self.spaces.keys().copied()
    }

    /// CPU time of the kernel's threads.
    pub fn kernel_thread_times(&self) -> KernelThreadTimes {
        self.threads.times
    }

    /// The costs of operations.
    pub fn costs(&self) -> &KernelCosts {
        &self.costs
    }

    /// The frames.
    pub fn memory(&self) -> &PhysicalMemory {
        &self.memory
    }

    /// All regions with anything in them, in address order, with the access figures of reclaim.
    pub fn list_region_samples(&self, space: SpaceId) -> Result<Vec<RegionSample>> {
        let regions = self.space(space)?.table.iter();
        let sample = |(region, found): (u64, &RegionMapping)| {
            found.region_sample(RegionId { space, region }.address())
        };
        Ok(regions.filter_map(sample).collect())
    }

    /// One region, if there is anything in it.
    pub fn region_sample(&self, space: SpaceId, region: RegionAddr) -> Option<RegionSample> {
        self.region(RegionId::new(space, region))?.region_sample(region)
    }

    /// Base pages of a region that hold something other than zeros, in memory or in swap.
    pub fn nonzero_page_bits(&self, space: SpaceId, region: RegionAddr) -> PageBits {
        let at = RegionId::new(space, region);
        let found = self.region(at);
        found.map_or(PageBits::EMPTY, |found| self.nonzero_bits_of_mapping(at, found))
    }

    /// Base pages of a region that have a frame of their own.
    pub fn present_pages(&self, space: SpaceId, region: RegionAddr) -> PageBits {
        let found = self.region(RegionId::new(space, region));
        found.map_or(PageBits::EMPTY, |found| found.present)
    }

    /// Memory that holds something other than zeros: what the program really uses.
    pub fn useful_bytes(&self, space: SpaceId) -> Result<u64> {
        let regions = self.space(space)?.table.iter();
        let pages = regions.map(|(region, found)| {
            let nonzero = self.nonzero_bits_of_mapping(RegionId { space, region }, found);
            u64::from(nonzero.and(found.present).count())
        });
        Ok(pages.sum::<u64>() * BASE_PAGE_BYTES)
    }

    /// The time to clear a space's access bits, and the time to read them, in sampling.
    pub fn sampling_times(&self, space: SpaceId) -> Result<(Duration, Duration)> {
        let space = self.space(space)?;
        let regions = space.table.iter().count() as u64 - space.huge;
        let costs = &self.costs;
        let sum = |base, huge| Duration::from_nanos(regions * base + space.huge * huge);
        Ok((
            sum(costs.clear_region_ns, costs.clear_huge_ns),
            sum(costs.read_region_ns, costs.read_huge_ns),
        ))
    }
}
