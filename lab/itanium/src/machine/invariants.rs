//! Invariants between hardware and kernel.

use super::Machine;
use crate::error::Contradiction;
use crate::mmu::TlbEntry;
use std::collections::BTreeMap;

impl Machine {
    /// Checks the kernel ([`crate::kernel::Kernel::check`]), and that misses add up. Every
    /// translation in the TLB and in the hash table must match the page table.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), Contradiction> {
        self.kernel.check()?;
        let mut regions = BTreeMap::new();
        for process in 0.. {
            match self.kernel.space(process) {
                Ok(space) => {
                    for (rid, region) in space.registers.rids.iter().zip(0u64..) {
                        regions.insert(*rid, (process, region));
                    }
                }
                Err(_) if process < self.kernel.processes() => {}
                Err(_) => break,
            }
        }
        // Translations under ids that no process has any more are never found.
        let owned = |entry: &TlbEntry| regions.get(&entry.rid).copied();
        let in_tlb = self.mmu.tlb.entries().filter(|(_, pinned)| !pinned);
        let in_tlb = in_tlb.map(|(entry, _)| entry);
        let in_hash = self.mmu.hash.iter().flat_map(|hash| hash.translations());
        let sub_blocks = self.setup.processor.sub_block_order;
        for entry in in_tlb.chain(in_hash) {
            if let Some(owner) = owned(&entry) {
                for page in entry.pages(sub_blocks) {
                    self.check_translation(owner, page)?;
                }
            }
        }
        let counters = &self.counters;
        let missed = counters.walker + counters.software + counters.nested;
        let contradiction = Contradiction {
            what: "misses don't add up",
            page: counters.misses,
        };
        if missed == counters.misses {
            Ok(())
        } else {
            Err(contradiction)
        }
    }

    fn check_translation(
        &self,
        (process, region): (u32, u64),
        entry: TlbEntry,
    ) -> Result<(), Contradiction> {
        let base = self.setup.kernel.base;
        let wrong = |what| Contradiction {
            what,
            page: entry.page,
        };
        let space = self.kernel.space(process);
        let table = &space.map_err(|_| wrong("a translation is nobody's"))?.table;
        let region_page = base.page_of(region << crate::address::REGION_BITS);
        let tables = base.page_of(base.entry_offset(0));
        if entry.shift == base.shift() && entry.page >= tables {
            let page = (entry.page - tables) << base.table_shift();
            let leaf = table.leaf_frame(region_page + page);
            return if leaf == Some(entry.frame) {
                Ok(())
            } else {
                Err(wrong("a table is mapped wrong"))
            };
        }
        let order = entry.shift.saturating_sub(base.shift());
        let first = region_page + (entry.page << order);
        let pte = table.get(first).filter(|pte| pte.present);
        let pte = pte.ok_or(wrong("what isn't there is translated"))?;
        if u32::from(pte.order) != order || pte.frame != entry.frame {
            return Err(wrong("a page is translated wrong"));
        }
        if entry.writable && !pte.writable {
            return Err(wrong("what must not be written to can be"));
        }
        Ok(())
    }
}
