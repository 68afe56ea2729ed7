//! Where the lines of page tables are: second-level cache, last level, or memory.

use super::spec::TranslatorSpec;
use crate::mmu::lru::touch_array;
use crate::mmu::{CACHE_LINE_BYTES, CacheLevel};

/// A line of eight entries of some table. The highest bits say which kind of table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line(u32);

/// Entries in a line of 64 bytes.
const ENTRIES_SHIFT: u32 = 3;
/// Bits of a line's number within its kind: 2^31 base pages, eight entries a line.
const KIND_SHIFT: u32 = 28;

impl Line {
    /// The line of a table of this kind (0-14) in which this entry is.
    #[inline]
    pub(super) const fn of(kind: u32, entry: u32) -> Self {
        Self(kind << KIND_SHIFT | entry >> ENTRIES_SHIFT)
    }
}

/// What of the two larger caches page tables have.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    second: Part,
    last: Part,
    /// Cycles of a load by where the line is.
    cycles: [u32; 3],
}

impl Lines {
    pub(super) fn new(spec: &TranslatorSpec) -> Self {
        let memory = &spec.processor.memory;
        let [_, second, last] = memory.caches;
        let share = spec.page_table_share_percent;
        let nanoseconds = memory.latency_ns * spec.processor.ghz;
        Self {
            second: Part::new(second, share),
            last: Part::new(last, share),
            cycles: [
                second.latency_cycles,
                last.latency_cycles,
                nanoseconds.round() as u32,
            ],
        }
    }

    /// Loads a line: where it was (0 to 2). Lines of upper tables are few, and nearly always where they were
    /// last.
    #[inline]
    pub(super) fn load(&mut self, line: Line, is_upper: bool) -> usize {
        if is_upper && self.second.is_newest(line) || self.second.load(line) {
            0
        } else {
            2 - usize::from(self.last.load(line))
        }
    }

    /// Cycles of so many loads, by where the lines were.
    pub(super) fn cycles(&self, loads: &[u64; 3]) -> u64 {
        let cycles = loads.iter().zip(self.cycles);
        cycles
            .map(|(loads, cycles)| loads * u64::from(cycles))
            .sum()
    }
}

/// Lines of a set. Which set a line belongs to is as good as random, so that more would change little.
const WAYS: usize = 4;
/// Of no line.
const EMPTY: u32 = u32::MAX;

/// A part of a cache that holds nothing but lines of page tables, with exact LRU replacement in each set.
#[derive(Clone, Debug)]
struct Part(Vec<[u32; WAYS]>);

impl Part {
    /// This much of a cache (per cent), at least one set.
    fn new(level: CacheLevel, share: u32) -> Self {
        let lines = level.bytes / CACHE_LINE_BYTES * u64::from(share) / 100;
        Self(vec![[EMPTY; WAYS]; (lines as usize / WAYS).max(1)])
    }

    /// Loads a line; true if it was there.
    #[inline]
    fn load(&mut self, line: Line) -> bool {
        touch_array(self.set(line), line.0)
    }

    /// Whether a line is the one of its set that was loaded last.
    #[inline]
    fn is_newest(&mut self, line: Line) -> bool {
        self.set(line)[0] == line.0
    }

    #[inline]
    fn set(&mut self, line: Line) -> &mut [u32; WAYS] {
        // Programs don't choose the frames of their tables: any set will do, with the high bits of a product
        // in place of a remainder.
        let hash = u64::from(line.0.wrapping_mul(0x9e37_79b1));
        let set = (hash * self.0.len() as u64) >> 32;
        &mut self.0[set as usize]
    }
}
