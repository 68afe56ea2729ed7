//! The kernel's state, and the creation and end of address spaces.

use super::address_space::{AddressSpace, RegionId, page_range_of_aligned_bytes};
use super::compaction::CompactionDeferral;
use super::fault_policies::FaultPolicy;
use super::first_touch_stream_detector::FirstTouchStreamDetector;
use super::frames_swapped_by_host::FramesSwappedByHost;
use super::kernel_costs::time_of_operations;
use super::kernel_threads::KernelThreadState;
use super::page_cache::PageCache;
use super::reclaim_lists::ReclaimLists;
use super::region_mapping::RegionMapping;
use super::remapped_regions::RemappedRegions;
use super::reservations::Reservations;
use super::shared_files::SharedFiles;
use super::swap_device::SwapDevice;
use super::{KernelCosts, KernelError, Result, SpaceId};
use crate::memory::{PhysicalMemory, ZoneWatermarks};
use hawkeye_policy::HUGE_PAGE_BYTES;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

/// Largest memory, in bytes. Frames are numbered by 32 bits, and this is far below that limit.
const MOST_BYTES: u64 = 1 << 40;

/// A kernel at work; see the module's documentation.
#[derive(Clone, Debug)]
pub struct SimulatedKernel {
    pub(super) memory: PhysicalMemory,
    pub(super) costs: KernelCosts,
    pub(crate) faults: FaultPolicy,
    pub(super) spaces: BTreeMap<SpaceId, AddressSpace>,
    created_spaces: u32,
    pub(super) files: SharedFiles,
    pub(super) reclaim_state: ReclaimState,
    pub(super) huge_frames: HugePageSupply,
    pub(super) threads: KernelThreadState,
    pub(super) reports: KernelReports,
}

/// What can be taken back when memory runs short, in which order, and from which watermarks on.
#[derive(Clone, Debug)]
pub(super) struct ReclaimState {
    pub(super) watermarks: ZoneWatermarks,
    pub(super) cache: PageCache,
    pub(super) recency: ReclaimLists,
    pub(super) swap: SwapDevice,
}

/// Memory that is kept or made contiguous for huge pages.
#[derive(Clone, Debug, Default)]
pub(super) struct HugePageSupply {
    pub(super) reservations: Reservations,
    pub(super) deferral: CompactionDeferral,
}

/// What the kernel reports to the machine around it: the engine, and the host of a virtual machine.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelReports {
    pub(super) first_touch_streams: FirstTouchStreamDetector,
    pub(super) remapped: RemappedRegions,
    pub(super) hosted: FramesSwappedByHost,
}

impl SimulatedKernel {
    /// A machine after boot: no address spaces, no swap, all memory free and not known to be zero.
    pub fn new(memory_bytes: u64, faults: FaultPolicy, costs: KernelCosts) -> Result<Self> {
        if !(HUGE_PAGE_BYTES..=MOST_BYTES).contains(&memory_bytes) {
            return Err(KernelError::Spec { what: "memory", allowed: "2 MiB to 1 TiB" });
        }
        let memory = PhysicalMemory::new(memory_bytes);
        Ok(Self {
            reclaim_state: ReclaimState {
                watermarks: ZoneWatermarks::of_frames(memory.count_all_frames()),
                cache: PageCache::default(),
                recency: ReclaimLists::default(),
                swap: SwapDevice::new(None),
            },
            memory,
            costs,
            faults,
            spaces: BTreeMap::new(),
            created_spaces: 0,
            files: SharedFiles::default(),
            huge_frames: HugePageSupply::default(),
            threads: KernelThreadState::default(),
            reports: KernelReports::default(),
        })
    }

    /// A new, empty address space.
    pub fn create_space(&mut self) -> SpaceId {
        let id = SpaceId(self.created_spaces);
        self.created_spaces += 1;
        self.spaces.insert(id, AddressSpace::new(id));
        id
    }

    /// Maps private anonymous memory. It takes no significant time and no memory.
    ///
    /// # Errors
    /// The range does not consist of whole pages, or something is mapped in it already.
    pub fn map(&mut self, space: SpaceId, bytes: Range<u64>) -> Result<()> {
        let pages = page_range_of_aligned_bytes(&bytes)?;
        let mapped = self.space_mut(space)?.map(pages);
        mapped.then_some(()).ok_or(KernelError::Occupied(space, bytes))
    }

    /// Ends an address space. Everything in it is freed, and its program waits for that.
    pub fn exit(&mut self, space: SpaceId) -> Result<Duration> {
        let mapped = self.space(space)?.mappings.iter();
        let mapped: Vec<Range<u64>> = mapped.map(|(start, end)| *start..*end).collect();
        let mut time = Duration::ZERO;
        for pages in mapped {
            time += self.unmap_page_range(space, pages)?;
        }
        self.charge_kernel_time(space, time);
        self.spaces.remove(&space);
        self.reports.first_touch_streams.watched.remove(&space);
        self.assert_consistent_in_debug();
        Ok(time)
    }

    pub(crate) fn space(&self, space: SpaceId) -> Result<&AddressSpace> {
        self.spaces.get(&space).ok_or(KernelError::Space(space))
    }

    pub(crate) fn space_mut(&mut self, space: SpaceId) -> Result<&mut AddressSpace> {
        self.spaces.get_mut(&space).ok_or(KernelError::Space(space))
    }

    pub(crate) fn region(&self, at: RegionId) -> Option<&RegionMapping> {
        self.spaces.get(&at.space)?.table.get(at.region)
    }

    pub(crate) fn region_mut(&mut self, at: RegionId) -> Option<&mut RegionMapping> {
        self.spaces.get_mut(&at.space)?.table.get_mut(at.region)
    }

    pub(crate) fn get_or_create_region(&mut self, at: RegionId) -> Result<&mut RegionMapping> {
        Ok(self.space_mut(at.space)?.table.get_or_create(at.region))
    }

    pub(super) fn charge_kernel_time(&mut self, space: SpaceId, time: Duration) {
        if let Some(space) = self.spaces.get_mut(&space) {
            space.charged += time;
        }
    }

    pub(crate) fn freeing_time(&self, base_pages: u64, huge_pages: u64) -> Duration {
        time_of_operations(base_pages, self.costs.free_base_ns)
            + time_of_operations(huge_pages, self.costs.free_huge_ns)
    }
}
