//! Counts of large pages: those of the thesis' kernel (section 5.5.3), and those of other policies.
//! Counts for policies: misses that a larger page would have prevented, and pages referred to.

use super::{ItaniumMachine, ProcessSpace};
use crate::address::offset_in_region;
use crate::error::Result;
use std::collections::{BTreeMap, BTreeSet};

/// Pages by order, since the machine started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LargePageStatistics {
    /// Sizes chosen at `mmap`: pre-allocated in virtual space.
    pub sized: CountsByOrder,
    /// Pages that got memory at a page fault.
    pub faulted: CountsByOrder,
    /// Pages for which there was no contiguous memory.
    pub failed: CountsByOrder,
    /// Pages split for another reason.
    pub demoted: CountsByOrder,
    /// Pages made of smaller ones.
    pub promoted: CountsByOrder,
    /// Reservations that were given up.
    pub given_up: u64,
    /// Base pages that were moved to free larger blocks.
    pub moved: u64,
    /// The largest number of frames unavailable to others: programs' memory and page tables, and a
    /// pool whether used or not. Reserved and unused frames do not count.
    pub most_frames: u32,
    /// The largest number of frames that were reserved and not used.
    pub most_reserved: u32,
}

/// A number for each order of pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountsByOrder(Vec<u64>);

impl CountsByOrder {
    /// Adds one.
    pub fn increment_order(&mut self, order: u8) {
        let order = usize::from(order);
        if self.0.len() <= order {
            self.0.resize(order + 1, 0);
        }
        self.0[order] += 1;
    }

    /// The largest order with a count above 0.
    pub fn largest_counted_order(&self) -> Option<u8> {
        let largest = self.0.iter().rposition(|count| *count > 0);
        largest.map(|order| order as u8)
    }

    /// The count of this order.
    pub fn count_of_order(&self, order: u8) -> u64 {
        self.0.get(usize::from(order)).copied().unwrap_or(0)
    }

    /// This order's share of all base pages, in per cent. `None` without pages.
    pub fn memory_percent_of_order(&self, order: u8) -> Option<f64> {
        let pages = |order: u8| (self.count_of_order(order) << order) as f64;
        let all: f64 = (0..self.0.len()).map(|order| pages(order as u8)).sum();
        Some(pages(order) / all * 100.0).filter(|percent| percent.is_finite())
    }
}

/// Misses by process, order and first page of the page that would have prevented them.
pub(super) type MissesByPreventingPage = BTreeMap<(u32, u8, u64), u64>;

/// References since the policy last decided which pages are large.
#[derive(Clone, Debug, Default)]
pub(super) struct ReferenceWindow {
    references: u64,
    pages: BTreeSet<(u32, u64)>,
}

impl ItaniumMachine {
    /// Counts a TLB miss that the kernel's handler fills. The nearest page in the TLB decides which
    /// larger pages its other parts would have brought. Makes such a page after enough misses.
    pub(super) fn count_miss_and_promote(&mut self, process: u32, address: u64) -> Result {
        if self.page_size_policy().misses_before_promotion(1).is_none() {
            return Ok(());
        }
        let space = self.process_space(process)?;
        let rid = space.registers.region_id_at(address);
        let page = self.base_page_size().page_of_address(address);
        let entry = space.table.get_entry(page).filter(|entry| entry.present);
        let near = self.mmu.tlb.order_reaching_nearest_entry(
            rid,
            offset_in_region(address),
            self.base_page_size().shift(),
        );
        let near = near.and_then(|order| u8::try_from(order).ok());
        let Some((near, entry)) = near.zip(entry) else {
            return Ok(());
        };
        let mut reached = None;
        for order in near.max(entry.order + 1)..u32::BITS as u8 {
            let first = page & !((1 << order) - 1);
            let Some(enough) = self.page_size_policy().misses_before_promotion(order) else {
                break;
            };
            if !self.allowed_orders().contains(order) {
                continue;
            }
            if !self.is_block_in_anonymous_mapping(process, first, order) {
                break;
            }
            let count = self.misses.entry((process, order, first)).or_default();
            *count += 1;
            self.counters.counted_misses += 1;
            if *count >= enough {
                *count = 0;
                reached = Some((first, order));
            }
        }
        if let Some((first, order)) = reached {
            self.promote_by_copy(process, first, order, false)?;
        }
        Ok(())
    }

    /// After `length` references, pages of `order` are made and split by the policy's decision.
    pub(super) fn count_references_and_resize(
        &mut self,
        process: u32,
        address: u64,
        references: u32,
        length: u64,
        order: u8,
    ) -> Result {
        let page = self.base_page_size().page_of_address(address);
        self.window.pages.insert((process, page));
        self.window.references += u64::from(references);
        if self.window.references < length {
            return Ok(());
        }
        let pages = std::mem::take(&mut self.window).pages;
        let mut referred: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        for (process, page) in pages {
            *referred.entry((process, page >> order)).or_default() += 1;
        }
        for (process, chunk) in self.large_pages_of_order(order) {
            let count = referred.get(&(process, chunk)).copied().unwrap_or(0);
            if !self.page_size_policy().should_be_large(count, 1 << order) {
                let first = chunk << order;
                let purge = self.purge_range_covering(process, first, 1, false)?;
                self.split_ptes_to_base_pages(process, first, order)?;
                self.purge_translations(purge)?;
            }
        }
        for ((process, chunk), count) in referred {
            let first = chunk << order;
            let large = self.page_size_policy().should_be_large(count, 1 << order);
            // A former large page still lies in memory as it did.
            if large
                && self.is_block_in_anonymous_mapping(process, first, order)
                && !self.promote_in_place(process, first, order)?
            {
                self.promote_by_copy(process, first, order, true)?;
            }
        }
        self.update_peak_memory();
        Ok(())
    }

    fn large_pages_of_order(&self, order: u8) -> Vec<(u32, u64)> {
        let spaces = self.spaces.iter().zip(0..);
        let spaces = spaces.filter_map(|(space, process)| Some((space.as_ref()?, process)));
        let of = |(space, process): (&ProcessSpace, u32)| {
            let large = space.table.entries().filter(move |(page, entry)| {
                entry.order == order && entry.present && page % (1 << order) == 0
            });
            let chunks = large.map(move |(page, _)| (process, page >> order));
            chunks.collect::<Vec<_>>()
        };
        spaces.flat_map(of).collect()
    }
}
