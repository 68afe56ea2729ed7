//! Keeps the processor's view in step with what the kernel has mapped.

use super::EngineError;
use super::program::Program;
use crate::kernel::{RegionId, RegionMapping, SimulatedKernel, regions_of_same_page};
use crate::mmu::translation::LeafSize;
use crate::mmu::{CoalescedPageGroup, TlbGroupCondition};
use crate::page_bits::PageBits;
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, RegionAddr};

impl Program {
    /// Updates the processor's view of a region, and of all of the larger page around it.
    pub(super) fn update_mappings(
        &mut self,
        kernel: &SimulatedKernel,
        region: RegionAddr,
    ) -> Result<(), EngineError> {
        let found = kernel.region(RegionId::new(self.space, region));
        let multi_region = found.and_then(|found| found.multi_region);
        let was_giant = self.seen.page_size(region) == Some(LeafSize::Giant);
        if was_giant && multi_region != Some(PageOrder::GIANT) {
            // Its parts are updated one by one below.
            let all = regions_of_page(region, PageOrder::GIANT);
            self.seen.unmap_whole_gib(region.start())?;
            for part in all {
                self.sync_region_mapping(kernel, part)?;
            }
            self.invalidate_tlb_page(region, PageOrder::GIANT);
        } else if let Some(order) = multi_region {
            self.sync_multi_region_page(kernel, region, order)?;
        } else {
            let before = self.sync_region_mapping(kernel, region)?;
            // A region that was not mapped is in no TLB.
            if before.is_some() {
                self.invalidate_tlb_page(region, PageOrder::HUGE);
                self.note_emptied_shared_memory(kernel, region);
            }
        }
        self.changed = true;
        Ok(())
    }

    fn sync_multi_region_page(
        &mut self,
        kernel: &SimulatedKernel,
        region: RegionAddr,
        order: PageOrder,
    ) -> Result<(), EngineError> {
        let group = self.seen.groups().huge.map(|group| group.order);
        let grouped =
            group.is_some_and(|group| order.log2_pages() == PageOrder::HUGE.log2_pages() + group);
        let as_it_is = match order {
            PageOrder::GIANT => self.seen.page_size(region) == Some(LeafSize::Giant),
            _ => grouped && self.seen.is_in_huge_group(region),
        };
        if as_it_is {
            return Ok(());
        }
        for part in regions_of_page(region, order) {
            self.sync_region_mapping(kernel, part)?;
        }
        if order == PageOrder::GIANT {
            self.seen.unmap_whole_gib(region.start())?;
            self.seen.map_giant(region.start())?;
        } else if grouped {
            self.seen.map_huge_group(region)?;
        }
        self.invalidate_tlb_page(region, order);
        Ok(())
    }

    /// Updates one region; returns how it was mapped before.
    fn sync_region_mapping(
        &mut self,
        kernel: &SimulatedKernel,
        region: RegionAddr,
    ) -> Result<Option<LeafSize>, EngineError> {
        let found = kernel.region(RegionId::new(self.space, region));
        let before = self.seen.page_size(region);
        let huge = found.is_some_and(|found| found.huge.is_some());
        if self.runs_in_guest() {
            self.changed_share += self.access_share_of_region(region);
            self.moved.insert(region);
            if before.is_none() && found.is_some() {
                // A guess until `guests/host_mappings.rs` knows better.
                self.seen.set_host_page_size(region, LeafSize::Base)?;
            }
        }
        if huge {
            let grouped = self.seen.is_in_huge_group(region);
            if before != Some(LeafSize::Huge) || grouped {
                self.seen.map_huge(region)?;
            }
            return Ok(before);
        }
        let present = found.map_or(PageBits::EMPTY, |found| found.present);
        let zeros = found.map_or(PageBits::EMPTY, |found| found.zero_mapped);
        let gone = PageBits::FULL.minus(present.or(zeros));
        self.seen.split_huge_page(region);
        self.seen.unmap_pages(region, gone.words())?;
        if !present.is_empty() {
            self.seen.map_pages(region, present.words())?;
        }
        if !zeros.is_empty() {
            self.seen.map_pages_read_only(region, zeros.words())?;
        }
        let groups = self.tlb_groups_of_region(found);
        self.seen.set_groups(region, groups);
        Ok(before)
    }

