//! A processor, as data.

use super::coalesced_page_groups::{CoalescedPageGroup, CoalescedPageGroups};
use super::error::MmuError;
use super::lru_sets::SetShape;
use super::memory_model::MemorySpec;
use super::tlb_spec::{GiantPages, L1TlbSpec, L2TlbSpec, NestedCacheSizes, WalkCacheSizes};
use hawkeye_policy::{PageOrder, PageOrderSet};
use serde::{Deserialize, Serialize};

/// One core and its private resources.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessorSpec {
    /// Name. Not written to files.
    #[serde(skip)]
    pub name: &'static str,
    /// Sources of its figures. Not written to files.
    #[serde(skip)]
    pub source: &'static str,
    /// Cycles per nanosecond.
    pub ghz: f64,
    /// Most instructions per cycle.
    pub width: u32,
    /// Most instructions from the oldest one under way to the youngest. In a measured processor it
    /// counts only those that write a register, which are fewer.
    pub reorder_buffer: u32,
    /// First-level TLB for data.
    pub l1_tlb: L1TlbSpec,
    /// Second-level TLB.
    pub l2_tlb: L2TlbSpec,
    /// Neighbouring pages that one entry of its TLBs can hold.
    #[serde(default)]
    pub groups: CoalescedPageGroups,
    /// Caches of upper page-table entries.
    pub walk_caches: WalkCacheSizes,
    /// Caches for walks of the host's tables in a virtual machine.
    pub nested: NestedCacheSizes,
    /// Page walks that can be under way at the same time.
    pub walkers: u32,
    /// Caches and memory.
    pub memory: MemorySpec,
}

/// Most entries of one TLB or walk cache, and most lines of a cache; no real one is larger.
const MAX_ENTRIES: u32 = 1 << 26;

const MAX_WALK_ENTRIES: u32 = 255;

impl ProcessorSpec {
    /// Sizes that an entry of its TLBs can have beside that of a base page.
    pub fn entry_orders(&self) -> PageOrderSet {
        let CoalescedPageGroups { base, huge } = self.groups;
        let order = |of: PageOrder, group: Option<CoalescedPageGroup>| {
            let order = of.log2_pages() + group?.order;
            PageOrder::new(order as u8)
        };
        let groups = [order(PageOrder::BASE, base), order(PageOrder::HUGE, huge)];
        let pages = [PageOrder::HUGE, PageOrder::GIANT];
        groups.into_iter().flatten().chain(pages).collect()
    }

    pub(crate) fn check(&self) -> Result<(), MmuError> {
        let shape = |shape: SetShape| shape.sets().is_some() && shape.entries <= MAX_ENTRIES;
        let l1_tlb = match self.l1_tlb {
            L1TlbSpec::Split { base, huge, giant } => shape(base) && shape(huge) && shape(giant),
            L1TlbSpec::Shared(shared) => shape(shared),
        };
        let sets = "a power of two of whole sets";
        let huge_ways = 1..=self.l2_tlb.shape.ways;
        let counts = [self.width, self.reorder_buffer, self.walkers];
        let giant_ways = match self.l2_tlb.giant {
            GiantPages::Among { ways } => huge_ways.contains(&ways),
            GiantPages::Own(own) => shape(own),
            GiantPages::Nowhere | GiantPages::AsHuge => true,
        };
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let memory = &self.memory;
        let neighbours = memory.neighbours_gb_per_s;
        let bandwidths = [memory.bandwidth_gb_per_s, memory.channel_gb_per_s];
        let speeds = [self.ghz, memory.latency_ns].into_iter().chain(bandwidths);
        let walk_caches = [self.walk_caches, self.nested.walk_caches];
        let entries = walk_caches.iter().flat_map(|c| [c.pde, c.pdpte, c.pml4e]);
        let mut entries = entries.chain([self.nested.tlb]);
        let counts = counts.iter().chain([&memory.fill_buffers, &memory.channels]);
        // Not more than any processor has, and few enough for a linear search.
        let mut few = counts.map(|count| (1..=1 << 16).contains(count));
        let require = |holds: bool, part, allowed| match holds {
            true => Ok(()),
            false => Err(MmuError::Processor { processor: self.name, part, allowed }),
        };
        let large = self.l2_tlb.large.is_none_or(shape);
        let huge = huge_ways.contains(&self.l2_tlb.huge_ways);
        let caches = memory.caches.iter().all(|level| shape(level.shape()));
        let walk_entries = entries.all(|entries| entries <= MAX_WALK_ENTRIES);
        let brought = neighbours.is_finite() && neighbours >= 0.0;
        require(l1_tlb, "the first-level TLB", sets)?;
        require(shape(self.l2_tlb.shape), "the second-level TLB", sets)?;
        require(large, "its part for larger pages", sets)?;
        require(huge, "its ways for huge pages", "1 to all of its ways")?;
        let allowed = "1 to all of its ways, or a power of two of whole sets";
        require(giant_ways, "its part for pages of 1 GiB", allowed)?;
        let part = "the number of entries of a walk cache or nested TLB";
        require(walk_entries, part, "at most 255")?;
        require(caches, "each cache", sets)?;
        let part = "width, reorder buffer, walkers, fill buffers and memory channels";
        require(few.all(|few| few), part, "1 to 65,536 each")?;
        let fast = speeds.into_iter().all(positive);
        require(fast, "clock, latency and bandwidths", "over 0 and finite")?;
        let possible = memory.latency_shape.is_valid();
        require(possible, "how its memory's latency varies", "over 0 per cent each")?;
        let part = "what its neighbours bring into the last level";
        require(brought, part, "at least 0 and finite")?;
        self.groups.check(self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::presets::PROCESSORS;
    use super::*;

    #[test]
    fn a_processor_that_cant_be_is_refused() {
        let good = PROCESSORS[0];
        assert_eq!(good.check(), Ok(()));
        let part_of = |change: fn(&mut ProcessorSpec)| {
            let mut bad = good;
            change(&mut bad);
            match bad.check() {
                Err(MmuError::Processor { part, .. }) => part,
                other => panic!("{other:?}"),
            }
        };
        let l2_tlb = part_of(|p| p.l2_tlb.shape = SetShape::new(1000, 12));
        assert_eq!(l2_tlb, "the second-level TLB");
        let ways = part_of(|p| p.l2_tlb.huge_ways = 0);
        assert_eq!(ways, "its ways for huge pages");
        assert_eq!(part_of(|p| p.memory.caches[2].ways = 0), "each cache");
        assert!(part_of(|p| p.walkers = 0).contains("walkers"));
        assert!(part_of(|p| p.memory.channels = 0).contains("memory channels"));
        assert!(part_of(|p| p.ghz = f64::NAN).contains("clock"));
        assert!(part_of(|p| p.memory.channel_gb_per_s = 0.0).contains("bandwidths"));
        assert!(part_of(|p| p.memory.neighbours_gb_per_s = -1.0).contains("neighbours"));
    }
}
