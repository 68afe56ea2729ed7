//! Page faults: first touches, with memory from the source that a policy chooses, and copies on
//! write.

use super::policies::{ExtentLimit, FirstTouchRequest, FrameSource};
use super::{ItaniumMachine, LargePageCopyOnWrite, MappingBacking, MemoryMapping};
use crate::address::REGION_BITS;
use crate::error::{ItaniumError, Result};
use crate::mmu::Pte;

impl ItaniumMachine {
    /// Handles a page fault; the caller repeats the access afterwards.
    pub(super) fn handle_page_fault(&mut self, process: u32, address: u64, write: bool) -> Result {
        let page = self.base_page_size().page_of_address(address);
        let space = self.process_space(process)?;
        let Some((_, mapping)) = space.mapping_around_page(page) else {
            return Err(ItaniumError::NotMapped(process, address));
        };
        if write && !mapping.writable {
            return Err(ItaniumError::ReadOnly(process, address));
        }
        let entry = space.table.entry_or_empty(page);
        self.counters.page_faults += 1;
        if entry.present {
            self.handle_write_to_shared(process, page, entry)?;
        } else {
            match self.frame_source_of_mapping(&mapping) {
                FrameSource::AsSized => {
                    self.allocate_page_as_sized(process, page, entry.order, mapping.writable)?
                }
                other => self.allocate_page_from_source(process, page, other)?,
            }
            while self.promote_block_if_full(process, page)? {}
            self.run_compaction_if_due()?;
        }
        self.update_peak_memory();
        Ok(())
    }

    /// Allocates all of the page, or the next smaller one for which there is memory
    /// (`do_anonymous_page` and `down_pte_sp`, thesis, section 5.5.5).
    fn allocate_page_as_sized(
        &mut self,
        process: u32,
        page: u64,
        order: u8,
        writable: bool,
    ) -> Result {
        self.ensure_leaf_table(process, page)?;
        let mut order = order;
        loop {
            let first = page & !((1 << order) - 1);
            if let Some(frame) = self.allocate_frames(order) {
                return self.map_zeroed_page(
                    process,
                    first,
                    Pte::new_present(frame, order, writable),
                );
            }
            if order == 0 {
                return Err(ItaniumError::OutOfMemory(process));
            }
            self.statistics.failed.increment_order(order);
            let lower = self.allowed_orders().next_lower_order(order);
            let table = &mut self.process_space_mut(process)?.table;
            for page in first..first + (1 << order) {
                table.set_entry(page, Some(Pte::new_without_memory(lower)));
            }
            order = lower;
        }
    }

    pub(super) fn map_zeroed_page(&mut self, process: u32, first: u64, page: Pte) -> Result {
        self.write_page_entries(process, first, page)?;
        self.statistics.faulted.increment_order(page.order);
        self.counters.zeroed_bytes += self.base_page_size().bytes() << page.order;
        Ok(())
    }

    /// Writes the entries of a page, given the first one. The leaves for them must exist.
    pub(super) fn write_page_entries(&mut self, process: u32, first: u64, page: Pte) -> Result {
        let table = &mut self.process_space_mut(process)?.table;
        for (at, frame) in (first..first + (1 << page.order)).zip(page.frame..) {
            table.set_entry(at, Some(Pte { frame, ..page }));
        }
        Ok(())
    }

    fn handle_write_to_shared(&mut self, process: u32, page: u64, entry: Pte) -> Result {
        let purge = self.purge_range_covering(process, page, 1, false)?;
        let (first, order) = (purge.first, entry.order);
        let all_or_none = self.is_page_in_pool_region(page);
        let whole = order > 0 && self.setup.kernel.copy_on_write == LargePageCopyOnWrite::CopyLarge;
        if !self.has_shared_frame(process, first, order)? {
            self.set_page_writable(process, first, order, true)?;
        } else if !((whole || all_or_none)
            && self.copy_page_or_count_failure(process, first, order)?)
        {
            let shared = self.shared.contains_key(&entry.frame);
            // Returns before anything has changed that would need a purge.
            if all_or_none || shared && self.count_available_frames() == 0 {
                return Err(ItaniumError::OutOfMemory(process));
            }
            if order > 0 {
                self.split_ptes_to_base_pages(process, first, order)?;
            }
            if !shared {
                self.set_page_writable(process, page, 0, true)?;
            } else if !self.copy_page(process, page, 0)? {
                return Err(ItaniumError::OutOfMemory(process));
            }
        }
        self.purge_translations(purge)
    }

