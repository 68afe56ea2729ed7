//! Three levels of data cache, for the program's own lines and those of its page tables alike.

use super::lru::{LruSets, Shape};
use serde::{Deserialize, Serialize};

/// One level of cache. Lines have [`CACHE_LINE_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheLevel {
    /// Its size, in bytes.
    pub bytes: u64,
    /// Lines in one set.
    pub ways: u32,
    /// From the start of a load to its data, in cycles.
    pub latency_cycles: u32,
}

/// Bytes of a cache line.
pub const CACHE_LINE_BYTES: u64 = 64;

impl CacheLevel {
    pub(crate) fn shape(self) -> Shape {
        let lines = self.bytes / CACHE_LINE_BYTES;
        Shape::new(u32::try_from(lines).unwrap_or(u32::MAX), self.ways)
    }
}

/// Where a line was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    L1 = 0,
    L2 = 1,
    L3 = 2,
    Memory = 3,
}

/// All three levels. A line that is loaded is in each of them afterwards.
#[derive(Clone, Debug)]
pub(crate) struct Caches {
    l1: LruSets,
    l2: LruSets,
    l3: LruSets,
}

impl Caches {
    pub(crate) fn new(levels: [CacheLevel; 3]) -> Self {
        let [l1, l2, l3] = levels.map(|level| LruSets::new(level.shape()));
        Self { l1, l2, l3 }
    }

    /// Loads a line.
    #[inline]
    pub(crate) fn load(&mut self, line: u64) -> Level {
        let (set, tag) = self.l1.split(line);
        if self.l1.access(set, tag).is_hit() {
            return Level::L1;
        }
        let (set, tag) = scattered(&self.l2, line);
        if self.l2.access(set, tag).is_hit() {
            return Level::L2;
        }
        let (set, tag) = scattered(&self.l3, line);
        if self.l3.access(set, tag).is_hit() {
            return Level::L3;
        }
        Level::Memory
    }
}

/// Set and tag of a line. Programs don't choose their frames, and the slice of an L3 is chosen by a
/// hash of the address, so lines at a regular distance don't meet in few sets.
#[inline]
fn scattered(sets: &LruSets, line: u64) -> (usize, u32) {
    let (set, tag) = sets.split(line);
    let hash = u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let mask = (1u64 << sets.set_bits()) - 1;
    (set ^ (hash & mask) as usize, tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(lines: u64, ways: u32) -> CacheLevel {
        CacheLevel {
            bytes: lines * CACHE_LINE_BYTES,
            ways,
            latency_cycles: 1,
        }
    }

    fn caches() -> Caches {
        Caches::new([level(2, 2), level(4, 4), level(4096, 8)])
    }

    #[test]
    fn a_line_sinks_level_by_level() {
        let mut caches = caches();
        assert_eq!(caches.load(0), Level::Memory);
        assert_eq!(caches.load(0), Level::L1);
        for line in 1..=2 {
            assert_eq!(caches.load(line), Level::Memory);
        }
        assert_eq!(caches.load(0), Level::L2);
        for line in 3..=6 {
            assert_eq!(caches.load(line), Level::Memory);
        }
        assert_eq!(caches.load(0), Level::L3);
    }

    #[test]
    fn a_regular_distance_fills_the_cache_and_not_one_set() {
        let mut caches = caches();
        let lines = || (0..1024).map(|i| i * 4096);
        for line in lines() {
            caches.load(line);
        }
        let kept = lines().filter(|line| caches.load(*line) != Level::Memory);
        assert!(kept.count() > 900);
    }
}
