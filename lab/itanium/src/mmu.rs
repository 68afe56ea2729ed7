//! The memory management unit of Itanium 2, data side: two levels of TLB, region ids, pinned
//! entries, and the hardware page-table walker in its two forms (thesis, chapter 3).
//!
//! ```text
//!  address --region_registers--> region id, offset --> Mmu::translate
//!     |-- tlb: Tlb                      a hit: TlbEntry
//!     |-- the walker, by WalkerMode     ShortFormat: a Pte; LongFormat: HashedPageTable
//!     `-- SoftwareFilledMiss            the kernel fills the TLB
//! ```
//!
//! Read [`Mmu::translate`] first, then `tlb`. `processor` has the processors as data, the counters
//! of events and their costs in cycles.

mod processor;
mod region_registers;
mod tlb;

pub use processor::{
    EventCycleCosts, ItaniumCounters, ItaniumProcessorSpec, LargePageHashFill, MADISON,
    RX2600_COSTS, WalkerMode,
};
pub use region_registers::{Pte, RegionRegisters};
pub use tlb::{HashedPageTable, Tlb, TlbEntry, TlbReplacement};

use super::address::{BasePageSize, offset_in_region};
use super::error::Result;
use hawkeye_sim::mmu::translation::FullyAssociativeLru;

/// log2 of the bytes that an entry of the first-level TLB covers.
const L1_SHIFT: u32 = 12;
/// An id that no process gets: that of the kernel's pinned entries.
const KERNEL_RID: u32 = u32::MAX;
/// log2 of the bytes of pinned entries: 64 MiB, as those of the kernel.
const PINNED_SHIFT: u32 = 26;

/// A miss that the kernel has to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoftwareFilledMiss {
    /// `vhpt_miss`: the page of the linear table with the entry is not mapped.
    Table,
    /// `dtlb_miss`: the walker is off, or the entry that it read is not for it.
    Entry,
}

/// The unit of one processor.
#[derive(Clone, Debug)]
pub struct Mmu {
    base: BasePageSize,
    walker: WalkerMode,
    sub_block_order: u8,
    l1: FullyAssociativeLru,
    /// The second-level TLB.
    pub tlb: Tlb,
    /// The long format's table, in memory.
    pub hash: Option<HashedPageTable>,
}

impl Mmu {
    /// A unit with pinned entries only, `pinned` of them. The seed is for random replacement.
    pub fn new(
        processor: &ItaniumProcessorSpec,
        base: BasePageSize,
        walker: WalkerMode,
        pinned: u32,
        seed: u64,
    ) -> Result<Self> {
        processor.check_tlb_and_table_sizes(walker)?;
        let tlb = Tlb::new(processor.l2_entries, processor.replacement, seed);
        let mut tlb = tlb.with_sub_blocks(processor.sub_block_order);
        for page in 0..pinned {
            let entry =
                TlbEntry::new_without_sub_blocks(KERNEL_RID, page.into(), PINNED_SHIFT, 0, true);
            tlb.insert_pinned(entry)?;
        }
        Ok(Self {
            base,
            walker,
            sub_block_order: processor.sub_block_order,
            l1: FullyAssociativeLru::new(processor.l1_entries),
            tlb,
            hash: match walker {
                WalkerMode::LongFormat { entries, .. } => Some(HashedPageTable::new(entries)),
                WalkerMode::None | WalkerMode::ShortFormat => None,
            },
        })
    }

