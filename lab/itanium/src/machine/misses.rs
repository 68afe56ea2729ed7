//! The kernel's TLB-miss handlers (thesis, section 5.5.5; `arch/ia64/kernel/ivt.S`).

use super::Machine;
use crate::ItaniumError;
use crate::address::offset_of;
use crate::mmu::{Fill, Miss, Pte, TlbEntry, Walker};

impl Machine {
    /// Fills the TLB from the page table. Returns false if the page has no memory yet; then nothing
    /// is filled, not even for the table.
    pub(super) fn fill(
        &mut self,
        process: u32,
        address: u64,
        miss: Miss,
    ) -> Result<bool, ItaniumError> {
        let base = self.setup.kernel.base;
        let page = base.page_of(address);
        let offset = offset_of(address);
        let walked = self.kernel.walked_entry(process, page)?;
        let space = self.kernel.space(process)?;
        let rid = space.registers.rid(address);
        let preferred = space.registers.preferred(address);
        let Some(entry) = space.table.get(page).filter(|entry| entry.present) else {
            return Ok(false);
        };
        if miss == Miss::Table {
            let leaf = space.table.leaf_frame(walked);
            let table = TlbEntry {
                rid,
                page: base.page_of(base.entry_offset(offset >> preferred)),
                shift: base.shift(),
                frame: leaf.unwrap_or(0),
                writable: true,
                parts: TlbEntry::WHOLE,
            };
            debug_assert!(leaf.is_some());
            self.mmu.tlb.insert(table);
        }
        let entry_of = |address| {
            let entry = space.table.get(base.page_of(address));
            entry.unwrap_or(Pte::sized(0))
        };
        let translation = self.mmu.translation(rid, address, entry, &entry_of);
        if let Walker::LongFormat { fill, .. } = self.setup.walker {
            // Where the preferred size is larger, the table is indexed by that size.
            let indexed = Pte {
                order: entry.order.saturating_sub(preferred),
                ..entry
            };
            let page = base.page_of(offset >> preferred);
            // The entries for one page must be purged together with that page.
            let order = self.setup.processor.sub_block_order;
            self.enter(fill, page, indexed, translation.only(offset, order));
        }
        self.mmu.tlb.fill(translation, offset);
        Ok(true)
    }

    /// Writes the missed translation into the hash table.
    fn enter(&mut self, fill: Fill, page: u64, entry: Pte, translation: TlbEntry) {
        let Some(hash) = &mut self.mmu.hash else {
            return;
        };
        let first = page & !((1 << entry.order) - 1);
        let pages = match fill {
            Fill::First => first..first + 1,
            Fill::Missed => page..page + 1,
            Fill::All => first..first + (1 << entry.order),
            Fill::BaseOnly if entry.order == 0 => first..first + 1,
            Fill::BaseOnly => first..first,
        };
        // The cost of a miss includes one entry.
        self.counters.hash_entries += (pages.end - pages.start).saturating_sub(1);
        for page in pages {
            let collided = hash.enter(translation.rid, page, translation);
            self.counters.hash_collisions += u64::from(collided);
        }
    }
}
