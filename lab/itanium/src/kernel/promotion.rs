//! Promotion: pages become a larger one in place, or by copying. Splitting: large pages become
//! smaller ones; their memory stays.

use super::policies::FullBlockAction;
use super::{ItaniumMachine, MappingBacking};
use crate::error::Result;
use crate::mmu::Pte;

/// Parts of a page that could be made.
struct ConstituentPages {
    /// Number of base pages with memory.
    present: u64,
    writable: bool,
    /// Frame of the first one, if all parts lie in memory as the large page would.
    joined: Option<u32>,
}

impl ItaniumMachine {
    /// If the policy wants it and all of it has memory. Returns whether it did.
    pub(super) fn promote_block_if_full(&mut self, process: u32, page: u64) -> Result<bool> {
        let when_full = self.page_size_policy().full_block_action();
        if when_full == FullBlockAction::Stay {
            return Ok(false);
        }
        let order = self.process_space(process)?.table.entry_or_empty(page).order;
        let larger = (order + 1..u32::BITS as u8).find(|o| self.allowed_orders().contains(*o));
        let Some(larger) = larger else {
            return Ok(false);
        };
        let first = page & !((1 << larger) - 1);
        if !self.is_block_in_anonymous_mapping(process, first, larger) {
            return Ok(false);
        }
        let reserved = self.reservations.reservation_order_around(process, page);
        match when_full {
            FullBlockAction::Copy => self.promote_by_copy(process, first, larger, false),
            FullBlockAction::Join if reserved.is_some_and(|reserved| reserved >= larger) => {
                self.promote_in_place(process, first, larger)
            }
            FullBlockAction::Join | FullBlockAction::Stay => Ok(false),
        }
    }

    pub(super) fn is_block_in_anonymous_mapping(
        &self,
        process: u32,
        first: u64,
        order: u8,
    ) -> bool {
        let space = self.process_space(process).ok();
        let mapping = space.and_then(|space| space.mapping_around_page(first));
        mapping.is_some_and(|(start, mapping)| {
            mapping.backing == MappingBacking::Anonymous
                && first + (1 << order) <= start + mapping.pages
        })
    }

    /// Returns false if the parts don't lie in place, or if some have no memory.
    pub(super) fn promote_in_place(&mut self, process: u32, first: u64, order: u8) -> Result<bool> {
        let parts = self.constituent_pages(process, first, order)?;
        let page = parts.and_then(|it| Some(Pte::new_present(it.joined?, order, it.writable)));
        page.map_or(Ok(false), |page| self.map_promoted_page(process, first, page))
    }

    /// Makes one page of smaller ones by copying them to neighbouring frames. Parts without memory
    /// are filled only if that is allowed. Returns false if the promotion is not possible.
    pub(super) fn promote_by_copy(
        &mut self,
        process: u32,
        first: u64,
        order: u8,
        fill: bool,
    ) -> Result<bool> {
        let pages = 1 << order;
        let Some(parts) = self.constituent_pages(process, first, order)? else {
            return Ok(false);
        };
        if parts.present < pages
            && (!fill || self.ensure_leaf_tables(process, first, pages).is_err())
        {
            return Ok(false);
        }
        let Some(frame) = self.buddy.allocate_block(order) else {
            self.record_failed_request(order);
            return Ok(false);
        };
        self.drop_owner_of_present_pages(process, first, pages)?;
        let base = self.base_page_size().bytes();
        self.counters.copied_bytes += parts.present * base;
        self.counters.zeroed_bytes += (pages - parts.present) * base;
        self.map_promoted_page(process, first, Pte::new_present(frame, order, parts.writable))
    }

    fn map_promoted_page(&mut self, process: u32, first: u64, page: Pte) -> Result<bool> {
        self.write_page_entries(process, first, page)?;
        self.statistics.promoted.increment_order(page.order);
        self.counters.remaps += 1;
        self.counters.sized_entries += 1 << page.order;
        let purge = self.purge_range_covering(process, first, 1 << page.order, false)?;
        self.purge_translations(purge)?;
        Ok(true)
    }

    /// The parts of a page that could be made. `None` in these cases: nothing is present, something
    /// is already as large, a frame is shared, or some parts are writable and others are not.
    fn constituent_pages(
        &self,
        process: u32,
        first: u64,
        order: u8,
    ) -> Result<Option<ConstituentPages>> {
        let table = &self.process_space(process)?.table;
        let mut known: Option<Pte> = None;
        let mut present = 0;
        let mut joined = None;
        let mut page = first;
        while page < first + (1 << order) {
            let Some(entry) = table.get_entry(page).filter(|entry| entry.present) else {
                joined = None;
                page += 1;
                continue;
            };
            let size = 1 << entry.order;
            let shared = (entry.frame..).take(size).any(|f| self.shared.contains_key(&f));
            let alike = known.is_none_or(|known| known.writable == entry.writable);
            if entry.order >= order || shared || !alike || self.is_pool_frame(entry.frame) {
                return Ok(None);
            }
            if page == first {
                joined = Some(entry.frame).filter(|frame| frame % (1 << order) == 0);
            }
            joined = joined
                .filter(|frame| u64::from(entry.frame - entry.frame.min(*frame)) == page - first);
            known = Some(entry);
            present += size as u64;
            page += size as u64;
        }
        Ok(known.map(|known| ConstituentPages {
            present,
            writable: known.writable,
            joined: joined.filter(|_| present == 1 << order),
        }))
    }
}

impl ItaniumMachine {
    /// The rule of `mmap` covers the parts on either side.
    pub(super) fn split_large_page_at(&mut self, process: u32, page: u64) -> Result {
        let Some(entry) = self.process_space(process)?.table.get_entry(page) else {
            return Ok(());
        };
        let first = page & !((1 << entry.order) - 1);
        if first == page {
            return Ok(());
        }
        let after = first + (1 << entry.order) - page;
        self.cover_by_smaller_pages(process, first, page - first, entry.order)?;
        self.cover_by_smaller_pages(process, page, after, entry.order)?;
        self.statistics.demoted.increment_order(entry.order);
        Ok(())
    }

    pub(super) fn split_ptes_to_base_pages(
        &mut self,
        process: u32,
        first: u64,
        order: u8,
    ) -> Result {
        self.cover_by_smaller_pages(process, first, 1 << order, 0)?;
        self.statistics.demoted.increment_order(order);
        Ok(())
    }

    /// Covers a part of one page by pages of at most this order.
    fn cover_by_smaller_pages(
        &mut self,
        process: u32,
        first: u64,
        pages: u64,
        limit: u8,
    ) -> Result {
        let orders = self.allowed_orders();
        let table = &mut self.process_space_mut(process)?.table;
        for (start, order) in orders.largest_pages_covering(first, pages, limit) {
            table.update_entries(start, 1 << order, |entry| Pte { order, ..entry });
        }
        Ok(())
    }
}
