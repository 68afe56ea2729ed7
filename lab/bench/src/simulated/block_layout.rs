//! Predicted effects of pages of 64 KiB and of 2 MiB on a program with many allocations of one
//! size.
//! - memory, by Linux's rule for the size at a fault
//! - time to fill it, by the costs of faults and zeroing on this machine
//! - speed, by the simulated processor

use crate::calibrate::CalibratedProcessor;
use hawkeye_linux::probe::mthp_sizes::FirstTouchCosts;
use hawkeye_policy::{BASE_PAGE_BYTES, PageOrder, PageOrderSet};
use hawkeye_sim::mmu::{AccessPattern, HugePageGain, MmuError};
use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks in an address space, each below the previous one as the kernel maps them; sizes in base
/// pages.
#[derive(Clone, Copy, Debug)]
pub struct BlockLayout {
    pub blocks: u64,
    pub block_pages: u64,
    /// Used pages of each block, from its start.
    pub used_pages: u64,
    /// Each block is a separate mapping, because of an inaccessible page above it.
    pub apart: bool,
}

/// Places within 512 pages where the topmost block may end: an address space begins anywhere.
const TOPS: u64 = 16;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct FilledBlocks {
    pub faults: BTreeMap<PageOrder, f64>,
    /// Base pages with memory, over all blocks.
    pub resident_pages: f64,
}

impl BlockLayout {
    /// Distance from the start of one block to that of the next.
    pub fn stride_pages(&self) -> u64 {
        self.block_pages + u64::from(self.apart)
    }

    /// Fills all blocks from the topmost down, once all are mapped, if faults may use these sizes.
    /// The result is an average over the places where the topmost block may end.
    ///
    /// A fault gets the largest naturally aligned block that lies within its mapping and has no
    /// page yet (mm/memory.c, `alloc_anon_folio`; for 2 MiB: mm/huge_memory.c,
    /// `do_huge_pmd_anonymous_page`).
    pub fn simulate_filling(&self, sizes: PageOrderSet) -> FilledBlocks {
        let mut sum = FilledBlocks::default();
        for shift in 0..TOPS {
            let once = self.fill_at_shift(shift, sizes);
            for (order, faults) in once.faults {
                *sum.faults.entry(order).or_default() += faults / TOPS as f64;
            }
            sum.resident_pages += once.resident_pages / TOPS as f64;
        }
        sum
    }

    fn fill_at_shift(&self, shift: u64, sizes: PageOrderSet) -> FilledBlocks {
        let all = self.blocks * self.stride_pages();
        let region = PageOrder::HUGE.pages();
        // Distance of the lowest page from a multiple of a region; nothing below it is mapped.
        let bottom = region + (shift * 37) % region;
        let mut there = vec![false; (bottom + all + region) as usize];
        let mut filled = FilledBlocks::default();
        for block in (0..self.blocks).rev() {
            let begin = bottom + block * self.stride_pages();
            let mapping =
                if self.apart { begin..begin + self.block_pages } else { bottom..bottom + all };
            for page in begin..begin + self.used_pages {
                let (order, given) = page_given_at_touch(page, &mapping, sizes, &there);
                if let Some(pages) = there.get_mut(given.start as usize..given.end as usize) {
                    if !given.is_empty() {
                        pages.fill(true);
                        *filled.faults.entry(order).or_default() += 1.0;
                        filled.resident_pages += (given.end - given.start) as f64;
                    }
                }
            }
        }
        filled
    }
}

/// What a touch of this page gets: its size and its pages; no page if it is present already.
fn page_given_at_touch(
    page: u64,
    mapping: &Range<u64>,
    sizes: PageOrderSet,
    there: &[bool],
) -> (PageOrder, Range<u64>) {
    let is_there = |range: &Range<u64>| {
        let pages = there.get(range.start as usize..range.end as usize);
        pages.is_none_or(|pages| pages.contains(&true))
    };
    let block = |order: PageOrder| {
        let start = page / order.pages() * order.pages();
        start..start + order.pages()
    };
    if is_there(&(page..page + 1)) {
        return (PageOrder::BASE, page..page);
    }
    sizes
        .iter()
        .rev()
        .map(|order| (order, block(order)))
        .find(|(_, range)| {
            mapping.start <= range.start && range.end <= mapping.end && !is_there(range)
        })
        .unwrap_or((PageOrder::BASE, page..page + 1))
}

