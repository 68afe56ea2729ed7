//! Page faults: first touches and copies on write.

use super::policies::FrameSource;
use super::{CopyOnWrite, ItaniumMachine};
use crate::error::{ItaniumError, Result};
use crate::mmu::Pte;

impl ItaniumMachine {
    /// Handles a page fault; the caller repeats the access afterwards.
    pub(super) fn fault(&mut self, process: u32, address: u64, write: bool) -> Result {
        let page = self.base().page_of(address);
        let space = self.space(process)?;
        let Some((_, mapping)) = space.mapping_of(page) else {
            return Err(ItaniumError::NotMapped { process, address });
        };
        if write && !mapping.writable {
            return Err(ItaniumError::ReadOnly { process, address });
        }
        let entry = space.table.entry(page);
        self.counters.page_faults += 1;
        if entry.present {
            self.write_shared(process, page, entry)?;
        } else {
            match self.frame_source(&mapping) {
                FrameSource::AsSized => {
                    self.first_touch(process, page, entry.order, mapping.writable)?
                }
                other => self.supply_page(process, page, other)?,
            }
            while self.promote_next_larger(process, page)? {}
            self.compact()?;
        }
        self.update_peak_use();
        Ok(())
    }

    /// Allocates all of the page, or the next smaller one for which there is memory
    /// (`do_anonymous_page` and `down_pte_sp`, thesis, section 5.5.5).
    fn first_touch(&mut self, process: u32, page: u64, order: u8, writable: bool) -> Result {
        self.ensure_leaf(process, page)?;
        let mut order = order;
        loop {
            let first = page & !((1 << order) - 1);
            if let Some(frame) = self.allocate(order) {
                return self.fill_page(process, first, Pte::present(frame, order, writable));
            }
            if order == 0 {
                return Err(ItaniumError::OutOfMemory(process));
            }
            self.statistics.failed.add(order);
            let lower = self.orders().next_lower(order);
            let table = &mut self.space_mut(process)?.table;
            for page in first..first + (1 << order) {
                table.set(page, Some(Pte::without_memory(lower)));
            }
            order = lower;
        }
    }

    pub(super) fn fill_page(&mut self, process: u32, first: u64, page: Pte) -> Result {
        self.write_entries(process, first, page)?;
        self.statistics.faulted.add(page.order);
        self.counters.zeroed_bytes += self.base().bytes() << page.order;
        Ok(())
    }

    /// Writes the entries of a page, given the first one. The leaves for them must exist.
    pub(super) fn write_entries(&mut self, process: u32, first: u64, page: Pte) -> Result {
        let table = &mut self.space_mut(process)?.table;
        for (at, frame) in (first..first + (1 << page.order)).zip(page.frame..) {
            table.set(at, Some(Pte { frame, ..page }));
        }
        Ok(())
    }

    fn write_shared(&mut self, process: u32, page: u64, entry: Pte) -> Result {
        let purge = self.purge_of_pages(process, page, 1, false)?;
        let (first, order) = (purge.first, entry.order);
        let all_or_none = self.is_unsplittable(page);
        let whole = order > 0 && self.setup.kernel.copy_on_write == CopyOnWrite::CopyLarge;
        if !self.is_shared(process, first, order)? {
            self.set_writable(process, first, order, true)?;
        } else if !((whole || all_or_none) && self.copy_or_count_failure(process, first, order)?) {
            let shared = self.shared.contains_key(&entry.frame);
            // Returns before anything has changed that would need a purge.
            if all_or_none || shared && self.available_frames() == 0 {
                return Err(ItaniumError::OutOfMemory(process));
            }
            if order > 0 {
                self.split_to_base(process, first, order)?;
            }
            if !shared {
                self.set_writable(process, page, 0, true)?;
            } else if !self.copy_page(process, page, 0)? {
                return Err(ItaniumError::OutOfMemory(process));
            }
        }
        self.purge_translations(purge)
    }

    fn copy_or_count_failure(&mut self, process: u32, first: u64, order: u8) -> Result<bool> {
        let copied = self.copy_page(process, first, order)?;
        if !copied {
            self.statistics.failed.add(order);
        }
        Ok(copied)
    }

    /// Gives a page memory of its own. Returns false if there is none.
    fn copy_page(&mut self, process: u32, first: u64, order: u8) -> Result<bool> {
        let from_pool = self.is_unsplittable(first);
        let pool = self.pool.as_mut().filter(|_| from_pool);
        let found = match pool {
            Some(pool) => pool.allocate(),
            None => self.allocate(order),
        };
        let Some(frame) = found else {
            return Ok(false);
        };
        self.release_pages(process, first, 1 << order)?;
        self.write_entries(process, first, Pte::present(frame, order, true))?;
        self.counters.copied_bytes += self.base().bytes() << order;
        Ok(true)
    }

    /// Gives all of a range memory, as `mlock` does, without filling the TLB.
    ///
    /// # Errors
    /// No such process; an invalid range, or one that is mapped only in part; no memory.
    pub fn populate(&mut self, process: u32, address: u64, bytes: u64) -> Result {
        let (first, pages) = self.mapped_page_range(process, address, bytes)?;
        for page in first..first + pages {
            let there = self.space(process)?.table.get(page);
            if !there.is_some_and(|entry| entry.present) {
                self.fault(process, self.base().address_of(page), false)?;
            }
        }
        Ok(())
    }
}
