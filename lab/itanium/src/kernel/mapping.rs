//! `mmap`, `munmap` and `mprotect`.

use super::{Backing, Kernel, Mapping, Purge};
use crate::ItaniumError;
use crate::address::{REGION_LIMIT, offset_of};
use crate::mmu::{Counters, Pte};

impl Kernel {
    /// Maps writable memory and returns its first byte. The place is an address, rounded up to a
    /// whole page, or a range that the kernel finds. `advised` is the page order that the program
    /// prefers, for policies that follow such advice.
    ///
    /// # Errors
    /// No such process; an invalid range, or one that has something mapped already; no room; no
    /// memory for page tables.
    pub fn mmap(
        &mut self,
        process: u32,
        bytes: u64,
        at: Option<u64>,
        backing: Backing,
        advised: Option<u8>,
        work: &mut Counters,
    ) -> Result<u64, ItaniumError> {
        let base = self.settings.base;
        let align = base.pages(self.settings.vm_align_bytes);
        let preferred = advised.unwrap_or(0);
        if backing == Backing::Anonymous && at.is_none() {
            let (_, pages) = self.range(0, bytes)?;
            let elsewhere = match self.map_on_pool(process, pages, preferred)? {
                None => self.map_on_heap(process, pages, preferred, align)?,
                pool => pool,
            };
            if let Some(first) = elsewhere {
                return Ok(base.address_of(first));
            }
        }
        let space = self.space(process)?;
        let first = match at {
            Some(address) if self.in_pool_region(address) => {
                return Err(ItaniumError::Range { address, bytes });
            }
            Some(address) if address <= u64::MAX - base.bytes() => {
                self.range(address.next_multiple_of(base.bytes()), bytes)?.0
            }
            Some(address) => return Err(ItaniumError::Range { address, bytes }),
            None => {
                let (_, pages) = self.range(0, bytes)?;
                let placed = space.place(base, pages, align);
                placed.ok_or(ItaniumError::NoRoom(process))?
            }
        };
        let pages = base.pages(bytes);
        if !space.is_free(first, pages) {
            return Err(ItaniumError::Occupied {
                process,
                address: base.address_of(first),
            });
        }
        let mapping = Mapping {
            backing,
            pages,
            writable: true,
            preferred,
        };
        // Memory for page tables may be short: then nothing is mapped.
        self.size(process, first, pages, backing, work)?;
        self.space_mut(process)?.mappings.insert(first, mapping);
        Ok(base.address_of(first))
    }

    /// Writes the sizes of pages without entries (`make_ptes_present`, thesis, section 5.5.4). A
    /// kernel without large pages writes none.
    ///
    /// # Errors
    /// There is no memory for page tables. No page has a size then.
    pub(super) fn size(
        &mut self,
        process: u32,
        first: u64,
        pages: u64,
        backing: Backing,
        work: &mut Counters,
    ) -> Result<(), ItaniumError> {
        if !self.gives_sizes(backing) {
            return Ok(());
        }
        let orders = self.settings.orders;
        for page in first..first + pages {
            self.ensure_leaf(process, page)?;
        }
        for (start, order) in orders.cover(first, pages, u8::MAX) {
            for page in start..start + (1 << order) {
                let table = &mut self.space_mut(process)?.table;
                table.set(page, Some(Pte::sized(order)));
            }
            self.statistics.sized.add(order);
        }
        work.sized_entries += pages;
        Ok(())
    }

    /// Whether pages have their sizes as soon as they are mapped.
    pub(super) fn gives_sizes(&self, backing: Backing) -> bool {
        backing == Backing::Anonymous
            && self.settings.orders.large()
            && self.settings.policy.rules().sizes_at_map()
    }

    /// Unmaps everything in a range.
    ///
    /// # Errors
    /// No such process; an invalid range.
    pub fn munmap(
        &mut self,
        process: u32,
        address: u64,
        bytes: u64,
    ) -> Result<Purge, ItaniumError> {
        let (first, pages) = self.range(address, bytes)?;
        let purge = self.purge(process, first, pages, true)?;
        self.unreserve(process, first, pages);
        self.cut_out(process, first, pages)?;
        for page in first..first + pages {
            let table = &mut self.space_mut(process)?.table;
            if let Some(entry) = table.get(page) {
                table.set(page, None);
                if entry.present {
                    self.release(entry.frame);
                }
            }
        }
        let mappings = &mut self.space_mut(process)?.mappings;
        mappings.retain(|start, _| !(first..first + pages).contains(start));
        self.space_mut(process)?.cut_heap(first, pages);
        Ok(purge)
    }