    /// Translates an address from the TLBs or by the hardware walker. `entry_of` reads the
    /// page-table entry of the address; it is called where the short format's walker would read.
    pub fn translate(
        &mut self,
        registers: &RegionRegisters,
        address: u64,
        counters: &mut ItaniumCounters,
        entry_of: impl Fn(u64) -> Pte,
    ) -> Result<TlbEntry, SoftwareFilledMiss> {
        let rid = registers.region_id_at(address);
        let offset = offset_in_region(address);
        let preferred = registers.preferred_order_at(address);
        if let Some(entry) = self.tlb.lookup(rid, offset) {
            return Ok(entry);
        }
        counters.misses += 1;
        let found = match self.walker {
            WalkerMode::None => return Err(SoftwareFilledMiss::Entry),
            WalkerMode::ShortFormat => {
                let table = self.base.linear_table_entry_offset(offset >> preferred);
                if self.tlb.lookup(rid, table).is_none() {
                    return Err(SoftwareFilledMiss::Table);
                }
                let pte = entry_of(address);
                pte.is_valid_for_walker(preferred)
                    .then(|| self.translation_from_pte(rid, address, pte, &entry_of))
            }
            WalkerMode::LongFormat { .. } => {
                let page = self.base.page_of_address(offset >> preferred);
                self.hash.as_ref().and_then(|hash| hash.find_translation(rid, page))
            }
        };
        let entry = found.ok_or(SoftwareFilledMiss::Entry)?;
        counters.walker += 1;
        self.tlb.fill_after_miss(entry, offset);
        Ok(entry)
    }

    /// Uses the first level for a reference that the second level has translated. `missed` is true
    /// if the second level missed it first. An entry that leaves the second level leaves the first
    /// too, so a miss there is one here. Every reference looks at the second level, because stores
    /// and floating point bypass the first one on this processor.
    pub fn access_first_level_tlb(
        &mut self,
        registers: &RegionRegisters,
        address: u64,
        missed: bool,
        counters: &mut ItaniumCounters,
    ) {
        let key = l1_tlb_key(registers.region_id_at(address), offset_in_region(address));
        let here = self.l1.access(key);
        counters.l1_refills += u64::from(missed || !here);
    }

    /// The translation of the page that holds an address, from a page-table entry. It may be a part
    /// of a block, in a TLB with sub-blocks and with memory that lies as that of a block would.
    /// Then the translation covers all parts that lie so and have the same permission to write.
    /// (The entries of 16 pages are in one line of the cache. The abstract of Talluri and Hill's
    /// paper does not state what a miss brings in; chosen.)
    pub fn translation_from_pte(
        &self,
        rid: u32,
        address: u64,
        pte: Pte,
        entry_of: &impl Fn(u64) -> Pte,
    ) -> TlbEntry {
        let offset = offset_in_region(address);
        let block = self.sub_block_order;
        let place = |page: u64| (page & ((1 << block) - 1)) as u32;
        let lies_right = |page: u64, pte: Pte| {
            pte.present && pte.order == 0 && pte.frame & ((1 << block) - 1) == place(page)
        };
        let page = self.base.page_of_address(address);
        if block > 0 && lies_right(page, pte) {
            let frame = pte.frame - place(page);
            let parts = (0..1 << block).filter(|part| {
                let page = (page >> block << block) + u64::from(*part);
                let other = entry_of(self.base.address_of_page(page));
                let alike = other.writable == pte.writable;
                lies_right(page, other) && alike && other.frame == frame + part
            });
            let shift = self.base.shift() + u32::from(block);
            return TlbEntry {
                rid,
                page: offset >> shift,
                shift,
                frame,
                writable: pte.writable,
                parts: parts.fold(0, |parts, part| parts | 1 << part),
            };
        }
        let shift = self.base.shift() + u32::from(pte.order);
        // Frames of a large page lie in order: the first is that of the first page.
        let frame = pte.frame & !((1 << pte.order) - 1);
        TlbEntry::new_without_sub_blocks(rid, offset >> shift, shift, frame, pte.writable)
    }

    /// Drops a range of a region from both levels.
    pub fn purge_range(&mut self, rid: u32, start: u64, end: u64) {
        self.tlb.purge_range(rid, start, end);
        let (first, last) = (l1_tlb_key(rid, start), l1_tlb_key(rid, end - 1));
        self.l1.retain(|key| !(first..=last).contains(&key));
    }
}

/// The page of 4 KiB: offsets of mapped memory are under 2^36, ids of processes under 2^24.
fn l1_tlb_key(rid: u32, offset: u64) -> u64 {
    u64::from(rid) << 40 | (offset >> L1_SHIFT) & ((1 << 40) - 1)
}
