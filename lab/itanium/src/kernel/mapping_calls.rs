//! `mmap`, `munmap`, `mprotect`, `mremap`, `fork` and `exit`.

use super::frames::HugePagePool;
use super::policies::PageSizePolicy;
use super::{ItaniumMachine, MappingBacking, MemoryMapping};
use crate::address::{REGION_LIMIT, offset_in_region};
use crate::error::{ItaniumError, Result};
use crate::mmu::Pte;

impl ItaniumMachine {
    /// Maps writable memory and returns its first byte. The place is an address, rounded up to a
    /// whole page, or a range that the kernel finds.
    ///
    /// # Errors
    /// No such process; an invalid range, or one that has something mapped already; no room; no
    /// memory for page tables.
    pub fn mmap(
        &mut self,
        process: u32,
        bytes: u64,
        at: Option<u64>,
        backing: MappingBacking,
    ) -> Result<u64> {
        let base = self.base_page_size();
        let align = base.pages_for_bytes(self.setup.kernel.vm_align_bytes);
        let advice = self.setup.advice.filter(|it| bytes >= it.from_bytes);
        let preferred = advice.map_or(0, |it| (it.page_bytes.ilog2() - base.shift()) as u8);
        if backing == MappingBacking::Anonymous && at.is_none() {
            let (_, pages) = self.pages_of_byte_range(0, bytes)?;
            let elsewhere = match self.map_in_pool_region(process, pages, preferred)? {
                None => self.map_on_heap(process, pages, preferred, align)?,
                pool => pool,
            };
            if let Some(first) = elsewhere {
                return Ok(base.address_of_page(first));
            }
        }
        let space = self.process_space(process)?;
        let first = match at {
            Some(address)
                if address <= u64::MAX - base.bytes()
                    && !self.is_address_in_pool_region(address) =>
            {
                self.pages_of_byte_range(address.next_multiple_of(base.bytes()), bytes)?.0
            }
            Some(address) => return Err(ItaniumError::Range { address, bytes }),
            None => {
                let (_, pages) = self.pages_of_byte_range(0, bytes)?;
                let placed = space.find_free_range(base, pages, align);
                placed.ok_or(ItaniumError::NoRoom(process))?
            }
        };
        let pages = base.pages_for_bytes(bytes);
        let address = base.address_of_page(first);
        if !space.is_range_unmapped(first, pages) {
            return Err(ItaniumError::Occupied(process, address));
        }
        // Memory for page tables may be short: then nothing is mapped.
        self.set_page_sizes_in_entries(process, first, pages, backing)?;
        let mapping = MemoryMapping { backing, ..MemoryMapping::new_anonymous(pages, preferred) };
        self.process_space_mut(process)?.mappings.insert(first, mapping);
        Ok(address)
    }

    /// Writes the sizes of pages without entries (`make_ptes_present`, thesis, section 5.5.4). A
    /// kernel without large pages writes none.
    ///
    /// # Errors
    /// There is no memory for page tables. No page has a size then.
    pub(super) fn set_page_sizes_in_entries(
        &mut self,
        process: u32,
        first: u64,
        pages: u64,
        backing: MappingBacking,
    ) -> Result {
        if !self.are_pages_sized_at_mmap(backing) {
            return Ok(());
        }
        for page in first..first + pages {
            self.ensure_leaf_table(process, page)?;
        }
        for (start, order) in self.allowed_orders().largest_pages_covering(first, pages, u8::MAX) {
            let table = &mut self.process_space_mut(process)?.table;
            for page in start..start + (1 << order) {
                table.set_entry(page, Some(Pte::new_without_memory(order)));
            }
            self.statistics.sized.increment_order(order);
        }
        self.counters.sized_entries += pages;
        Ok(())
    }

    /// Whether pages have their sizes as soon as they are mapped.
    pub(super) fn are_pages_sized_at_mmap(&self, backing: MappingBacking) -> bool {
        backing == MappingBacking::Anonymous
            && self.allowed_orders().has_large_orders()
            && *self.page_size_policy() == PageSizePolicy::Cover
    }

