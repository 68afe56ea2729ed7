//! Processors as data, events of translation and of the kernel's work on it, and their costs.

use super::{TlbEntry, TlbReplacement};
use crate::error::{ItaniumError, Result};

/// Entries of the hash table that a miss on a large page fills. The table is indexed by base pages,
/// so a large page has an entry for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargePageHashFill {
    /// The entry of its first base page, as in the thesis (section 5.4.1).
    First,
    /// The entry of the base page that was missed. The thesis doesn't consider it.
    Missed,
    /// All of them. The thesis rejects this without a measurement, because it pollutes caches.
    All,
    /// None: only base pages are entered.
    BaseOnly,
}

/// The processor's hardware page-table walker, as the kernel sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkerMode {
    /// Off: the kernel handles every miss.
    None,
    /// Reads the virtual linear page table through the TLB, and inserts pages of the region's size
    /// alone (section 3.3).
    ShortFormat,
    /// Reads a hash table, mapped by a pinned entry, and inserts pages of any size (section 3.4).
    LongFormat {
        /// Number of entries of 32 bytes; a power of two.
        entries: u32,
        /// The entries that the kernel writes for a large page.
        fill: LargePageHashFill,
    },
}

impl WalkerMode {
    /// The long format as tested in the thesis: 4 MiB of table, entries of the first base page.
    pub const LONG: Self =
        Self::LongFormat { entries: (4 << 20) / 32, fill: LargePageHashFill::First };

    /// Number of entries that the kernel pins. They are for its own text and data, those of the
    /// processor, its stack (`asm-ia64/kregs.h`), and the hash table where there is one. (The
    /// latter is from Chapman and Williams' patches for the long format, `IA64_TR_LONG_VHPT`.)
    pub const fn pinned_entry_count(self) -> u32 {
        match self {
            Self::None | Self::ShortFormat => 3,
            Self::LongFormat { .. } => 4,
        }
    }
}

/// The data side of a processor's memory management. Program text is never on large pages (section
/// 5.5.2), so the instruction side is left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ItaniumProcessorSpec {
    /// Its name.
    pub name: &'static str,
    /// Number of entries of the first-level data TLB. It is fully associative and replaces the
    /// least recently used entry. An entry covers 4 KiB whatever the page size.
    pub l1_entries: u32,
    /// Number of entries of the second-level data TLB, of any page size, fully associative.
    pub l2_entries: u32,
    /// Its replacement rule.
    pub replacement: TlbReplacement,
    /// If not 0: an entry for a base page covers a block of 2^this base pages. It has a bit
    /// for each present page and one frame number for all. Pages share an entry if they lie in an
    /// aligned block of memory as they do in their block of addresses. (Partial sub-blocks:
    /// Talluri and Hill, ASPLOS 1994, with 16.) Itanium's TLB has no sub-blocks.
    pub sub_block_order: u8,
    /// Its costs.
    pub costs: EventCycleCosts,
}

/// Itanium 2 "Madison" of 1.5 GHz (thesis, section 4.2 and table 4.1). Neither the thesis nor
/// Intel's publications state its replacement. LRU is chosen: with random replacement and FIFO the
/// walker fills 87 % of Tlbcover's misses on 16 KiB pages, where 99.1 % were measured.
pub const MADISON: ItaniumProcessorSpec = ItaniumProcessorSpec {
    name: "madison",
    l1_entries: 32,
    l2_entries: 128,
    replacement: TlbReplacement::Lru,
    sub_block_order: 0,
    costs: RX2600_COSTS,
};

impl ItaniumProcessorSpec {
    /// Rejects sizes that the simulation does not support.
    pub fn check_tlb_and_table_sizes(&self, walker: WalkerMode) -> Result {
        let must = ItaniumError::require_setting;
        let first = (1..=255).contains(&self.l1_entries);
        must(first, "the number of first-level TLB entries", "1 to 255")?;
        let second = (8..=255).contains(&self.l2_entries);
        must(second, "the number of second-level TLB entries", "8 to 255")?;
        let few = self.sub_block_order <= TlbEntry::MOST_SUB_BLOCKS;
        must(few, "the order of sub-blocks of a TLB entry", "at most 4 (16 sub-blocks)")?;
        let fits = match walker {
            WalkerMode::LongFormat { entries, .. } => {
                entries.is_power_of_two() && entries <= 1 << 26
            }
            WalkerMode::None | WalkerMode::ShortFormat => true,
        };
        let what = "the number of entries of the hash table";
        must(fits, what, "a power of two up to 2^26")
    }
}

