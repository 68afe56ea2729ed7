//! Page faults: first touches and copies on write.

use super::policies::Supply;
use super::{CopyOnWrite, Kernel, Purge};
use crate::ItaniumError;
use crate::mmu::{Counters, Pte};

impl Kernel {
    /// Handles a page fault; the caller repeats the access afterwards. Returns the translations to
    /// purge.
    ///
    /// # Errors
    /// No such process; nothing mapped there; a write to read-only memory; no memory.
    pub fn fault(
        &mut self,
        process: u32,
        address: u64,
        write: bool,
        work: &mut Counters,
    ) -> Result<Vec<Purge>, ItaniumError> {
        let page = self.settings.base.page_of(address);
        let space = self.space(process)?;
        let Some((_, mapping)) = space.mapping_of(page) else {
            return Err(ItaniumError::NotMapped { process, address });
        };
        if write && !mapping.writable {
            return Err(ItaniumError::ReadOnly { process, address });
        }
        let entry = space.table.get(page).unwrap_or(Pte::sized(0));
        work.page_faults += 1;
        let purges = if entry.present {
            vec![self.write_shared(process, page, entry, work)?]
        } else {
            match self.supply(&mapping) {
                Supply::AsSized => {
                    self.first_touch(process, page, entry.order, mapping.writable, work)?;
                }
                other => self.supply_page(process, page, other, work)?,
            }
            self.after_first_touch(process, page, work)?
        };
        self.note_use();
        Ok(purges)
    }

    /// Allocates all of the page, or the next smaller one for which there is memory
    /// (`do_anonymous_page` and `down_pte_sp`, thesis, section 5.5.5).
    fn first_touch(
        &mut self,
        process: u32,
        page: u64,
        mut order: u8,
        writable: bool,
        work: &mut Counters,
    ) -> Result<(), ItaniumError> {
        self.ensure_leaf(process, page)?;
        loop {
            let first = page & !((1 << order) - 1);
            if let Some(frame) = self.allocate(order) {
                self.fill(process, first, order, frame, writable, work)?;
                return Ok(());
            }
            if order == 0 {
                return Err(ItaniumError::OutOfMemory(process));
            }
            self.statistics.failed.add(order);
            let lower = self.settings.orders.next_lower(order);
            let table = &mut self.space_mut(process)?.table;
            for page in first..first + (1 << order) {
                table.set(page, Some(Pte::sized(lower)));
            }
            order = lower;
        }
    }

    /// Clears memory and enters it as a page.
    pub(super) fn fill(
        &mut self,
        process: u32,
        first: u64,
        order: u8,
        frame: u32,
        writable: bool,
        work: &mut Counters,
    ) -> Result<(), ItaniumError> {
        self.enter(process, first, order, frame, writable)?;
        self.statistics.faulted.add(order);
        work.zeroed_bytes += self.settings.base.bytes() << order;
        Ok(())
    }

    /// Writes the entries of a page. The leaves for them must exist.
    pub(super) fn enter(
        &mut self,
        process: u32,
        first: u64,
        order: u8,
        frame: u32,
        writable: bool,
    ) -> Result<(), ItaniumError> {
        let table = &mut self.space_mut(process)?.table;
        for (page, frame) in (first..first + (1 << order)).zip(frame..) {
            let entry = Pte {
                frame,
                order,
                present: true,
                writable,
            };
            table.set(page, Some(entry));
        }
        Ok(())
    }

    /// Handles a write to a present page in a writable mapping.
    fn write_shared(
        &mut self,
        process: u32,
        page: u64,
        entry: Pte,
        work: &mut Counters,
    ) -> Result<Purge, ItaniumError> {
        let purge = self.purge(process, page, 1, false)?;
        let (first, order) = (purge.first, entry.order);
        if !self.is_shared(process, first, order)? {
            self.set_writable(process, first, order, true)?;
            return Ok(purge);
        }
        let all_or_none = self.is_unsplittable(page);
        let whole = order > 0 && self.settings.copy_on_write == CopyOnWrite::CopyLarge;
        if whole || all_or_none {
            if self.copy(process, first, order, work)? {
                return Ok(purge);
            }
            self.statistics.failed.add(order);
        }
        if all_or_none {
            return Err(ItaniumError::OutOfMemory(process));
        }
        let shared = self.shared.contains_key(&entry.frame);
        if shared && self.available() == 0 {
            // Return before anything has changed that would need a purge.
            return Err(ItaniumError::OutOfMemory(process));
        }
        if order > 0 {
            self.split_to_base(process, first, order)?;
        }
        if !shared {
            self.set_writable(process, page, 0, true)?;
        } else if !self.copy(process, page, 0, work)? {
            return Err(ItaniumError::OutOfMemory(process));
        }
        Ok(purge)
    }

    /// Gives a page memory of its own. Returns false if there is none.
    fn copy(
        &mut self,
        process: u32,
        first: u64,
        order: u8,
        work: &mut Counters,
    ) -> Result<bool, ItaniumError> {
        let from_pool = self.is_unsplittable(first);
        let pool = self.pool.as_mut().filter(|_| from_pool);
        let found = match pool {
            Some(pool) => pool.allocate(),
            None => self.allocate(order),
        };
        let Some(frame) = found else {
            return Ok(false);
        };
        for (page, frame) in (first..first + (1 << order)).zip(frame..) {
            let table = &mut self.space_mut(process)?.table;
            let before = table.get(page);
            let own = Pte {
                frame,
                order,
                present: true,
                writable: true,
            };
            table.set(page, Some(own));
            if let Some(before) = before {
                self.release(before.frame);
            }
        }
        work.copied_bytes += self.settings.base.bytes() << order;
        Ok(true)
    }

    /// Gives all of a range memory, as `mlock` does, without filling the TLB. Adds the translations
    /// to purge to `purges`, even if it fails.
    ///
    /// # Errors
    /// No such process; an invalid range, or one that is mapped only in part; no memory.
    pub fn populate(
        &mut self,
        process: u32,
        address: u64,
        bytes: u64,
        purges: &mut Vec<Purge>,
        work: &mut Counters,
    ) -> Result<(), ItaniumError> {
        let (first, pages) = self.range(address, bytes)?;
        self.must_be_mapped(process, first, pages)?;
        for page in first..first + pages {
            let there = self.space(process)?.table.get(page);
            if !there.is_some_and(|entry| entry.present) {
                let address = self.settings.base.address_of(page);
                purges.extend(self.fault(process, address, false, work)?);
            }
        }
        Ok(())
    }
}
