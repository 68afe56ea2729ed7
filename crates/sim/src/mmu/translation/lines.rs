//! Where the lines of page tables are: second-level cache, last level, or memory.

use super::spec::TranslatorSpec;
use crate::mmu::vectors::{empty, touch_each};
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

/// Loads that are made at a time.
const BATCH: usize = 1024;

/// A load of a walk.
#[derive(Clone, Copy, Debug)]
struct Load {
    line: Line,
    cause: Cause,
}

/// Counts by cause, side by side in one number: a loop keeps it in a register, and no store waits for a cause.
#[derive(Clone, Copy, Debug)]
struct Tally(u64);

impl Tally {
    /// Bits of a count: room for [`BATCH`].
    const BITS: usize = 20;

    /// Of the loads that `counts` is true for.
    #[inline(always)]
    fn of(loads: &[Load], counts: impl Fn(usize) -> bool) -> Self {
        Self(loads.iter().enumerate().fold(0, |sum, (index, load)| {
            sum + (u64::from(counts(index)) << (Self::BITS * load.cause as usize))
        }))
    }

    fn count(self, cause: usize) -> u64 {
        self.0 >> (Self::BITS * cause) & ((1 << Self::BITS) - 1)
    }
}

/// What of the two larger caches page tables have.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    second: Part,
    last: Part,
    /// Cycles of a load by where the line is.
    cycles: [u32; 3],
    made: Loads,
    /// Loads that are to be made.
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
            made: Loads::default(),
            loads: Vec::with_capacity(BATCH),
        }
    }

    /// Makes a load: when there are [`BATCH`], or with [`finish`](Self::finish).
    #[inline(always)]
    pub(super) fn load(&mut self, line: Line, cause: Cause) {
        if self.loads.len() == BATCH {
            self.load_all();
        }
        self.loads.push(Load { line, cause });
    }

    fn load_all(&mut self) {
        let mut here = [false; BATCH];
        self.second.load(&self.loads, &mut here);
        let all = Tally::of(&self.loads, |_| true);
        // Put together without a branch, as nobody can foresee which these are.
        let mut missed = 0;
        for (index, here) in (0..self.loads.len()).zip(here) {
            self.loads[missed] = self.loads[index];
            missed += usize::from(!here);
        }
        self.loads.truncate(missed);
        self.last.load(&self.loads, &mut here);
        let missed = Tally::of(&self.loads, |_| true);
        let found = Tally::of(&self.loads, |index| here[index]);
        for cause in 0..3 {
            let [all, missed, found] = [all, missed, found].map(|tally| tally.count(cause));
            let made = &mut self.made[cause];
            made[0] += all - missed;
            made[1] += found;
            made[2] += missed - found;
        }
        self.loads.clear();
    }

    /// Makes what is left of loads, and counts those since the last time.
    pub(super) fn finish(&mut self) -> Loads {
        self.load_all();
        std::mem::take(&mut self.made)
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
struct Part(Vec<u32x4>);

impl Part {
    /// This much of a cache (per cent), at least one set.
    fn new(level: CacheLevel, share: u32) -> Self {
        let lines = level.bytes / CACHE_LINE_BYTES * u64::from(share) / 100;
        let [set] = empty();
        Self(vec![set; (lines as usize / WAYS).max(1)])
    }

    /// Loads at most [`BATCH`] lines, and says which were there.
    fn load(&mut self, loads: &[Load], here: &mut [bool; BATCH]) {
        let sets = self.0.len() as u64;
        let mut places = [(0, 0); BATCH];
        for (place, load) in places.iter_mut().zip(loads) {
            // Programs don't choose the frames of their tables: any set will do, with the high bits of a
            // product in place of a remainder.
            let hash = u64::from(load.line.0.wrapping_mul(0x9e37_79b1));
            *place = ((hash * sets >> 32) as u32, load.line.0);
        }
        touch_each::<1>(
            &mut self.0,
            &places[..loads.len()],
            &mut here[..loads.len()],
        );
    }
}
