//! Counts for policies: misses that a larger page would have prevented, and pages that were
//! referred to.

use super::{ItaniumMachine, ProcessSpace};
use crate::address::offset_of;
use crate::error::Result;
use std::collections::{BTreeMap, BTreeSet};

/// Misses by process, order and first page of the page that would have prevented them.
pub(super) type MissCounts = BTreeMap<(u32, u8, u64), u64>;

/// References since the policy last decided which pages are large.
#[derive(Clone, Debug, Default)]
pub(super) struct ReferenceWindow {
    references: u64,
    pages: BTreeSet<(u32, u64)>,
}

impl ItaniumMachine {
    /// Counts a TLB miss that the kernel's handler fills. The nearest page in the TLB decides which
    /// larger pages its other parts would have brought. Makes such a page after enough misses.
    pub(super) fn count_miss(&mut self, process: u32, address: u64) -> Result {
        if self.rules().promotion_threshold(1).is_none() {
            return Ok(());
        }
        let space = self.space(process)?;
        let rid = space.registers.rid(address);
        let page = self.base().page_of(address);
        let entry = space.table.get(page).filter(|entry| entry.present);
        let near = self
            .mmu
            .tlb
            .nearest_entry_order(rid, offset_of(address), self.base().shift());
        let near = near.and_then(|order| u8::try_from(order).ok());
        let Some((near, entry)) = near.zip(entry) else {
            return Ok(());
        };
        let mut reached = None;
        for order in near.max(entry.order + 1)..u32::BITS as u8 {
            let first = page & !((1 << order) - 1);
            let Some(enough) = self.rules().promotion_threshold(order) else {
                break;
            };
            if !self.orders().contains(order) {
                continue;
            }
            if !self.is_in_one_mapping(process, first, order) {
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
    pub(super) fn count_references(
        &mut self,
        process: u32,
        address: u64,
        references: u32,
        length: u64,
        order: u8,
    ) -> Result {
        let page = self.base().page_of(address);
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
            if !self.rules().should_be_large(count, 1 << order) {
                let first = chunk << order;
                let purge = self.purge_of_pages(process, first, 1, false)?;
                self.split_to_base(process, first, order)?;
                self.purge_translations(purge)?;
            }
        }
        for ((process, chunk), count) in referred {
            let first = chunk << order;
            let large = self.rules().should_be_large(count, 1 << order);
            // A former large page still lies in memory as it did.
            if large
                && self.is_in_one_mapping(process, first, order)
                && !self.promote_in_place(process, first, order)?
            {
                self.promote_by_copy(process, first, order, true)?;
            }
        }
        self.update_peak_use();
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