    /// Groups of base pages of a region that one TLB entry can hold, a bit each.
    fn tlb_groups_of_region(&self, found: Option<&RegionMapping>) -> u128 {
        let (Some(group), Some(found)) = (self.seen.groups().base, found) else {
            return 0;
        };
        let pages = page_bits_in_groups(found, group);
        let count = PAGES_PER_REGION >> group.order;
        let member = |number: &u16| pages.contains(number << group.order);
        (0..count).filter(member).fold(0, |all, number| all | 1 << number)
    }

    fn invalidate_tlb_page(&mut self, region: RegionAddr, order: PageOrder) {
        let bytes = order.regions_per_page() * HUGE_PAGE_BYTES;
        let first = region.start() / bytes * bytes;
        self.core.invalidate(&self.seen, first..first + bytes);
    }

    /// In debug builds: the processor's view equals what the kernel has mapped.
    #[cfg(debug_assertions)]
    pub(super) fn assert_consistent_in_debug(&self, kernel: &SimulatedKernel) {
        use crate::mmu::translation::LeafSize::{Giant, Huge};
        for sample in kernel.list_region_samples(self.space).unwrap_or_default() {
            let region = sample.region;
            let size = self.seen.page_size(region);
            let huge = size >= Some(Huge);
            assert_eq!(huge, sample.is_huge(), "{region} of {}", self.id);
            let giant = sample.order == PageOrder::GIANT;
            assert_eq!(size == Some(Giant), giant, "{region} of {}", self.id);
            let group = self.seen.groups().huge;
            let group = group.and_then(|group| {
                PageOrder::new((PageOrder::HUGE.log2_pages() + group.order) as u8)
            });
            let in_group = group == Some(sample.order);
            let known = self.seen.is_in_huge_group(region);
            assert_eq!(known, in_group, "{region} of {}", self.id);
            if huge {
                continue;
            }
            let seen = self.seen.present(region);
            let pages: u32 = seen.iter().map(|word| word.count_ones()).sum();
            let there = u32::from(sample.present) + u32::from(sample.zero_mapped);
            assert_eq!(pages, there, "{region} of {}", self.id);
            let found = kernel.region(RegionId::new(self.space, region));
            let groups = self.seen.bit_per_base_page_group(region);
            assert_eq!(groups, self.tlb_groups_of_region(found), "{region} of {}", self.id);
        }
    }
}

fn regions_of_page(region: RegionAddr, order: PageOrder) -> impl Iterator<Item = RegionAddr> {
    let all = regions_of_same_page(region.start() / HUGE_PAGE_BYTES, order);
    all.map(|number| RegionAddr::containing(number * HUGE_PAGE_BYTES))
}

/// Base pages of a region that are in groups.
///
/// Where groups must be marked, the kernel must mark them. Linux does so for folios of 64 KiB and
/// more on Arm since 6.9 (`arch/arm64/mm/contpte.c`), as they are mapped. On RISC-V it marks only
/// hugetlb pages. Svnapot for anonymous memory is a series of patches (linux-riscv, April 2026),
/// which work as on Arm; so does this.
pub(super) fn page_bits_in_groups(found: &RegionMapping, group: CoalescedPageGroup) -> PageBits {
    match group.condition {
        TlbGroupCondition::Contiguous => found.page_bits_in_contiguous_blocks(group.order),
        TlbGroupCondition::Marked => {
            let order = PageOrder::new(group.order as u8).unwrap_or_default();
            found.folios.page_bits_of_order_or_larger(order)
        }
    }
}
