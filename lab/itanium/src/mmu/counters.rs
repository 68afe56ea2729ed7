//! Counts of events, as the processor's performance monitor and the kernel would count them.

use super::{EventCosts, WalkerMode};

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
    pub fn miss_cycles(&self, costs: &EventCosts, walker: WalkerMode) -> f64 {
        let hardware = match walker {
            WalkerMode::None => 0.0,
            WalkerMode::ShortFormat => costs.walker_short,
            WalkerMode::LongFormat { .. } => costs.walker_long,
        };
        self.walker as f64 * hardware
            + self.software as f64 * costs.software_miss_cycles(walker)
            + self.nested as f64 * costs.nested
            + self.hash_entries as f64 * costs.hash_entry
            + self.counted_misses as f64 * costs.counted_miss
    }

    /// Cycles of all events.
    pub fn cycles(&self, costs: &EventCosts, walker: WalkerMode) -> f64 {
        self.useful_cycles as f64
            + self.miss_cycles(costs, walker)
            + self.l1_refills as f64 * costs.l1_refill
            + self.page_faults as f64 * costs.page_fault
            + self.sized_entries as f64 * costs.sized_entry
            + self.zeroed_bytes as f64 * costs.zeroed_byte
            + self.copied_bytes as f64 * costs.copied_byte
            + self.remaps as f64 * costs.remap
    }

    /// Share of references that hit the second-level TLB, in per cent. `None` without references.
    pub fn hit_percent(&self) -> Option<f64> {
        let share = self.misses as f64 / self.references as f64;
        Some((1.0 - share) * 100.0).filter(|percent| percent.is_finite())
    }

    /// Share of misses that the walker filled, in per cent. `None` without misses.
    pub fn walker_percent(&self) -> Option<f64> {
        let percent = self.walker as f64 / self.misses as f64 * 100.0;
        Some(percent).filter(|percent| percent.is_finite())
    }
}