impl FilledBlocks {
    /// Duration of the filling in seconds: faults, zeroing of what they map, and touches of mapped
    /// pages.
    pub fn fill_seconds(&self, touched_pages: u64, costs: &FirstTouchCosts) -> f64 {
        let faults: f64 = self.faults.values().sum();
        let ns = faults * costs.fault_ns
            + self.resident_pages * costs.zero_base_ns
            + (touched_pages as f64 - faults).max(0.0) * costs.touch_ns;
        ns * 1e-9
    }

    pub fn resident_bytes(&self) -> f64 {
        self.resident_pages * BASE_PAGE_BYTES as f64
    }
}

/// The program on the simulated processor, under base pages and under huge pages. Each of its reads
/// is two accesses, to the table of blocks and to a block. `own_ns` is the time of a read that
/// neither caches nor translation slow down.
pub fn simulate_block_reads(
    here: &CalibratedProcessor,
    layout: &BlockLayout,
    instructions: u32,
    own_ns: f64,
    accesses: u64,
) -> Result<HugePageGain, MmuError> {
    let processor = &here.processor;
    let pattern = AccessPattern::Blocks {
        block_bytes: layout.stride_pages() * BASE_PAGE_BYTES,
        used_bytes: layout.used_pages * BASE_PAGE_BYTES,
        instructions,
    };
    // The blocks and the table.
    let pages = layout.blocks * layout.stride_pages() + layout.blocks / 256 + 1;
    let bytes = pages.next_multiple_of(PageOrder::HUGE.pages()) * BASE_PAGE_BYTES;
    let pace = f64::from(instructions) / (own_ns * processor.ghz);
    here.simulate_program(processor, pattern, bytes, pace, accesses)
}

#[cfg(test)]
mod tests {
    use super::*;

    const K64: PageOrderSet = PageOrderSet::NONE.with(PageOrder::CONTIGUOUS);

    fn layout(apart: bool) -> BlockLayout {
        BlockLayout { blocks: 1000, block_pages: 33, used_pages: 10, apart }
    }

    #[test]
    fn base_pages_are_what_is_used() {
        for apart in [false, true] {
            let filled = layout(apart).simulate_filling(PageOrderSet::NONE);
            assert!((filled.resident_pages - 10_000.0).abs() < 1e-6);
            assert_eq!(filled.faults.keys().collect::<Vec<_>>(), [&PageOrder::BASE]);
        }
    }

    #[test]
    fn ten_pages_lie_in_one_or_two_aligned_blocks() {
        // (10 + 15) / 16 blocks of 16 pages.
        let filled = layout(false).simulate_filling(K64);
        let expected = 1000.0 * 25.0;
        assert!((filled.resident_pages / expected - 1.0).abs() < 0.01, "{filled:?}");
    }

    #[test]
    fn what_does_not_fit_into_its_mapping_stays_with_base_pages() {
        let filled = layout(true).simulate_filling(K64);
        assert!(filled.faults[&PageOrder::BASE] > 100.0, "{filled:?}");
        assert!(filled.resident_pages < 25_000.0, "{filled:?}");
        let huge = layout(true).simulate_filling(PageOrderSet::HUGE);
        assert!(!huge.faults.contains_key(&PageOrder::HUGE), "{huge:?}");
    }

    #[test]
    fn huge_pages_map_all_of_one_large_mapping() {
        let filled = layout(false).simulate_filling(PageOrderSet::HUGE);
        assert!(filled.resident_pages > 0.98 * 33_000.0, "{filled:?}");
    }

    #[test]
    fn time_is_that_of_faults_zeroing_and_touches() {
        let filled = FilledBlocks {
            faults: BTreeMap::from([(PageOrder::CONTIGUOUS, 10.0)]),
            resident_pages: 160.0,
        };
        let costs = FirstTouchCosts { fault_ns: 1000.0, zero_base_ns: 200.0, touch_ns: 50.0 };
        let seconds = filled.fill_seconds(100, &costs);
        assert!((seconds - (10_000.0 + 32_000.0 + 4_500.0) * 1e-9).abs() < 1e-12);
    }
}