    fn copy_page_or_count_failure(&mut self, process: u32, first: u64, order: u8) -> Result<bool> {
        let copied = self.copy_page(process, first, order)?;
        if !copied {
            self.statistics.failed.increment_order(order);
        }
        Ok(copied)
    }

    /// Gives a page memory of its own. Returns false if there is none.
    fn copy_page(&mut self, process: u32, first: u64, order: u8) -> Result<bool> {
        let from_pool = self.is_page_in_pool_region(first);
        let pool = self.pool.as_mut().filter(|_| from_pool);
        let found = match pool {
            Some(pool) => pool.allocate_page(),
            None => self.allocate_frames(order),
        };
        let Some(frame) = found else {
            return Ok(false);
        };
        self.drop_owner_of_present_pages(process, first, 1 << order)?;
        self.write_page_entries(process, first, Pte::new_present(frame, order, true))?;
        self.counters.copied_bytes += self.base_page_size().bytes() << order;
        Ok(true)
    }

    /// Gives all of a range memory, as `mlock` does, without filling the TLB.
    ///
    /// # Errors
    /// No such process; an invalid range, or one that is mapped only in part; no memory.
    pub fn populate_range(&mut self, process: u32, address: u64, bytes: u64) -> Result {
        let (first, pages) = self.mapped_pages_of_byte_range(process, address, bytes)?;
        for page in first..first + pages {
            let there = self.process_space(process)?.table.get_entry(page);
            if !there.is_some_and(|entry| entry.present) {
                self.handle_page_fault(
                    process,
                    self.base_page_size().address_of_page(page),
                    false,
                )?;
            }
        }
        Ok(())
    }
}

impl ItaniumMachine {
    /// The policy's source of memory for a touch in a mapping. Files have base pages only.
    pub(super) fn frame_source_of_mapping(&self, mapping: &MemoryMapping) -> FrameSource {
        if mapping.backing == MappingBacking::File {
            return FrameSource::AsSized;
        }
        self.page_size_policy().first_touch_frame_source(&FirstTouchRequest {
            preferred: mapping.preferred,
            largest: self.allowed_orders().largest_fitting_order(0, u64::MAX, u8::MAX),
            free_percent: self.free_memory_percent(),
        })
    }

    /// Allocates from a source, or a base page where the source has nothing.
    pub(super) fn allocate_page_from_source(
        &mut self,
        process: u32,
        page: u64,
        supply: FrameSource,
    ) -> Result {
        let out_of_memory = ItaniumError::OutOfMemory(process);
        let (first, order, frame) = match supply {
            FrameSource::AsSized => (page, 0, None),
            FrameSource::Page { order, within } => {
                self.allocate_whole_page(process, page, order, within)?
            }
            FrameSource::Pool { or_base } => match self.allocate_pool_page(process, page)? {
                (_, _, None) if !or_base => return Err(out_of_memory),
                found => found,
            },
            FrameSource::Reserve { order, within, preempt } => {
                let (_, order) = self.largest_empty_page_around(process, page, order, within)?;
                (page, 0, self.take_or_reserve_frame(process, page, order, preempt))
            }
        };
        let (first, order, frame) = match frame {
            Some(frame) => (first, order, frame),
            None => (page, 0, self.allocate_frames(0).ok_or(out_of_memory)?),
        };
        if let Err(error) = self.ensure_leaf_tables(process, first, 1 << order) {
            (frame..frame + (1 << order)).for_each(|frame| self.drop_frame_owner(frame));
            return Err(error);
        }
        let mapping = self.process_space(process)?.mapping_around_page(page);
        let writable = mapping.is_some_and(|(_, mapping)| mapping.writable);
        self.map_zeroed_page(process, first, Pte::new_present(frame, order, writable))
    }