    /// Unmaps everything in a range.
    ///
    /// # Errors
    /// No such process; an invalid range.
    pub fn munmap(&mut self, process: u32, address: u64, bytes: u64) -> Result {
        let (first, pages) = self.pages_of_byte_range(address, bytes)?;
        let purge = self.purge_range_covering(process, first, pages, true)?;
        self.release_reservations_in_range(process, first, pages);
        self.split_pages_and_mappings_at_ends(process, first, pages)?;
        self.drop_owner_of_present_pages(process, first, pages)?;
        let space = self.process_space_mut(process)?;
        for page in first..first + pages {
            space.table.set_entry(page, None);
        }
        space.mappings.retain(|start, _| !(first..first + pages).contains(start));
        space.reset_heap_if_surplus_overlaps(first, pages);
        self.purge_translations(purge)
    }

    /// Allows or forbids writes to a mapped range.
    ///
    /// # Errors
    /// No such process; an invalid range, or one that is mapped only in part.
    pub fn mprotect(&mut self, process: u32, address: u64, bytes: u64, writable: bool) -> Result {
        let (first, pages) = self.mapped_pages_of_byte_range(process, address, bytes)?;
        let purge = self.purge_range_covering(process, first, pages, false)?;
        self.split_pages_and_mappings_at_ends(process, first, pages)?;
        let mappings = &mut self.process_space_mut(process)?.mappings;
        for (_, mapping) in mappings.range_mut(first..first + pages) {
            mapping.writable = writable;
        }
        let mut page = first;
        while page < first + pages {
            let Pte { order, present, .. } =
                self.process_space(process)?.table.entry_or_empty(page);
            if present {
                let allowed = writable && !self.has_shared_frame(process, page, order)?;
                self.set_page_writable(process, page, order, allowed)?;
            }
            page += 1 << order;
        }
        self.purge_translations(purge)
    }

    pub(super) fn has_shared_frame(&self, process: u32, first: u64, order: u8) -> Result<bool> {
        let table = &self.process_space(process)?.table;
        let mut entries = (first..first + (1 << order)).filter_map(|page| table.get_entry(page));
        Ok(entries.any(|entry| self.shared.contains_key(&entry.frame)))
    }

    pub(super) fn set_page_writable(
        &mut self,
        process: u32,
        first: u64,
        order: u8,
        writable: bool,
    ) -> Result {
        let table = &mut self.process_space_mut(process)?.table;
        table.update_entries(first, 1 << order, |entry| Pte { writable, ..entry });
        Ok(())
    }

    pub(super) fn split_pages_and_mappings_at_ends(
        &mut self,
        process: u32,
        first: u64,
        pages: u64,
    ) -> Result {
        for end in [first, first + pages] {
            self.split_large_page_at(process, end)?;
            self.process_space_mut(process)?.split_mapping_at(end);
        }
        Ok(())
    }

    /// The pages of a range of bytes: the first one and their number.
    pub(super) fn pages_of_byte_range(&self, address: u64, bytes: u64) -> Result<(u64, u64)> {
        let base = self.base_page_size();
        let wrong = ItaniumError::Range { address, bytes };
        let (unit, bytes) = match &self.pool {
            Some(pool) if pool.is_address_in_own_region(address) => {
                let unit = base.bytes() << pool.settings.order;
                // Lengths are rounded up, as those of other mappings are.
                (unit, bytes.checked_next_multiple_of(unit).unwrap_or(bytes))
            }
            _ => (base.bytes(), bytes),
        };
        let fits = (1..=REGION_LIMIT).contains(&bytes)
            && offset_in_region(address) <= REGION_LIMIT - bytes;
        if address % unit != 0 || !fits {
            return Err(wrong);
        }
        Ok((base.page_of_address(address), base.pages_for_bytes(bytes)))
    }

