//! Figures of a kernel and its address spaces, for engines, policies and reports: also the page
//! sizes that map them, and mappings too small for a huge page.

use super::region::RegionMapping;
use super::space::{FaultCounts, RegionId, cut_at_regions, first_page};
use super::threads::KernelThreadTimes;
use super::{KernelCosts, Result, SimulatedKernel, SpaceId};
use crate::bits::PageBits;
use crate::memory::{FrameContent, PhysicalMemory};
use hawkeye_policy::{
    BASE_PAGE_BYTES, HUGE_PAGE_BYTES, MemoryUse, OutsideRegions, PAGES_PER_REGION, PageOrder,
    RegionAddr, RegionSample,
};
use std::ops::Range;
use std::time::Duration;

/// Figures of one address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceFigures {
    /// Resident memory.
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
            total_bytes: memory.frames() * BASE_PAGE_BYTES,
            free_bytes: memory.free_frames() * BASE_PAGE_BYTES,
            zeroed_bytes: memory.zeroed_frames() * BASE_PAGE_BYTES,
            cached_bytes: self.reclaim_state.cache.pages() * BASE_PAGE_BYTES,
            swapped_bytes: self.reclaim_state.swap.used * BASE_PAGE_BYTES,
            zeroed_huge_frames: memory.free_huge_frames(FrameContent::Zeroed),
            dirty_huge_frames: memory.free_huge_frames(FrameContent::Dirty),
            reservations: self.huge_frames.reservations.len(),
            broken_reservations: self.huge_frames.reservations.broken,
            fmfi: memory.fmfi(),
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
    pub fn spaces(&self) -> impl Iterator<Item = SpaceId> {
        self.spaces.keys().copied()
    }

    /// CPU time of the kernel's threads.
    pub fn thread_times(&self) -> KernelThreadTimes {
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
    pub fn samples(&self, space: SpaceId) -> Result<Vec<RegionSample>> {
        let regions = self.space(space)?.table.iter();
        let sample = |(region, found): (u64, &RegionMapping)| {
            found.sample(RegionId { space, region }.address())
        };
        Ok(regions.filter_map(sample).collect())
    }

    /// One region, if there is anything in it.
    pub fn sample(&self, space: SpaceId, region: RegionAddr) -> Option<RegionSample> {
        self.region(RegionId::new(space, region))?.sample(region)
    }

    /// Base pages of a region that hold something other than zeros, in memory or in swap.
    pub fn nonzero_pages(&self, space: SpaceId, region: RegionAddr) -> PageBits {
        let found = self.region(RegionId::new(space, region));
        found.map_or(PageBits::EMPTY, |found| found.nonzero)
    }

    /// Base pages of a region that have a frame of their own.
    pub fn present_pages(&self, space: SpaceId, region: RegionAddr) -> PageBits {
        let found = self.region(RegionId::new(space, region));
        found.map_or(PageBits::EMPTY, |found| found.present)
    }

    /// Memory that holds something other than zeros: what the program really uses.
    pub fn useful_bytes(&self, space: SpaceId) -> Result<u64> {
        let regions = self.space(space)?.table.iter();
        let pages = regions.map(|(_, r)| u64::from(r.nonzero.and(r.present).count()));
        Ok(pages.sum::<u64>() * BASE_PAGE_BYTES)
    }

    /// The time to clear a space's access bits, and the time to read them, in sampling.
    pub fn sampling_time(&self, space: SpaceId) -> Result<(Duration, Duration)> {
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

/// Memory in bytes by the order of the pages that map it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappedBySize([u64; Self::ORDERS]);

impl MappedBySize {
    /// Orders that pages can have: 0 to this, exclusive.
    pub const ORDERS: usize = PageOrder::GIANT.number() as usize + 1;

    /// All sizes with the memory that they map, the smallest first.
    pub fn iter(&self) -> impl Iterator<Item = (PageOrder, u64)> {
        let orders = (0..Self::ORDERS as u8).filter_map(PageOrder::new);
        orders.zip(self.0)
    }

    /// Memory that pages of one size map, in bytes.
    pub fn bytes_of_order(&self, order: PageOrder) -> u64 {
        self.0.get(order.number() as usize).copied().unwrap_or(0)
    }

    fn add(&mut self, order: PageOrder, pages: u64) {
        if let Some(bytes) = self.0.get_mut(order.number() as usize) {
            *bytes += pages * BASE_PAGE_BYTES;
        }
    }
}

impl SimulatedKernel {
    /// The memory of an address space, by the size of the pages that map it.
    pub fn mapped_by_size(&self, space: SpaceId) -> Result<MappedBySize> {
        let space = self.space(space)?;
        let mut mapped = MappedBySize::default();
        if space.many_sizes {
            let sizes = space
                .table
                .iter()
                .flat_map(|(_, region)| region.pages_by_size());
            for (order, pages) in sizes {
                mapped.add(order, pages.into());
            }
        } else {
            let huge = space.huge * u64::from(PAGES_PER_REGION);
            mapped.add(PageOrder::HUGE, huge);
            mapped.add(PageOrder::BASE, space.resident - huge);
        }
        Ok(mapped)
    }

    /// Memory of mappings, or of their ends, that no whole region fits in.
    pub fn outside_regions(&self, space: SpaceId) -> Result<OutsideRegions> {
        let owned = self.space(space)?;
        let mut outside = OutsideRegions::default();
        for (start, last) in &owned.mappings {
            for end in pages_outside_whole_regions(*start..*last) {
                for (order, pages) in aligned_blocks(end.clone()) {
                    if let Some(bytes) = outside.mapped_bytes.get_mut(order as usize) {
                        *bytes += pages * BASE_PAGE_BYTES;
                    }
                }
                let pieces = cut_at_regions(end).filter_map(|(region, first, count)| {
                    let found = owned.table.get(region)?;
                    Some(found.present.and(PageBits::range(first, count)).count())
                });
                let pages: u64 = pieces.map(u64::from).sum();
                outside.resident_bytes += pages * BASE_PAGE_BYTES;
            }
        }
        Ok(outside)
    }

    /// Whether one mapping holds all of a region.
    pub fn holds_region(&self, space: SpaceId, region: RegionAddr) -> bool {
        let found = self.spaces.get(&space);
        found.is_some_and(|space| space.holds_region(RegionId::new(space.id, region).region))
    }
}

/// The pages before the first whole region and behind the last; all pages without one.
fn pages_outside_whole_regions(pages: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let per_region = u64::from(PAGES_PER_REGION);
    let first = first_page(pages.start.div_ceil(per_region));
    let last = first_page(pages.end / per_region);
    let parts = if first < last {
        [pages.start..first, last..pages.end]
    } else {
        [pages.start..pages.end, pages.end..pages.end]
    };
    parts.into_iter().filter(|part| !part.is_empty())
}

/// The largest aligned blocks into which pages can be cut: order and pages of each.
fn aligned_blocks(pages: Range<u64>) -> impl Iterator<Item = (u32, u64)> {
    let mut from = pages.start;
    std::iter::from_fn(move || {
        let left = pages.end.checked_sub(from).filter(|left| *left > 0)?;
        let aligned = if from == 0 {
            u32::MAX
        } else {
            from.trailing_zeros()
        };
        let order = aligned.min(left.ilog2()).min(PageOrder::HUGE.number() - 1);
        from += 1 << order;
        Some((order, 1 << order))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_cut_into_aligned_blocks() {
        let parts: Vec<_> = pages_outside_whole_regions(500..1600).collect();
        assert_eq!(parts, [500..512, 1536..1600]);
        assert_eq!(pages_outside_whole_regions(512..1024).count(), 0);
        for whole in [520..1030, 1000..1040] {
            let parts: Vec<_> = pages_outside_whole_regions(whole.clone()).collect();
            assert_eq!(parts, std::slice::from_ref(&whole));
        }
        let cut: Vec<_> = aligned_blocks(500..520).collect();
        assert_eq!(cut, [(2, 4), (3, 8), (3, 8)]);
        let cut: Vec<_> = aligned_blocks(0..1024).map(|(order, _)| order).collect();
        assert_eq!(cut, [8; 4]);
    }
}
