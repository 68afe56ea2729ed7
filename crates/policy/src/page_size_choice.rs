//! The choice of page size: what each size saves in TLB misses and page faults, against the memory
//! and the zeroing that it costs.
//!
//! This file has the best size for the promotion of a region, from the number of aligned blocks of
//! a size that hold the region's pages. [`fault_size_inputs`] has the best size for memory at its
//! first touch, where it is too small or too sparse for a huge page.
//!
//! [`MachinePageProperties::byte_value_in_cores`] sets the price of memory. Where a machine offers
//! only one size there is no choice, and nothing of this applies.

pub mod fault_size_inputs;

use crate::machine_page_properties::MachinePageProperties;
use crate::observation::RegionSample;
use crate::page::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, PageOrder};
use crate::saturating_cast::{ratio_or_zero, u16_from_f64};

/// Expected number of naturally aligned blocks of 2^`order` base pages (at most a region) that
/// contain these pages, in this many runs. A block is left out if its first page is left out and no
/// run begins at any of its other pages. A run begins after any left-out page with the same
/// probability.
fn expected_touched_blocks(pages: u16, runs: u16, order: PageOrder) -> f64 {
    let size = order.min(PageOrder::HUGE).pages() as f64;
    let region = f64::from(PAGES_PER_REGION);
    let left = region - f64::from(pages.min(PAGES_PER_REGION));
    if pages == 0 || left < 1.0 {
        return if pages == 0 { 0.0 } else { region / size };
    }
    let elsewhere = ((left - (size - 1.0)) / left).max(0.0);
    let alone = left / region * elsewhere.powi(i32::from(runs.clamp(1, pages)));
    (region / size * (1.0 - alone)).max(1.0)
}

/// Share of a region's page walks that larger pages would spare (0-1). Misses are assumed to be
/// proportional to the TLB entries that the used pages need, beyond the one entry that any page
/// needs. A page of the whole region spares them all.
pub(crate) fn saved_walk_share(
    sample: &RegionSample,
    order: PageOrder,
    machine: &MachinePageProperties,
) -> f64 {
    let by = machine.tlb_entry_order(order);
    if by >= PageOrder::HUGE {
        return 1.0;
    }
    let entries = |order| {
        expected_touched_blocks(sample.accessed, sample.runs, machine.tlb_entry_order(order))
    };
    let (now, then) = (entries(sample.order), entries(order));
    ratio_or_zero(now - then, now - 1.0).clamp(0.0, 1.0)
}

/// Memory that a promotion to this size (at most a huge page) adds, in bytes: the part of each
/// block that is not present.
pub(crate) fn bytes_added_by_promotion(sample: &RegionSample, order: PageOrder) -> f64 {
    if order >= PageOrder::HUGE {
        return (HUGE_PAGE_BYTES - u64::from(sample.present) * BASE_PAGE_BYTES) as f64;
    }
    let held = expected_touched_blocks(sample.present, estimated_present_runs(sample), order)
        * order.bytes() as f64;
    (held - f64::from(sample.present) * BASE_PAGE_BYTES as f64).max(0.0)
}

/// Assumes runs as long as the accessed ones; where nothing was accessed, of one page each.
fn estimated_present_runs(sample: &RegionSample) -> u16 {
    if sample.accessed == 0 {
        return sample.present.min(256);
    }
    let length = f64::from(sample.accessed) / f64::from(sample.runs.max(1));
    u16_from_f64((f64::from(sample.present) / length).ceil())
}

