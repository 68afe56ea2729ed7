//! Translations to purge from the TLB.

use super::Kernel;
use crate::ItaniumError;

/// Pages of a process with changed translations. Linux purges by one page size that covers them
/// all, and so some neighbours too (`flush_tlb_range`, `arch/ia64/mm/tlb.c`). Here these neighbours
/// stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purge {
    /// The process.
    pub process: u32,
    /// The first page.
    pub first: u64,
    /// Number of pages, 1 or more.
    pub pages: u64,
    /// Also purge the pages of the linear table with their entries, as when memory is unmapped
    /// (`tlb_flush_mmu`, `asm-ia64/tlb.h`).
    pub tables: bool,
}

impl Kernel {
    /// The purge of a range of pages, including all of the large pages that reach into it.
    pub(super) fn purge(
        &self,
        process: u32,
        first: u64,
        pages: u64,
        tables: bool,
    ) -> Result<Purge, ItaniumError> {
        let table = &self.space(process)?.table;
        let around = |page| match table.get(page) {
            Some(entry) => (page & !((1 << entry.order) - 1), 1 << entry.order),
            None => (page, 1),
        };
        let (start, _) = around(first);
        let (last, after) = around(first + pages - 1);
        Ok(Purge {
            process,
            first: start,
            pages: last + after - start,
            tables,
        })
    }
}