    /// Finds a page around `page`: first page, order (at most this one), and frame if it has one.
    fn allocate_whole_page(
        &mut self,
        process: u32,
        page: u64,
        wanted: u8,
        within: ExtentLimit,
    ) -> Result<(u64, u8, Option<u32>)> {
        let (_, mut order) = self.largest_empty_page_around(process, page, wanted, within)?;
        loop {
            let first = page & !((1 << order) - 1);
            let frame = self.allocate_frames(order);
            if frame.is_some() || order == 0 {
                return Ok((first, order, frame));
            }
            self.record_failed_request(order);
            order = self.allowed_orders().next_lower_order(order);
        }
    }

    fn allocate_pool_page(&mut self, process: u32, page: u64) -> Result<(u64, u8, Option<u32>)> {
        let wanted = self.pool.as_ref().map_or(0, |pool| pool.settings.order);
        let (first, order) =
            self.largest_empty_page_around(process, page, wanted, ExtentLimit::Mapping)?;
        let pool = self.pool.as_mut().filter(|_| order == wanted);
        let frame = pool.and_then(|pool| pool.allocate_page());
        if frame.is_none() && order == wanted {
            self.statistics.failed.increment_order(order);
        }
        Ok((first, order, frame))
    }

    /// Finds the largest page of at most this order around `page` that has no memory and stays
    /// within its limits: first page and order (one of the kernel's, any for reservations).
    pub(super) fn largest_empty_page_around(
        &self,
        process: u32,
        page: u64,
        wanted: u8,
        within: ExtentLimit,
    ) -> Result<(u64, u8)> {
        let space = self.process_space(process)?;
        let limits = match within {
            ExtentLimit::Mapping => {
                space.mapping_around_page(page).map(|(first, it)| first..first + it.pages)
            }
            ExtentLimit::Neighbours => space.range_of_like_mappings(page),
            ExtentLimit::Anything => Some(0..u64::MAX),
        };
        let limits = limits.unwrap_or(page..page + 1);
        let mut order = match within {
            ExtentLimit::Anything => wanted,
            _ => self.allowed_orders().largest_fitting_order(0, u64::MAX, wanted),
        };
        while order > 0 {
            let count = 1 << order;
            let first = page & !(count - 1);
            let mut pages = first..first + count;
            if limits.start <= first
                && first + count <= limits.end
                && !self.reservations.overlaps_reservation(process, first, count)
                && pages.all(|page| space.table.get_entry(page).is_none())
            {
                return Ok((first, order));
            }
            order = self.allowed_orders().next_lower_order(order);
        }
        Ok((page, 0))
    }

    pub(super) fn ensure_leaf_tables(&mut self, process: u32, first: u64, pages: u64) -> Result {
        let leaf = 1 << self.base_page_size().table_entries_shift();
        let mut page = first;
        while page < first + pages {
            self.ensure_leaf_table(process, page)?;
            page = (page / leaf + 1) * leaf;
        }
        // The hardware's walker reads the entry at the place of a base page of its region.
        let walked = self.page_indexed_by_walker(process, first)?;
        self.ensure_leaf_table(process, walked)
    }

    /// The page with the entry that the hardware's walker reads for `page`. In a region with a
    /// larger preferred page size, entries are numbered by that size (`htlbpage_to_page`,
    /// `asm-ia64/page.h`).
    pub(super) fn page_indexed_by_walker(&self, process: u32, page: u64) -> Result<u64> {
        let base = self.base_page_size();
        let registers = &self.process_space(process)?.registers;
        let order = registers.preferred_order_at(base.address_of_page(page));
        let region = base.page_of_address(1 << REGION_BITS);
        Ok(page / region * region + ((page % region) >> order))
    }
}
