//! Where the lines of page tables are: second-level cache, last level, or memory.

use super::missed_pages::{MAX_LEVELS, MAX_WALKS, WalkCause, WalkKind};
use super::translator_spec::TranslatorSpec;
use crate::mmu::tag_vectors::EMPTY;
use crate::mmu::tag_vectors::{access_or_insert, empty};
use crate::mmu::{CACHE_LINE_BYTES, CacheLevelSpec};
use prefetch_index::prefetch_index;
use wide::u32x4;

/// A line of eight entries of some table: its kind and its number within that kind, multiplied by a
/// constant. The product mixes all other bits into the high bits, and is unique.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct TableCacheLine(u32);

/// Entries in a line of 64 bytes.
const ENTRIES_SHIFT: u32 = 3;
/// Bits of a line's number within its kind: 2^31 base pages, eight entries a line.
const KIND_SHIFT: u32 = 28;
const FACTOR: u32 = 0x9e37_79b1;
// The value for "no line" is no line: it would be of kind 15.
const _: () = {
    let inverse = 0x0e8b_2f51_u32;
    assert!(FACTOR.wrapping_mul(inverse) == 1);
    assert!(EMPTY.wrapping_mul(inverse) >> KIND_SHIFT == 15);
};

impl TableCacheLine {
    /// The line that holds this entry, in a table of this kind (0-14).
    #[inline]
    pub(super) const fn of_entry(kind: u32, entry: u32) -> Self {
        Self((kind << KIND_SHIFT | entry >> ENTRIES_SHIFT).wrapping_mul(FACTOR))
    }
}

/// Most loads of a batch. A walk loads tables of the guest; before each, and for the page itself,
/// it loads those of the host.
const MAX_LOADS: usize = MAX_WALKS * ((MAX_LEVELS + 1) * (MAX_LEVELS + 1) - 1);

/// Numbers of loads of walks, by their cause and by where the lines were.
pub(super) type WalkLoadCounts = [[u64; 3]; 3];

/// A load of a walk that misses the second level: the line, and from bit 32 the cause.
#[derive(Clone, Copy, Debug)]
struct WalkLoad(u64);

impl WalkLoad {
    #[inline(always)]
    const fn new(line: TableCacheLine, cause: WalkCause) -> Self {
        Self(line.0 as u64 | (cause as u64) << 32)
    }

    #[inline(always)]
    const fn line(self) -> TableCacheLine {
        TableCacheLine(self.0 as u32)
    }

    #[inline(always)]
    const fn cause(self) -> usize {
        (self.0 >> 32) as usize
    }
}

/// Counts by cause, packed into one number, so that a loop keeps them in a register.
#[derive(Clone, Copy, Debug, Default)]
struct CauseCounts(u64);

impl CauseCounts {
    /// Bits of a count: more than a batch loads.
    const BITS: usize = 21;

    #[inline(always)]
    fn add(&mut self, cause: usize, count: u64) {
        self.0 += count << (Self::BITS * cause);
    }

    fn counts(self) -> [u64; 3] {
        [0, 1, 2].map(|cause| self.0 >> (Self::BITS * cause) & ((1 << Self::BITS) - 1))
    }
}

/// The shares of the two larger caches that page tables have.
#[derive(Clone, Debug)]
pub(super) struct TableCaches {
    second: TableCache,
    last: TableCache,
    /// Cycles of a load by where the line is.
    cycles: [u32; 3],
    missed: Vec<WalkLoad>,
}

impl TableCaches {
    pub(super) fn new(spec: &TranslatorSpec) -> Self {
        let memory = &spec.processor.memory;
        let [_, second, last] = memory.caches;
        let share = spec.page_table_share_percent;
        let nanoseconds = memory.latency_ns * spec.processor.ghz;
        Self {
            second: TableCache::new(second, share),
            last: TableCache::new(last, share),
            cycles: [second.latency_cycles, last.latency_cycles, nanoseconds.round() as u32],
            missed: vec![WalkLoad(0); MAX_LOADS],
        }
    }