    pub(super) fn mapped_pages_of_byte_range(
        &self,
        process: u32,
        address: u64,
        bytes: u64,
    ) -> Result<(u64, u64)> {
        let (first, pages) = self.pages_of_byte_range(address, bytes)?;
        match self.process_space(process)?.first_unmapped_page(first, pages) {
            Some(page) => {
                Err(ItaniumError::NotMapped(process, self.base_page_size().address_of_page(page)))
            }
            None => Ok((first, pages)),
        }
    }

    /// Maps whole pages of the pool in the pool's own region and returns the first page. `None` if
    /// it has no such region or the program asks for another order.
    fn map_in_pool_region(
        &mut self,
        process: u32,
        pages: u64,
        preferred: u8,
    ) -> Result<Option<u64>> {
        let base = self.base_page_size();
        let pool = self.pool.as_ref().filter(|pool| pool.settings.order == preferred);
        let Some(start) = pool.and_then(HugePagePool::own_region_start) else {
            return Ok(None);
        };
        let pages = pages.next_multiple_of(1 << preferred);
        let space = self.process_space_mut(process)?;
        let placed = space.find_free_range_from(base, start, pages, 1 << preferred);
        let first = placed.ok_or(ItaniumError::NoRoom(process))?;
        space.mappings.insert(first, MemoryMapping::new_anonymous(pages, preferred));
        Ok(Some(first))
    }

    fn is_address_in_pool_region(&self, address: u64) -> bool {
        let pool = self.pool.as_ref();
        pool.is_some_and(|pool| pool.is_address_in_own_region(address))
    }

    /// Whether a page is in the pool's region, which holds whole pages of the pool only.
    pub(super) fn is_page_in_pool_region(&self, page: u64) -> bool {
        self.is_address_in_pool_region(self.base_page_size().address_of_page(page))
    }
}

impl ItaniumMachine {
    /// Makes a part of a mapping longer or shorter, in place if there is room and elsewhere if not.
    /// Returns its first byte.
    ///
    /// # Errors
    /// No such process; invalid ranges; not all of it in one mapping; no room, or no memory for
    /// page tables.
    pub fn mremap(
        &mut self,
        process: u32,
        address: u64,
        old_bytes: u64,
        new_bytes: u64,
    ) -> Result<u64> {
        let base = self.base_page_size();
        let (first, old_pages) = self.pages_of_byte_range(address, old_bytes)?;
        if self.is_page_in_pool_region(first) {
            // As on Linux, which refuses this for hugetlb pages.
            let bytes = old_bytes;
            return Err(ItaniumError::Range { address, bytes });
        }
        let (_, new_pages) = self.pages_of_byte_range(0, new_bytes)?;
        let space = self.process_space(process)?;
        let found = space.mapping_around_page(first);
        let whole = found.filter(|(start, it)| first + old_pages <= start + it.pages);
        let (start, mapping) = whole.ok_or(ItaniumError::NotMapped(process, address))?;
        let of = |pages| MemoryMapping { pages, ..mapping };
        if new_pages <= old_pages {
            let tail = base.address_of_page(first + new_pages);
            if new_pages < old_pages {
                self.munmap(process, tail, base.address_of_page(old_pages - new_pages))?;
            }
            return Ok(address);
        }
        let end = first + old_pages;
        let more = new_pages - old_pages;
        let in_region = offset_in_region(base.address_of_page(end)) + base.address_of_page(more)
            <= REGION_LIMIT;
        if end == start + mapping.pages && in_region && space.is_range_unmapped(end, more) {
            self.set_page_sizes_in_entries(process, end, more, mapping.backing)?;
            let longer = of(mapping.pages + more);
            self.process_space_mut(process)?.mappings.insert(start, longer);
            return Ok(address);
        }
        let align = base.pages_for_bytes(self.setup.kernel.vm_align_bytes);
        let to = space.find_free_range(base, new_pages, align);
        let to = to.ok_or(ItaniumError::NoRoom(process))?;
        // Memory first: without it, the call must change nothing.
        let entries =
            if self.are_pages_sized_at_mmap(mapping.backing) { new_pages } else { old_pages };
        self.ensure_leaf_tables(process, to, entries)?;
        let purge = self.purge_range_covering(process, first, old_pages, true)?;
        self.release_reservations_in_range(process, first, old_pages);
        self.split_pages_and_mappings_at_ends(process, first, old_pages)?;
        self.move_page_table_entries(process, first, to, old_pages)?;
        let space = self.process_space_mut(process)?;
        space.mappings.remove(&first);
        space.mappings.insert(to, of(new_pages));
        space.reset_heap_if_surplus_overlaps(first, old_pages);
        self.set_page_sizes_in_entries(process, to + old_pages, more, mapping.backing)?;
        self.purge_translations(purge)?;
        Ok(base.address_of_page(to))
    }

