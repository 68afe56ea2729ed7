//! Invariants of the kernel, and between hardware and kernel.

use super::{ItaniumMachine, ProcessSpace};
use crate::address::REGION_BITS;
use crate::error::ModelContradiction;
use crate::mmu::TlbEntry;
use std::collections::BTreeMap;

type InvariantResult = Result<(), ModelContradiction>;

impl ItaniumMachine {
    /// Checks that the model doesn't contradict itself:
    ///
    /// - All entries of a large page agree.
    /// - Pages are aligned in virtual and physical memory.
    /// - Every frame has as many owners as are counted.
    /// - No frame is both free and owned.
    /// - Every translation in the TLB and in the hash table matches the page table.
    /// - Misses add up.
    pub fn check_invariants(&self) -> InvariantResult {
        self.check_frame_owners()?;
        self.check_translations()?;
        let counters = &self.counters;
        let missed = counters.walker + counters.software + counters.nested;
        let fits = missed == counters.misses;
        ModelContradiction::require_consistent(fits, "misses do not add up", counters.misses)
    }

    fn check_frame_owners(&self) -> InvariantResult {
        let must = ModelContradiction::require_consistent;
        for (buddy, _) in self.buddy_allocators() {
            buddy.check_blocks()?;
        }
        let mut owners: BTreeMap<u32, u32> = BTreeMap::new();
        for space in self.spaces.iter().flatten() {
            self.check_process_space(space)?;
            let entries = space.table.entries().filter(|(_, entry)| entry.present);
            for frame in entries.map(|(_, entry)| entry.frame) {
                *owners.entry(frame).or_default() += 1;
            }
        }
        for (frame, count) in &owners {
            let counted = self.shared.get(frame).map_or(1, |more| more + 1);
            must(counted == *count, "the number of owners of a frame is wrong", *frame)?;
        }
        for frame in self.shared.keys() {
            let owned = owners.contains_key(frame);
            must(owned, "a frame without owners is counted as shared", *frame)?;
        }
        let tables = self.spaces.iter().flatten().flat_map(|it| it.table.leaf_frames());
        let others = self.reservations.reserved_frames_left().chain(self.movable.iter().copied());
        for frame in tables.chain(others) {
            let before = owners.insert(frame, 1);
            must(before.is_none(), "a frame is used for two purposes", frame)?;
        }
        for (block, order) in self.free_blocks() {
            let used = owners.range(block..block + (1 << order)).next();
            must(used.is_none(), "a frame is free and owned", block)?;
        }
        let all = owners.len() as u32 + self.held + self.count_free_frames();
        must(all == self.count_all_frames(), "a frame is lost", all)
    }

    fn check_process_space(&self, space: &ProcessSpace) -> InvariantResult {
        let must = ModelContradiction::require_consistent;
        for (page, entry) in space.table.entries() {
            let mapped = space.mapping_around_page(page).is_some();
            must(mapped, "a page has an entry without a mapping", page)?;
            let known = self.allowed_orders().contains(entry.order);
            must(known, "the size of a page is not allowed", page)?;
            let first = page & !((1 << entry.order) - 1);
            let head = space.table.get_entry(first);
            let same = head.is_some_and(|head| {
                let place = (page - first) as u32;
                let frame = !entry.present
                    || head.frame + place == entry.frame && head.frame % (1 << entry.order) == 0;
                let flags = |it: &crate::mmu::Pte| (it.order, it.present, it.writable);
                frame && flags(&head) == flags(&entry)
            });
            must(same, "entries of a large page disagree", page)?;
            let last = space.table.get_entry(first + (1 << entry.order) - 1);
            let whole = last.is_some_and(|last| last.order == entry.order);
            must(whole, "a large page is not whole", page)?;
            let shared = self.shared.contains_key(&entry.frame);
            let safe = !entry.present || !entry.writable || !shared;
            must(safe, "a shared frame can be written to", page)?;
        }
        let mut end = 0;
        for (first, mapping) in &space.mappings {
            must(*first >= end, "mappings overlap", *first)?;
            end = first + mapping.pages;
            let mut pages = *first..end;
            let sized = !self.are_pages_sized_at_mmap(mapping.backing)
                || pages.all(|page| space.table.get_entry(page).is_some());
            must(sized, "a page of a mapping has no size", *first)?;
        }
        Ok(())
    }

    /// Translations under ids that no process has any more are never found.
    fn check_translations(&self) -> InvariantResult {
        let mut regions = BTreeMap::new();
        for space in self.spaces.iter().flatten() {
            let rids = space.registers.rids.iter().zip(0u64..);
            regions.extend(rids.map(|(rid, region)| (*rid, (space, region))));
        }
        let in_tlb = self.mmu.tlb.entries_with_pinned_flag().filter(|(_, pinned)| !pinned);
        let in_tlb = in_tlb.map(|(entry, _)| entry);
        let in_hash = self.mmu.hash.iter().flat_map(|hash| hash.translations());
        let sub_blocks = self.setup.processor.sub_block_order;
        for entry in in_tlb.chain(in_hash) {
            if let Some((space, region)) = regions.get(&entry.rid) {
                for page in entry.present_parts_as_entries(sub_blocks) {
                    self.check_translation(space, *region, page)?;
                }
            }
        }
        Ok(())
    }

    fn check_translation(
        &self,
        space: &ProcessSpace,
        region: u64,
        entry: TlbEntry,
    ) -> InvariantResult {
        let must = |right, what| ModelContradiction::require_consistent(right, what, entry.page);
        let base = self.base_page_size();
        let region_page = base.page_of_address(region << REGION_BITS);
        let tables = base.page_of_address(base.linear_table_entry_offset(0));
        if entry.shift == base.shift() && entry.page >= tables {
            let page = (entry.page - tables) << base.table_entries_shift();
            let leaf = space.table.leaf_frame_of_page(region_page + page);
            return must(leaf == Some(entry.frame), "a page table has a wrong translation");
        }
        let order = entry.shift.saturating_sub(base.shift());
        let pte = space.table.entry_or_empty(region_page + (entry.page << order));
        must(pte.present, "a page without memory has a translation")?;
        let same = u32::from(pte.order) == order && pte.frame == entry.frame;
        must(same, "a page has a wrong translation")?;
        let safe = pte.writable || !entry.writable;
        must(safe, "a translation allows writes to a read-only page")
    }
}