    /// Makes the loads of at most [`MAX_WALKS`] walks: first all in the second level, then its
    /// misses in the last level.
    #[inline(always)]
    pub(super) fn load_all(
        &mut self,
        kind: &impl WalkKind,
        load: impl FnOnce(&mut WalkLoader<'_>),
    ) -> WalkLoadCounts {
        let mut loader = WalkLoader {
            second: &mut self.second.0,
            last: &self.last.0,
            missed: &mut self.missed,
            count: 0,
            made: CauseCounts::default(),
        };
        load(&mut loader);
        let WalkLoader { count, made, .. } = loader;
        let (made, (missed, last)) = (made.counts(), self.load_missed(count, kind));
        std::array::from_fn(|cause| {
            let (missed, last) = (missed[cause], last[cause]);
            [made[cause] - missed, last, missed - last]
        })
    }

    /// Makes the `count` loads that missed the second level in the last; counts both by cause.
    #[inline(never)]
    fn load_missed(&mut self, count: usize, kind: &impl WalkKind) -> ([u64; 3], [u64; 3]) {
        let (mut missed, mut last) = (CauseCounts::default(), CauseCounts::default());
        let sets = &mut self.last.0[..];
        let one = kind.uniform_walk().map(|(_, cause)| cause as usize);
        for load in &self.missed[..count] {
            let cause = one.unwrap_or(load.cause());
            let here = access_or_insert(set_of_line(sets, load.line()), load.line().0);
            if one.is_none() {
                missed.add(cause, 1);
            }
            last.add(cause, u64::from(here));
        }
        if let Some(cause) = one {
            missed.add(cause, count as u64);
        }
        (missed.counts(), last.counts())
    }

    /// Cycles of these numbers of loads, by where the lines were.
    pub(super) fn sum_load_cycles(&self, loads: &[u64; 3]) -> u64 {
        let cycles = loads.iter().zip(self.cycles);
        cycles.map(|(loads, cycles)| loads * u64::from(cycles)).sum()
    }
}

pub(super) struct WalkLoader<'a> {
    second: &'a mut [[u32x4; 1]],
    last: &'a [[u32x4; 1]],
    missed: &'a mut [WalkLoad],
    count: usize,
    made: CauseCounts,
}

impl WalkLoader<'_> {
    #[inline(always)]
    pub(super) fn count_loads(&mut self, cause: WalkCause, loads: usize) {
        self.made.add(cause as usize, loads as u64);
    }

    /// Makes a load, except in the last level.
    #[inline(always)]
    pub(super) fn load(&mut self, line: TableCacheLine, cause: WalkCause) {
        let here = access_or_insert(set_of_line(self.second, line), line.0);
        self.missed[self.count] = WalkLoad::new(line, cause);
        self.count += usize::from(!here);
    }

    /// The same for a line that the second level seldom has: prefetches its set of the last level.
    #[inline(always)]
    pub(super) fn load_rarely_cached(&mut self, line: TableCacheLine, cause: WalkCause) {
        prefetch_index(self.last, set_number(self.last.len(), line));
        self.load(line, cause);
    }

    /// Whether a line is the most recently used one of its set, so that a load changes nothing.
    /// Nearly always true for the few lines of upper tables.
    #[inline(always)]
    pub(super) fn is_newest(&mut self, line: TableCacheLine) -> bool {
        let [ways] = set_of_line(self.second, line);
        ways.to_array()[0] == line.0
    }
}

/// Lines of a set. The set of a line is practically random, so more would change little.
const WAYS: usize = 4;

/// The part of a cache that holds lines of page tables, with exact LRU replacement in each set.
#[derive(Clone, Debug)]
struct TableCache(Vec<[u32x4; 1]>);

impl TableCache {
    /// A share of a cache (per cent), at least one set.
    fn new(level: CacheLevelSpec, share: u32) -> Self {
        let lines = level.bytes / CACHE_LINE_BYTES * u64::from(share) / 100;
        Self(vec![empty(); (lines as usize / WAYS).max(1)])
    }
}

/// The set of a line. Programs don't choose the frames of their tables, so any mapping will do: it
/// uses the high bits of a product instead of a remainder.
#[inline(always)]
fn set_of_line(sets: &mut [[u32x4; 1]], line: TableCacheLine) -> &mut [u32x4; 1] {
    let number = set_number(sets.len(), line);
    &mut sets[number]
}

#[inline(always)]
fn set_number(sets: usize, line: TableCacheLine) -> usize {
    ((u64::from(line.0) * sets as u64) >> 32) as usize
}