/// Cycles of a processor of 1.5 GHz, for each event.
///
/// The thesis measured the cost of one more miss on a benchmark (table 6.3). It was 19.23 cycles
/// for the short format, 61.47 with large pages, and 80.27 for the long format with large pages.
/// The thesis takes that for the cost of any miss. It also has the share of misses that the walker
/// filled (99.53, 34.94 and 34.88 %). Its table 6.4 multiplies one with the other. The columns
/// there are therefore shares of an average, not the cost of a single event. The unit costs have to
/// be solved for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EventCycleCosts {
    /// The walker fills from the virtual linear table. Together with `software_short` this solves
    /// both averages of the short format: .9953 h + .0047 s = 19.23 and .3494 h + .6506 s = 61.47.
    pub walker_short: f64,
    /// Software fills after the walker found an entry that is not for it. Software reads the entry
    /// through the linear table. See `walker_short`.
    pub software_short: f64,
    /// Software fills after the walker found no table: it walks three levels, and maps the table
    /// beside the page. From Tlbcover on 4 KiB pages (table 6.2, run 11: 90 cycles for an average
    /// miss). In the thesis it is as high as a miss without any walker (section 4.3.2).
    pub nested: f64,
    /// Software fills where there is no walker. The value is that of `nested`; figure 4.6 gives 118
    /// from mcf and 137 from vortex.
    pub software_none: f64,
    /// The walker fills from the hash table. Table 6.3 gives one equation for this and
    /// `software_long`. The other is from vortex, which is 1.37 % slower with the long format than
    /// with the short one (figure 4.6, base pages). It has 622 cycles between misses (section
    /// 6.3.3).
    pub walker_long: f64,
    /// Software fills after the walker found nothing in the hash table. It walks three levels and
    /// writes an entry of 32 bytes. See `walker_long`.
    pub software_long: f64,
    /// One more entry of the hash table is written or made invalid. Chosen: an L3 hit of 14 cycles
    /// for each line of four.
    pub hash_entry: f64,
    /// The first-level TLB is filled from the second. Chosen; 4 cycles of load latency on such a
    /// machine (7-cpu.com, Itanium 2).
    pub l1_refill: f64,
    /// The kernel's page-fault handler, without clearing memory: LMBench, 1.00 us (appendix B).
    pub page_fault: f64,
    /// One page-table entry gets a size, at `mmap` or when smaller pages become one. Chosen: a
    /// store.
    pub sized_entry: f64,
    /// A byte is cleared: 2,178 MB/s (LMBench's bzero, appendix B).
    pub zeroed_byte: f64,
    /// A byte is copied: 721 MB/s (LMBench's bcopy, appendix B).
    pub copied_byte: f64,
    /// The kernel makes a page of smaller ones, or moves one, without a copy: it finds and purges
    /// entries. Chosen: as a page fault.
    pub remap: f64,
    /// The miss handler counts a miss for one page size. Chosen: an L3 hit of 14 cycles, as in
    /// `hash_entry`, for the counter, which nothing has touched since the last miss there.
    pub counted_miss: f64,
}

/// A 1.5 GHz Itanium 2 in an HP rx2600 (thesis, sections 4.2 and 6.3).
pub const RX2600_COSTS: EventCycleCosts = EventCycleCosts {
    walker_short: 18.9,
    software_short: 84.3,
    nested: 110.0,
    software_none: 110.0,
    walker_long: 28.0,
    software_long: 108.0,
    hash_entry: 3.5,
    l1_refill: 4.0,
    page_fault: 1500.0,
    sized_entry: 1.0,
    zeroed_byte: 0.689,
    copied_byte: 2.08,
    remap: 1500.0,
    counted_miss: 14.0,
};

impl EventCycleCosts {
    /// Cost of a miss that software fills, by the kernel's setting of the walker.
    pub fn cycles_per_software_miss(&self, walker: WalkerMode) -> f64 {
        match walker {
            WalkerMode::None => self.software_none,
            WalkerMode::ShortFormat => self.software_short,
            WalkerMode::LongFormat { .. } => self.software_long,
        }
    }
}

