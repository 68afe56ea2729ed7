//! Where the lines of page tables are: second-level cache, last level, or memory.

use super::spec::TranslatorSpec;
use crate::mmu::vectors::{empty, touch};
use crate::mmu::{CACHE_LINE_BYTES, CacheLevel};
use wide::u32x4;

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

/// For what a walk is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Load = 0,
    Store = 1,
    Prefetch = 2,
}

/// Loads of walks that were made, by their cause and by where the lines were.
pub(super) type Loads = [[u64; 3]; 3];

/// Loads of the last level that are made at a time.
const BATCH: usize = 1024;

/// A load, and whether the second level had its line.
#[derive(Clone, Copy, Debug)]
struct Load {
    line: Line,
    cause: Cause,
    here: bool,
}

/// What of the two larger caches page tables have.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    second: Part,
    last: Part,
    /// Cycles of a load by where the line is.
    cycles: [u32; 3],
    /// Loads by cause.
    made: [u64; 3],
    /// Loads that the second level did not have, and those of them that the last had, by cause.
    counts: [[u64; 2]; 3],
    /// Loads that were made but for the last level.
    loads: Vec<Load>,
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
            made: [0; 3],
            counts: [[0; 2]; 3],
            loads: Vec::with_capacity(BATCH),
        }
    }

    /// Makes a load, but for the last level: that follows when there are [`BATCH`] or with
    /// [`finish`](Self::finish). Lines of upper tables are few, and nearly always where they were last.
    #[inline(always)]
    pub(super) fn load(&mut self, line: Line, cause: Cause, is_upper: bool) {
        self.made[cause as usize] += 1;
        if is_upper && self.second.is_newest(line) {
            return;
        }
        if self.loads.len() == BATCH {
            self.load_missed();
        }
        let here = self.second.load(line);
        self.loads.push(Load { line, cause, here });
    }

    /// Makes the loads that the second level did not have.
    fn load_missed(&mut self) {
        // Put together without a branch, as nobody can foresee which these are.
        let mut missed = 0;
        for index in 0..self.loads.len() {
            let load = self.loads[index];
            self.loads[missed] = load;
            missed += usize::from(!load.here);
        }
        for Load { line, cause, .. } in &self.loads[..missed] {
            let here = self.last.load(*line);
            let counts = &mut self.counts[*cause as usize];
            counts[0] += 1;
            counts[1] += u64::from(here);
        }
        self.loads.clear();
    }

    /// Makes what is left of loads, and counts those since the last time.
    pub(super) fn finish(&mut self) -> Loads {
        self.load_missed();
        let made = std::mem::take(&mut self.made);
        let counts = std::mem::take(&mut self.counts);
        std::array::from_fn(|cause| {
            let [missed, last] = counts[cause];
            [made[cause] - missed, last, missed - last]
        })
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

/// A part of a cache that holds nothing but lines of page tables, with exact LRU replacement in each set.
#[derive(Clone, Debug)]
struct Part(Vec<[u32x4; 1]>);

impl Part {
    /// This much of a cache (per cent), at least one set.
    fn new(level: CacheLevel, share: u32) -> Self {
        let lines = level.bytes / CACHE_LINE_BYTES * u64::from(share) / 100;
        Self(vec![empty(); (lines as usize / WAYS).max(1)])
    }

    /// Loads a line; true if it was there.
    #[inline(always)]
    fn load(&mut self, line: Line) -> bool {
        touch(self.set(line), line.0)
    }

    /// Whether a line is the one of its set that was loaded last.
    #[inline(always)]
    fn is_newest(&mut self, line: Line) -> bool {
        let [ways] = self.set(line);
        ways.to_array()[0] == line.0
    }

    #[inline(always)]
    fn set(&mut self, line: Line) -> &mut [u32x4; 1] {
        // Programs don't choose the frames of their tables: any set will do, with the high bits of a product
        // in place of a remainder.
        let hash = u64::from(line.0.wrapping_mul(0x9e37_79b1));
        let set = (hash * self.0.len() as u64) >> 32;
        &mut self.0[set as usize]
    }
}