    /// Allows or forbids writes to a mapped range.
    ///
    /// # Errors
    /// No such process; an invalid range, or one that is mapped only in part.
    pub fn mprotect(
        &mut self,
        process: u32,
        address: u64,
        bytes: u64,
        writable: bool,
    ) -> Result<Purge, ItaniumError> {
        let (first, pages) = self.range(address, bytes)?;
        self.must_be_mapped(process, first, pages)?;
        let purge = self.purge(process, first, pages, false)?;
        self.cut_out(process, first, pages)?;
        let mappings = &mut self.space_mut(process)?.mappings;
        for (_, mapping) in mappings.range_mut(first..first + pages) {
            mapping.writable = writable;
        }
        let mut page = first;
        while page < first + pages {
            let entry = self.space(process)?.table.get(page);
            let order = entry.map_or(0, |entry| entry.order);
            if entry.is_some_and(|entry| entry.present) {
                let allowed = writable && !self.is_shared(process, page, order)?;
                self.set_writable(process, page, order, allowed)?;
            }
            page += 1 << order;
        }
        Ok(purge)
    }

    /// Whether another process shares a frame of a page.
    pub(super) fn is_shared(
        &self,
        process: u32,
        first: u64,
        order: u8,
    ) -> Result<bool, ItaniumError> {
        let table = &self.space(process)?.table;
        let mut entries = (first..first + (1 << order)).filter_map(|page| table.get(page));
        Ok(entries.any(|entry| self.shared.contains_key(&entry.frame)))
    }

    /// Allows or forbids writes in all entries of a page.
    pub(super) fn set_writable(
        &mut self,
        process: u32,
        first: u64,
        order: u8,
        writable: bool,
    ) -> Result<(), ItaniumError> {
        let table = &mut self.space_mut(process)?.table;
        for page in first..first + (1 << order) {
            let entry = table.get(page).map(|entry| Pte { writable, ..entry });
            table.set(page, entry);
        }
        Ok(())
    }

    /// Splits large pages and mappings at both ends of a range.
    pub(super) fn cut_out(
        &mut self,
        process: u32,
        first: u64,
        pages: u64,
    ) -> Result<(), ItaniumError> {
        for end in [first, first + pages] {
            self.split_at(process, end)?;
            self.space_mut(process)?.cut(end);
        }
        Ok(())
    }

    /// The pages of a range of bytes: the first one and their number.
    pub(super) fn range(&self, address: u64, bytes: u64) -> Result<(u64, u64), ItaniumError> {
        let base = self.settings.base;
        let offset = offset_of(address);
        let (unit, bytes) = match &self.pool {
            Some(pool) if pool.has_region(address) => {
                let unit = base.bytes() << pool.order();
                // Lengths are rounded up, as those of other mappings are.
                (unit, bytes.checked_next_multiple_of(unit).unwrap_or(bytes))
            }
            _ => (base.bytes(), bytes),
        };
        let right = address % unit == 0
            && bytes > 0
            && bytes <= REGION_LIMIT
            && offset <= REGION_LIMIT - bytes;
        if !right {
            return Err(ItaniumError::Range { address, bytes });
        }
        Ok((base.page_of(address), base.pages(bytes)))
    }

    pub(super) fn must_be_mapped(
        &self,
        process: u32,
        first: u64,
        pages: u64,
    ) -> Result<(), ItaniumError> {
        match self.space(process)?.first_unmapped(first, pages) {
            Some(page) => Err(ItaniumError::NotMapped {
                process,
                address: self.settings.base.address_of(page),
            }),
            None => Ok(()),
        }
    }

    /// Maps pages from the pool in the pool's own region and returns the first page. `None` if the
    /// pool has no such region or the program asks for another order. The length is rounded up to
    /// whole pages of the pool.
    fn map_on_pool(
        &mut self,
        process: u32,
        pages: u64,
        preferred: u8,
    ) -> Result<Option<u64>, ItaniumError> {
        let base = self.settings.base;
        let pool = self.pool.as_ref().filter(|pool| pool.order() == preferred);
        let Some((start, order)) = pool.and_then(|pool| Some((pool.region_start()?, pool.order())))
        else {
            return Ok(None);
        };
        let pages = pages.next_multiple_of(1 << order);
        let space = self.space_mut(process)?;
        let placed = space.place_from(base, start, pages, 1 << order);
        let first = placed.ok_or(ItaniumError::NoRoom(process))?;
        let mapping = Mapping {
            backing: Backing::Anonymous,
            pages,
            writable: true,
            preferred,
        };
        space.mappings.insert(first, mapping);
        Ok(Some(first))
    }

    fn in_pool_region(&self, address: u64) -> bool {
        let pool = self.pool.as_ref();
        pool.is_some_and(|pool| pool.has_region(address))
    }

    /// Whether a page is in the pool's region, which holds whole pages of the pool only.
    pub(super) fn is_unsplittable(&self, page: u64) -> bool {
        self.in_pool_region(self.settings.base.address_of(page))
    }
}