    /// Memory stays, so a page keeps its size only if its new place is aligned as its memory is.
    fn move_page_table_entries(&mut self, process: u32, from: u64, to: u64, count: u64) -> Result {
        let orders = self.allowed_orders();
        let mut done = 0;
        while done < count {
            let Some(entry) = self.process_space(process)?.table.get_entry(from + done) else {
                done += 1;
                continue;
            };
            let pages = 1 << entry.order;
            let mut at = 0;
            while at < pages {
                let place = to + done + at;
                let alignment =
                    if entry.present { place | (u64::from(entry.frame) + at) } else { place };
                let order = orders.largest_fitting_order(alignment, pages - at, entry.order);
                for page in done + at..done + at + (1 << order) {
                    self.ensure_leaf_table(process, to + page)?;
                    let table = &mut self.process_space_mut(process)?.table;
                    let kept = table.get_entry(from + page).map(|kept| Pte { order, ..kept });
                    table.set_entry(to + page, kept);
                    table.set_entry(from + page, None);
                }
                if order < entry.order && at == 0 {
                    self.statistics.demoted.increment_order(entry.order);
                }
                at += 1 << order;
            }
            done += pages;
        }
        Ok(())
    }
}

impl ItaniumMachine {
    /// Copies a process and returns the copy's number. Both share all memory until one writes. The
    /// parent's translations that allow writes must go. The parent therefore gets new region ids,
    /// as on Linux (`flush_tlb_mm`, `asm-ia64/tlbflush.h`).
    ///
    /// # Errors
    /// No such process; no memory for page tables; no region ids.
    pub fn fork(&mut self, parent: u32) -> Result<u32> {
        let space = self.process_space(parent)?;
        let leaves = space.table.leaf_frames().count();
        if leaves > self.count_available_frames() as usize {
            return Err(ItaniumError::OutOfMemory(parent));
        }
        let entries: Vec<(u64, Pte)> = space.table.entries().collect();
        let (mappings, heap) = (space.mappings.clone(), space.heap);
        self.process_space_mut(parent)?.registers = self.registers_with_new_region_ids()?;
        let child = self.spawn_process()?;
        let copy = self.process_space_mut(child)?;
        copy.mappings = mappings;
        copy.heap = heap;
        for (page, entry) in entries {
            self.ensure_leaf_table(child, page)?;
            let both = Pte { writable: false, ..entry };
            if entry.present {
                *self.shared.entry(entry.frame).or_default() += 1;
            }
            self.process_space_mut(parent)?.table.set_entry(page, Some(both));
            self.process_space_mut(child)?.table.set_entry(page, Some(both));
        }
        self.update_peak_memory();
        Ok(child)
    }

    /// Ends a process. Its translations stay in the TLB and the hash table until others need the
    /// room, because no process gets its region ids again.
    pub fn exit(&mut self, process: u32) -> Result {
        let space = self.spaces.get_mut(process as usize).and_then(Option::take);
        let space = space.ok_or(ItaniumError::Process(process))?;
        self.release_reservations_in_range(process, 0, u64::MAX);
        for (_, entry) in space.table.entries().filter(|(_, entry)| entry.present) {
            self.drop_frame_owner(entry.frame);
        }
        for frame in space.table.leaf_frames() {
            self.buddy.free_range(frame, 1);
        }
        Ok(())
    }
}
