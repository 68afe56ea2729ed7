//! Splitting: large pages become smaller ones; their memory stays.

use super::ItaniumMachine;
use crate::error::Result;
use crate::mmu::Pte;

impl ItaniumMachine {
    /// The rule of `mmap` covers the parts on either side.
    pub(super) fn split_pages_at(&mut self, process: u32, page: u64) -> Result {
        let Some(entry) = self.space(process)?.table.get(page) else {
            return Ok(());
        };
        let first = page & !((1 << entry.order) - 1);
        if first == page {
            return Ok(());
        }
        let after = first + (1 << entry.order) - page;
        self.cover_by_smaller_pages(process, first, page - first, entry.order)?;
        self.cover_by_smaller_pages(process, page, after, entry.order)?;
        self.statistics.demoted.add(entry.order);
        Ok(())
    }

    pub(super) fn split_to_base(&mut self, process: u32, first: u64, order: u8) -> Result {
        self.cover_by_smaller_pages(process, first, 1 << order, 0)?;
        self.statistics.demoted.add(order);
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
        let orders = self.orders();
        let table = &mut self.space_mut(process)?.table;
        for (start, order) in orders.cover_by_pages(first, pages, limit) {
            table.update_entries(start, 1 << order, |entry| Pte { order, ..entry });
        }
        Ok(())
    }
}
