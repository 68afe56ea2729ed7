//! Processors as data.

use super::{EventCosts, RX2600_COSTS, TlbEntry};
use crate::error::{ItaniumError, Result};

/// The rule by which a second-level TLB replaces an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlbReplacement {
    /// The least recently used entry.
    Lru,
    /// The first entry not used since all had been: one bit for each.
    NotRecentlyUsed,
    /// The oldest entry.
    Fifo,
    /// A random entry.
    Random,
}

/// Entries of the hash table that a miss on a large page fills. The table is indexed by base pages,
/// so a large page has an entry for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashTableFill {
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
        fill: HashTableFill,
    },
}

impl WalkerMode {
    /// The long format as tested in the thesis: 4 MiB of table, entries of the first base page.
    pub const LONG: Self = Self::LongFormat {
        entries: (4 << 20) / 32,
        fill: HashTableFill::First,
    };

    /// Number of entries that the kernel pins. They are for its own text and data, those of the
    /// processor, its stack (`asm-ia64/kregs.h`), and the hash table where there is one. (The
    /// latter is from Chapman and Williams' patches for the long format, `IA64_TR_LONG_VHPT`.)
    pub const fn pinned(self) -> u32 {
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
    pub costs: EventCosts,
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
    pub fn check(&self, walker: WalkerMode) -> Result {
        let must = ItaniumError::unless;
        let first = (1..=255).contains(&self.l1_entries);
        must(first, "the number of first-level TLB entries", "1 to 255")?;
        let second = (8..=255).contains(&self.l2_entries);
        must(second, "the number of second-level TLB entries", "8 to 255")?;
        let few = self.sub_block_order <= TlbEntry::MOST_SUB_BLOCKS;
        must(
            few,
            "the order of sub-blocks of a TLB entry",
            "at most 4 (16 sub-blocks)",
        )?;
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
