//! References, and the kernel's TLB-miss handlers (thesis, section 5.5.5;
//! `arch/ia64/kernel/ivt.S`).

use super::ItaniumMachine;
use crate::address::offset_in_region;
use crate::error::{ItaniumError, Result};
use crate::mmu::{LargePageHashFill, SoftwareFilledMiss, TlbEntry, WalkerMode};

/// Linux purges by one page size that covers all pages, and so some neighbours too
/// (`flush_tlb_range`, `arch/ia64/mm/tlb.c`). Here these neighbours stay.
pub(super) struct TlbPurgeRange {
    process: u32,
    pub(super) first: u64,
    pages: u64,
    /// Also purge the pages of the linear table with their entries, as when memory is unmapped
    /// (`tlb_flush_mmu`, `asm-ia64/tlb.h`).
    tables: bool,
}

impl ItaniumMachine {
    /// Refers to an address of a program, several times in a row. A context switch consists only of
    /// the change of process: region ids keep translations apart (thesis, section 3.1).
    ///
    /// # Errors
    /// No such process; nothing mapped there; a write to read-only memory; no memory.
    pub fn access_memory(
        &mut self,
        process: u32,
        address: u64,
        write: bool,
        references: u32,
    ) -> Result {
        self.process_space(process)?;
        self.counters.references += u64::from(references);
        if let Some((length, order)) = self.page_size_policy().reference_window_and_order() {
            self.count_references_and_resize(process, address, references, length, order)?;
        }
        let misses = self.counters.misses;
        let base = self.base_page_size();
        loop {
            let Some(Some(space)) = self.spaces.get(process as usize) else {
                return Err(ItaniumError::Process(process));
            };
            let registers = &space.registers;
            let entry_of = |address| space.table.entry_or_empty(base.page_of_address(address));
            let counters = &mut self.counters;
            match self.mmu.translate(registers, address, counters, entry_of) {
                Ok(entry) if entry.writable || !write => {
                    let missed = counters.misses > misses;
                    self.mmu.access_first_level_tlb(registers, address, missed, counters);
                    return Ok(());
                }
                Ok(_) => self.handle_page_fault(process, address, write)?,
                Err(miss) => self.handle_tlb_miss(process, address, write, miss)?,
            }
        }
    }

    fn handle_tlb_miss(
        &mut self,
        process: u32,
        address: u64,
        write: bool,
        miss: SoftwareFilledMiss,
    ) -> Result {
        match miss {
            SoftwareFilledMiss::Table => self.counters.nested += 1,
            SoftwareFilledMiss::Entry => self.counters.software += 1,
        }
        self.count_miss_and_promote(process, address)?;
        if self.fill_tlb_if_present(process, address, miss)? {
            return Ok(());
        }
        self.handle_page_fault(process, address, write)
    }

    /// Returns false if the page has no memory; then nothing is filled, not even for the table.
    fn fill_tlb_if_present(
        &mut self,
        process: u32,
        address: u64,
        miss: SoftwareFilledMiss,
    ) -> Result<bool> {
        let base = self.base_page_size();
        let page = base.page_of_address(address);
        let offset = offset_in_region(address);
        let walked = self.page_indexed_by_walker(process, page)?;
        let Some(Some(space)) = self.spaces.get(process as usize) else {
            return Err(ItaniumError::Process(process));
        };
        let rid = space.registers.region_id_at(address);
        let preferred = space.registers.preferred_order_at(address);
        let Some(entry) = space.table.get_entry(page).filter(|entry| entry.present) else {
            return Ok(false);
        };
        if miss == SoftwareFilledMiss::Table {
            let leaf = space.table.leaf_frame_of_page(walked);
            debug_assert!(leaf.is_some(), "the walked page has no page table");
            let page = base.page_of_address(base.linear_table_entry_offset(offset >> preferred));
            let table =
                TlbEntry::new_without_sub_blocks(rid, page, base.shift(), leaf.unwrap_or(0), true);
            self.mmu.tlb.insert(table);
        }
        let entry_of = |address| space.table.entry_or_empty(base.page_of_address(address));
        let translation = self.mmu.translation_from_pte(rid, address, entry, &entry_of);
        if let WalkerMode::LongFormat { fill, .. } = self.setup.walker {
            // Where the preferred size is larger, the table is indexed by that size.
            let order = entry.order.saturating_sub(preferred);
            let page = base.page_of_address(offset >> preferred);
            // The entries for one page must be purged together with that page.
            let sub_blocks = self.setup.processor.sub_block_order;
            self.enter_in_hash_table(
                fill,
                page,
                order,
                translation.with_only_part_at(offset, sub_blocks),
            );
        }
        self.mmu.tlb.fill_after_miss(translation, offset);
        Ok(true)
    }

    fn enter_in_hash_table(
        &mut self,
        fill: LargePageHashFill,
        page: u64,
        order: u8,
        translation: TlbEntry,
    ) {
        let Some(hash) = &mut self.mmu.hash else {
            return;
        };
        let first = page & !((1 << order) - 1);
        let pages = match fill {
            LargePageHashFill::First => first..first + 1,
            LargePageHashFill::Missed => page..page + 1,
            LargePageHashFill::All => first..first + (1 << order),
            LargePageHashFill::BaseOnly => first..first + u64::from(order == 0),
        };
        // The cost of a miss includes one entry.
        self.counters.hash_entries += (pages.end - pages.start).saturating_sub(1);
        for page in pages {
            let collided = hash.enter_translation(page, translation);
            self.counters.hash_collisions += u64::from(collided);
        }
    }

    /// The purge of a range of pages, including all of the large pages that reach into it.
    pub(super) fn purge_range_covering(
        &self,
        process: u32,
        first: u64,
        pages: u64,
        tables: bool,
    ) -> Result<TlbPurgeRange> {
        let table = &self.process_space(process)?.table;
        let around = |page| match table.get_entry(page) {
            Some(entry) => (page & !((1 << entry.order) - 1), 1 << entry.order),
            None => (page, 1),
        };
        let (start, _) = around(first);
        let (last, after) = around(first + pages - 1);
        Ok(TlbPurgeRange { process, first: start, pages: last + after - start, tables })
    }

    /// Drops translations, and entries of the hash table, one for each base page.
    pub(super) fn purge_translations(&mut self, purge: TlbPurgeRange) -> Result {
        let base = self.base_page_size();
        let first = base.address_of_page(purge.first);
        let registers = &self.process_space(purge.process)?.registers;
        let (rid, preferred) = (registers.region_id_at(first), registers.preferred_order_at(first));
        let start = offset_in_region(first);
        let end = start + base.address_of_page(purge.pages);
        self.mmu.purge_range(rid, start, end);
        // Tables have an entry for each page of the region's preferred size.
        let (start, end) = (start >> preferred, end >> preferred);
        if let Some(hash) = &mut self.mmu.hash {
            for page in base.page_of_address(start)..base.page_of_address(end) {
                hash.invalidate_entry(rid, page);
            }
            self.counters.hash_entries += purge.pages >> preferred;
        } else if purge.tables {
            let (first, last) =
                (base.linear_table_entry_offset(start), base.linear_table_entry_offset(end - 1));
            self.mmu.purge_range(rid, first, last + 1);
        }
        Ok(())
    }
}