/// The size of the highest value for a region, above its present size and up to a huge page. Its
/// walks are worth `walks_cores` cores. With only one size there is no choice. `None` where no size
/// is worth its memory.
pub(crate) fn most_valuable_order(
    sample: &RegionSample,
    walks_cores: f64,
    machine: &MachinePageProperties,
) -> Option<PageOrder> {
    let sizes = machine.promotable.up_to(PageOrder::HUGE);
    let mut larger = sizes.iter().filter(|order| *order > sample.order);
    if sizes.iter().count() == 1 {
        return larger.next();
    }
    let worth = |order: PageOrder| {
        walks_cores * saved_walk_share(sample, order, machine)
            - machine.byte_value_in_cores() * bytes_added_by_promotion(sample, order)
    };
    let best = larger.map(|order| (order, worth(order)));
    // Of equal ones the smaller.
    let best = best.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.filter(|(_, worth)| *worth > 0.0).map(|(order, _)| order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::PageOrderSet;
    use crate::test_support::{sample, sample_in_runs};
    use proptest::prelude::*;

    const K64: PageOrder = PageOrder::CONTIGUOUS;

    fn contiguous_machine() -> MachinePageProperties {
        let sizes = PageOrderSet::HUGE.with(K64);
        MachinePageProperties {
            tlb: sizes,
            promotable: sizes,
            cores: 4.0,
            memory_bytes: 16 << 30,
            ..MachinePageProperties::default()
        }
    }

    /// 64 pages of a region in use, in `runs` runs.
    fn in_use(runs: u16) -> RegionSample {
        sample_in_runs(64, runs)
    }

    #[test]
    fn sparse_use_that_lies_together_gets_the_small_size() {
        // 2 MiB would take 1.75 MiB more, worth 0.00044 cores here. 64 KiB saves 56 of 63 entries.
        let dense = in_use(2);
        assert!(saved_walk_share(&dense, K64, &contiguous_machine()) > 0.9);
        assert_eq!(most_valuable_order(&dense, 0.001, &contiguous_machine()), Some(K64));
        // Enough page walks to pay for all of it.
        assert_eq!(most_valuable_order(&dense, 0.1, &contiguous_machine()), Some(PageOrder::HUGE));
        // With little to gain, nothing pays for isolated pages.
        assert_eq!(most_valuable_order(&in_use(64), 0.00002, &contiguous_machine()), None);
    }

    #[test]
    fn a_full_region_gets_the_size_that_spares_most() {
        let full = sample(0, 512);
        assert_eq!(
            most_valuable_order(&full, 0.000_001, &contiguous_machine()),
            Some(PageOrder::HUGE)
        );
    }

    #[test]
    fn without_a_tlb_for_it_a_size_saves_nothing() {
        let both = PageOrderSet::HUGE.with(K64);
        let huge_only =
            MachinePageProperties { promotable: both, ..MachinePageProperties::default() };
        let dense = in_use(2);
        assert!(saved_walk_share(&dense, K64, &huge_only).abs() < 1e-9);
        assert_eq!(most_valuable_order(&dense, 0.001, &huge_only), Some(PageOrder::HUGE));
    }

    #[test]
    fn the_only_size_is_not_weighed() {
        let only =
            MachinePageProperties { memory_bytes: 1 << 30, ..MachinePageProperties::default() };
        assert_eq!(most_valuable_order(&in_use(64), 0.0, &only), Some(PageOrder::HUGE));
    }

    #[test]
    fn a_region_of_the_size_gets_a_larger_one_or_none() {
        let mapped = RegionSample { order: K64, ..in_use(2) };
        assert_eq!(most_valuable_order(&mapped, 0.1, &contiguous_machine()), Some(PageOrder::HUGE));
        assert_eq!(most_valuable_order(&mapped, 0.0001, &contiguous_machine()), None);
    }

    #[test]
    fn simple_cases() {
        assert!(expected_touched_blocks(0, 0, K64).abs() < 1e-9);
        assert!((expected_touched_blocks(1, 1, K64) - 1.0).abs() < 1e-9);
        assert!((expected_touched_blocks(512, 1, K64) - 32.0).abs() < 1e-9);
        assert!((expected_touched_blocks(512, 1, PageOrder::HUGE) - 1.0).abs() < 1e-9);
        assert!((expected_touched_blocks(300, 7, PageOrder::GIANT) - 1.0).abs() < 1e-9);
        assert!((expected_touched_blocks(40, 1, PageOrder::BASE) - 40.0).abs() < 1e-9);
        // One run of 49 pages, which begins anywhere in its first block.
        assert!((expected_touched_blocks(49, 1, K64) - 4.0).abs() < 0.3);
    }

    proptest! {
        /// Compared with a count: pages drawn at random, by runs.
        #[test]
        fn blocks_are_as_many_as_a_count_finds(runs in 1_usize..24, length in 1_usize..20, order in 1_u8..9, seed: u64) {
            let mut number = crate::walk_rate::region_probe_plan::xorshift(seed | 1);
            let mut random = |n: usize| (number() >> 33) as usize % n;
            let (mut sum, mut expected, turns) = (0.0, 0.0, 400);
            for _ in 0..turns {
                let mut page = [false; 512];
                for _ in 0..runs {
                    let first = random(512 - length);
                    page[first..first + length].fill(true);
                }
                let pages = page.iter().filter(|p| **p).count();
                let found = (0..512).filter(|i| page[*i] && (*i == 0 || !page[i - 1])).count();
                let touched = page.chunks(1 << order).filter(|block| block.contains(&true)).count();
                sum += touched as f64;
                let order = PageOrder::new(order).unwrap_or_default();
                expected += expected_touched_blocks(pages as u16, found as u16, order);
            }
            let (counted, expected) = (sum / f64::from(turns), expected / f64::from(turns));
            prop_assert!((expected / counted - 1.0).abs() < 0.15, "{expected} of {counted}");
        }
    }
}
