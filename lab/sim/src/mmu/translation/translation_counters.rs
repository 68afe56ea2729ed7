//! Counters of a core for one process.

use super::sizes::EntrySize;
use serde::Serialize;

/// Counts of one address space on one core since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TranslationCounters {
    /// Number of loads and stores.
    pub accesses: u64,
    /// Accesses that missed the first TLB level.
    pub l1_misses: u64,
    /// Page walks: accesses that missed both levels, by the [size](EntrySize) of the resulting TLB
    /// entry.
    pub walks_by_size: [u64; 5],
    /// Total length of the walks for loads, in cycles (`DTLB_LOAD_MISSES.WALK_DURATION`).
    pub load_walk_cycles: u64,
    /// The same for stores (`DTLB_STORE_MISSES.WALK_DURATION`).
    pub store_walk_cycles: u64,
    /// Loads of walks, including prefetches, by where the line was: second-level cache, last level,
    /// memory.
    pub walk_loads: [u64; 3],
    /// Pages with a walk before their first access. The time of these walks is not counted.
    pub prefetches: u64,
    /// Access bits that a walk set.
    pub first_touches: u64,
    /// Unhalted cycles, in thousandths: see [`unhalted_cycles`](Self::unhalted_cycles).
    pub millicycles: u64,
}

impl TranslationCounters {
    /// Page walks of all sizes: misses of the second level.
    pub fn walks(&self) -> u64 {
        self.walks_by_size.iter().sum()
    }

    /// Page walks that ended in a TLB entry of this size.
    pub fn walks_of_size(&self, size: impl Into<EntrySize>) -> u64 {
        self.walks_by_size[size.into() as usize]
    }

    /// First-level misses that hit the second level.
    pub fn l2_hits(&self) -> u64 {
        self.l1_misses - self.walks()
    }

    /// Cycles in page walks, of loads and stores.
    pub fn walk_cycles(&self) -> u64 {
        self.load_walk_cycles + self.store_walk_cycles
    }

    /// Unhalted cycles: the program's own work, and its waits for translations.
    pub fn unhalted_cycles(&self) -> u64 {
        self.millicycles / 1000
    }

    /// Counts since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut late = *self;
        let sizes = late.walks_by_size.iter_mut().zip(earlier.walks_by_size);
        let loads = late.walk_loads.iter_mut().zip(earlier.walk_loads);
        for (count, before) in sizes.chain(loads) {
            *count -= before;
        }
        late.accesses -= earlier.accesses;
        late.l1_misses -= earlier.l1_misses;
        late.load_walk_cycles -= earlier.load_walk_cycles;
        late.store_walk_cycles -= earlier.store_walk_cycles;
        late.prefetches -= earlier.prefetches;
        late.first_touches -= earlier.first_touches;
        late.millicycles -= earlier.millicycles;
        late
    }
}
