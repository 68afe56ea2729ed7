//! Invariants of pages that are neither base nor huge pages.

use crate::kernel::address_space::AddressSpace;
use crate::kernel::reclaim::regions_of_same_page;
use crate::kernel::region_mapping::RegionMapping;
use crate::memory::AscendingRun;
use crate::page_bits::PageBits;
use hawkeye_policy::PAGES_PER_REGION;

pub(super) fn broken_page_size_rule(
    space: &AddressSpace,
    number: u64,
    region: &RegionMapping,
) -> Option<&'static str> {
    let known = space.many_sizes || region.folios.is_empty() && region.multi_region.is_none();
    if !known {
        return Some("only a space of many sizes has folios or larger pages");
    }
    broken_folio_rule(region).or_else(|| broken_multi_region_rule(space, number, region))
}

fn broken_folio_rule(region: &RegionMapping) -> Option<&'static str> {
    if region.huge.is_some() && !region.folios.is_empty() {
        return Some("a huge page has no folios");
    }
    let mut seen = PageBits::EMPTY;
    for (order, pages) in region.folios.iter() {
        if !(1..9).contains(&order.log2_pages()) {
            return Some("folios have 2 to 256 pages");
        }
        if !pages.and(seen).is_empty() {
            return Some("a page is in one folio only");
        }
        seen = seen.or(pages);
        if pages.fully_covered_blocks(order.log2_pages()) != pages {
            return Some("folios are whole");
        }
        if !pages.is_subset_of(region.present) {
            return Some("all of a folio is present");
        }
        let folio_pages = 1u16 << order.log2_pages();
        let heads = (0..PAGES_PER_REGION).step_by(folio_pages.into());
        let lying = heads.filter(|head| pages.contains(*head)).all(|head| {
            let run = region.frames.runs_within(head, folio_pages).next();
            let aligned = |run: &AscendingRun| run.value % u64::from(folio_pages) == 0;
            run.filter(aligned).is_some_and(|run| run.count == folio_pages)
        });
        if !lying {
            return Some("a folio lies in a row, aligned in memory as in its region");
        }
    }
    None
}

fn broken_multi_region_rule(
    space: &AddressSpace,
    number: u64,
    region: &RegionMapping,
) -> Option<&'static str> {
    let order = region.multi_region?;
    let Some(block) = region.huge else {
        return Some("what is part of a larger page is huge");
    };
    let around = regions_of_same_page(number, order);
    let place = number - around.start;
    let Some(first) = u64::from(block).checked_sub(place) else {
        return Some("a larger page lies in a row");
    };
    if first % order.regions_per_page() != 0 {
        return Some("a larger page is aligned in memory");
    }
    let alike = around.clone().zip(first..).all(|(neighbour, block)| {
        let found = space.table.get(neighbour);
        found.is_some_and(|f| f.multi_region == Some(order) && f.huge.map(u64::from) == Some(block))
    });
    (!alike).then_some("all parts of a larger page are mapped, and lie in a row")
}