/// Numbers of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItaniumCounters {
    /// Data references of programs.
    pub references: u64,
    /// Cycles of programs, excluding all translation.
    pub useful_cycles: u64,
    /// First-level TLB fills.
    pub l1_refills: u64,
    /// `L2DTLB_MISSES`. A reference that ends in a page fault is repeated, and misses again.
    pub misses: u64,
    /// `DTLB_INSERTS_HPW`: misses that the walker filled.
    pub walker: u64,
    /// Misses handled by the kernel's TLB-miss handler.
    pub software: u64,
    /// Misses handled by the kernel because the linear table wasn't mapped: nested faults.
    pub nested: u64,
    /// Page faults: first touches and copies on write.
    pub page_faults: u64,
    /// Entries of the hash table that were written beyond the first of a miss, or made invalid.
    pub hash_entries: u64,
    /// Entries of the hash table that were written over another translation.
    pub hash_collisions: u64,
    /// Page-table entries that got a size, at `mmap` or when smaller pages became one.
    pub sized_entries: u64,
    /// Bytes cleared at page faults, or when a page became larger than its present parts.
    pub zeroed_bytes: u64,
    /// Bytes copied: on write, into larger pages, or to free a block.
    pub copied_bytes: u64,
    /// Pages made of smaller ones, and pages moved.
    pub remaps: u64,
    /// Misses counted by a policy, once for each page size.
    pub counted_misses: u64,
}

impl ItaniumCounters {
    /// The counts since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            references: self.references - before.references,
            useful_cycles: self.useful_cycles - before.useful_cycles,
            l1_refills: self.l1_refills - before.l1_refills,
            misses: self.misses - before.misses,
            walker: self.walker - before.walker,
            software: self.software - before.software,
            nested: self.nested - before.nested,
            page_faults: self.page_faults - before.page_faults,
            hash_entries: self.hash_entries - before.hash_entries,
            hash_collisions: self.hash_collisions - before.hash_collisions,
            sized_entries: self.sized_entries - before.sized_entries,
            zeroed_bytes: self.zeroed_bytes - before.zeroed_bytes,
            copied_bytes: self.copied_bytes - before.copied_bytes,
            remaps: self.remaps - before.remaps,
            counted_misses: self.counted_misses - before.counted_misses,
        }
    }

    /// Cycles in second-level misses.
    pub fn total_miss_cycles(&self, costs: &EventCycleCosts, walker: WalkerMode) -> f64 {
        let hardware = match walker {
            WalkerMode::None => 0.0,
            WalkerMode::ShortFormat => costs.walker_short,
            WalkerMode::LongFormat { .. } => costs.walker_long,
        };
        self.walker as f64 * hardware
            + self.software as f64 * costs.cycles_per_software_miss(walker)
            + self.nested as f64 * costs.nested
            + self.hash_entries as f64 * costs.hash_entry
            + self.counted_misses as f64 * costs.counted_miss
    }

    /// Cycles of all events.
    pub fn total_cycles(&self, costs: &EventCycleCosts, walker: WalkerMode) -> f64 {
        self.useful_cycles as f64
            + self.total_miss_cycles(costs, walker)
            + self.l1_refills as f64 * costs.l1_refill
            + self.page_faults as f64 * costs.page_fault
            + self.sized_entries as f64 * costs.sized_entry
            + self.zeroed_bytes as f64 * costs.zeroed_byte
            + self.copied_bytes as f64 * costs.copied_byte
            + self.remaps as f64 * costs.remap
    }

    /// Share of references that hit the second-level TLB, in per cent. `None` without references.
    pub fn l2_tlb_hit_percent(&self) -> Option<f64> {
        let share = self.misses as f64 / self.references as f64;
        Some((1.0 - share) * 100.0).filter(|percent| percent.is_finite())
    }

    /// Share of misses that the walker filled, in per cent. `None` without misses.
    pub fn walker_filled_percent(&self) -> Option<f64> {
        let percent = self.walker as f64 / self.misses as f64 * 100.0;
        Some(percent).filter(|percent| percent.is_finite())
    }
}
