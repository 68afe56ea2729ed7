//! Three levels of data cache, shared by the program's own lines and those of its page tables.

use super::lru_sets::{LruSets, SetShape};
use super::rrip_sets::RripSets;
use serde::{Deserialize, Serialize};

/// One level of cache. Lines have [`CACHE_LINE_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheLevelSpec {
    /// Its size, in bytes.
    pub bytes: u64,
    /// Lines in one set.
    pub ways: u32,
    /// From the start of a load to its data, in cycles.
    pub latency_cycles: u32,
}

/// Bytes of a cache line.
pub const CACHE_LINE_BYTES: u64 = 64;

impl CacheLevelSpec {
    pub(crate) fn shape(self) -> SetShape {
        let lines = self.bytes / CACHE_LINE_BYTES;
        SetShape::new(u32::try_from(lines).unwrap_or(u32::MAX), self.ways)
    }
}

/// Which line of a set is replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheReplacement {
    /// The least recently used one.
    #[default]
    LeastRecentlyUsed,
    /// One that was not reused for long, before lines that were reused (`rrip_sets.rs`).
    ReReference {
        /// Share of new lines that are inserted, in per cent; the others bypass the cache.
        taken_percent: u32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryLevel {
    L1 = 0,
    L2 = 1,
    L3 = 2,
    Memory = 3,
}

/// All three levels. A line that is loaded is in each of them afterwards.
#[derive(Clone, Debug)]
pub(crate) struct DataCacheHierarchy {
    l1: LruSets,
    l2: LruSets,
    l3: LastLevelCache,
    neighbours: Option<NeighbourCacheTraffic>,
}

/// The last level, which other cores use too.
#[derive(Clone, Debug)]
enum LastLevelCache {
    Lru(LruSets),
    Rrip(RripSets),
}

impl LastLevelCache {
    fn new(shape: SetShape, replacement: CacheReplacement) -> Self {
        match replacement {
            CacheReplacement::LeastRecentlyUsed => Self::Lru(LruSets::new(shape)),
            CacheReplacement::ReReference { taken_percent } => {
                Self::Rrip(RripSets::new(shape, taken_percent))
            }
        }
    }

    fn set_bits(&self) -> u32 {
        match self {
            Self::Lru(sets) => sets.set_bits,
            Self::Rrip(sets) => sets.set_bits,
        }
    }

    /// Number of new lines after which a set has none of its earlier ones.
    fn fills_to_renew_set(&self) -> u32 {
        match self {
            Self::Lru(sets) => sets.ways as u32,
            Self::Rrip(sets) => sets.fills_to_renew_set(),
        }
    }

    #[inline]
    fn fill(&mut self, set: usize, tag: u32) {
        match self {
            Self::Lru(sets) => {
                sets.access_or_evict(set, tag);
            }
            Self::Rrip(sets) => sets.fill(set, tag),
        }
    }

    /// Uses a line; true if it was there.
    #[inline]
    fn access(&mut self, set: usize, tag: u32) -> bool {
        match self {
            Self::Lru(sets) => sets.access_or_insert(set, tag),
            Self::Rrip(sets) => sets.access(set, tag),
        }
    }
}

impl DataCacheHierarchy {
    pub(crate) fn new(levels: [CacheLevelSpec; 3], last: CacheReplacement) -> Self {
        let [l1, l2, l3] = levels.map(CacheLevelSpec::shape);
        Self {
            l1: LruSets::new(l1),
            l2: LruSets::new(l2),
            l3: LastLevelCache::new(l3, last),
            neighbours: None,
        }
    }

    /// The same, where other cores bring `bytes_per_cycle` into the last level.
    pub(crate) fn with_neighbour_traffic(mut self, bytes_per_cycle: f64) -> Self {
        let sets = 1usize << self.l3.set_bits();
        let lines_per_cycle = bytes_per_cycle / CACHE_LINE_BYTES as f64 / sets as f64;
        self.neighbours =
            (lines_per_cycle > 0.0).then(|| NeighbourCacheTraffic::new(sets, lines_per_cycle));
        self
    }

    /// Loads a line of a frame of this size (a power of two) at `now`, in cycles since the start.
    #[inline]
    pub(crate) fn load(&mut self, line: u64, frame_bytes: u64, now: f64) -> MemoryLevel {
        let (set, tag) = self.l1.split_key(line);
        if self.l1.access_or_insert(set, tag) {
            return MemoryLevel::L1;
        }
        self.load_beyond_first(line, frame_bytes, now)
    }

    /// The same without the first level, which is neither read nor filled.
    #[inline]
    pub(crate) fn load_beyond_first(
        &mut self,
        line: u64,
        frame_bytes: u64,
        now: f64,
    ) -> MemoryLevel {
        let within_frame = frame_bytes / CACHE_LINE_BYTES - 1;
        let (set, tag) = set_and_tag_of_line(self.l2.set_bits, line, within_frame);
        if self.l2.access_or_insert(set, tag) {
            return MemoryLevel::L2;
        }
        let (set, tag) = set_and_tag_of_line(self.l3.set_bits(), line, within_frame & WITHIN_SLICE);
        if let Some(neighbours) = &mut self.neighbours {
            neighbours.add_neighbour_lines_until(now, set, &mut self.l3);
        }
        if self.l3.access(set, tag) {
            return MemoryLevel::L3;
        }
        MemoryLevel::Memory
    }
}

/// Other users of the last level. Each of its sets gets one of their lines at equal intervals; they
/// never reuse a line. A set is updated when it is next used, since nothing observes it before.
#[derive(Clone, Debug)]
struct NeighbourCacheTraffic {
    lines_per_cycle: f64,
    /// Number of the neighbours' lines that each set has received.
    reported: Vec<u32>,
}

/// Marks a neighbour's tag; tags of the simulated program have 31 bits.
const NEIGHBOURS: u32 = 1 << 31;

impl NeighbourCacheTraffic {
    fn new(sets: usize, lines_per_cycle: f64) -> Self {
        Self { lines_per_cycle, reported: vec![0; sets] }
    }

    #[inline]
    fn add_neighbour_lines_until(&mut self, now: f64, set: usize, level: &mut LastLevelCache) {
        // Spreads the sets' updates over time.
        let phase = set as f64 / self.reported.len() as f64;
        let lines = (now * self.lines_per_cycle + phase) as u32;
        let told = std::mem::replace(&mut self.reported[set], lines);
        let new = lines.saturating_sub(told).min(level.fills_to_renew_set());
        for line in lines - new..lines {
            // Lines in a set at the same time need distinct tags, different from the empty one.
            level.fill(set, NEIGHBOURS | (line & ((NEIGHBOURS >> 1) - 1)));
        }
    }
}

/// Bits of a line's number that choose the set within a slice of the last level: 2,048 sets, 6 bits
/// above the line's 64 bytes. A hash of the whole address chooses the slice (C. Maurice, N. Le
/// Scouarnec, C. Neumann, O. Heen, A. Francillon, "Reverse engineering Intel last-level cache
/// complex addressing using performance counters", RAID 2015).
const WITHIN_SLICE: u64 = (1 << 11) - 1;

/// Set and tag of a line. A frame's address is arbitrary; the set's bits in `own` are the line's
/// own. Lines at a distance that leaves these unchanged map to few sets.
#[inline]
fn set_and_tag_of_line(set_bits: u32, line: u64, own: u64) -> (usize, u32) {
    let all = (1u64 << set_bits) - 1;
    let (set, tag) = (line & all, (line >> set_bits) as u32);
    let hash = u64::from(tag).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((set ^ (hash & all & !own)) as usize, tag)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const LRU: CacheReplacement = CacheReplacement::LeastRecentlyUsed;
    const RE_REFERENCE: CacheReplacement = CacheReplacement::ReReference { taken_percent: 100 };

    fn level(lines: u64, ways: u32) -> CacheLevelSpec {
        CacheLevelSpec { bytes: lines * CACHE_LINE_BYTES, ways, latency_cycles: 1 }
    }

    fn caches() -> DataCacheHierarchy {
        DataCacheHierarchy::new([level(2, 2), level(4, 4), level(4096, 8)], LRU)
    }

    fn load(caches: &mut DataCacheHierarchy, line: u64) -> MemoryLevel {
        caches.load(line, BASE_PAGE_BYTES, 0.0)
    }

    #[test]
    fn a_line_sinks_level_by_level() {
        let mut caches = caches();
        assert_eq!(load(&mut caches, 0), MemoryLevel::Memory);
        assert_eq!(load(&mut caches, 0), MemoryLevel::L1);
        for line in 1..=2 {
            assert_eq!(load(&mut caches, line), MemoryLevel::Memory);
        }
        assert_eq!(load(&mut caches, 0), MemoryLevel::L2);
        for line in 3..=6 {
            assert_eq!(load(&mut caches, line), MemoryLevel::Memory);
        }
        assert_eq!(load(&mut caches, 0), MemoryLevel::L3);
    }

    /// Of `lines` lines at a distance, how many these caches still have in a level.
    fn kept(
        levels: [CacheLevelSpec; 3],
        in_level: MemoryLevel,
        lines: u64,
        distance: u64,
        frame: u64,
    ) -> usize {
        let mut caches = DataCacheHierarchy::new(levels, LRU);
        let all = || (0..lines).map(|n| n * distance);
        let mut load = |line| caches.load(line, frame, 0.0);
        for line in all() {
            load(line);
        }
        // Newest first, so that a probe does not evict a line that is probed later.
        all().rev().map(load).filter(|at| *at == in_level).count()
    }

    #[test]
    fn lines_at_a_distance_meet_in_the_sets_that_their_frames_leave_them() {
        // 2,048 sets of 16 ways.
        let levels = [level(2, 2), level(32_768, 16), level(32_768, 16)];
        let kept = |lines, distance, frame| kept(levels, MemoryLevel::L2, lines, distance, frame);
        // Neighbouring lines fill the level, whatever the frames.
        for frame in [BASE_PAGE_BYTES, HUGE_PAGE_BYTES] {
            let l2 = kept(16_384, 1, frame);
            assert!(l2 > 15_000, "{l2}, {frame:?}");
        }
        // One line of each base page: 32 of the sets, wherever they are.
        let base = kept(4096, 64, BASE_PAGE_BYTES);
        assert!((480..=512).contains(&base), "{base}");
        // Every 64 KiB of a huge page: two sets, minus the lines in the first level.
        assert_eq!(kept(4096, 1024, HUGE_PAGE_BYTES), 30);
        // One line more each time: all sets.
        let l2 = kept(16_384, 1025, HUGE_PAGE_BYTES);
        assert!(l2 > 15_000, "{l2}");
    }

    #[test]
    fn slices_of_the_last_level_are_chosen_by_the_whole_address() {
        // 32 slices: lines at a distance of 64 KiB map to two sets of each slice.
        let levels = [level(2, 2), level(4, 4), level(1 << 20, 16)];
        let kept = kept(levels, MemoryLevel::L3, 2048, 1024, HUGE_PAGE_BYTES);
        assert!((700..=1024).contains(&kept), "{kept}");
    }

    #[test]
    fn neighbours_drive_out_what_is_not_used_for_long() {
        let levels = [level(1, 1), level(2, 2), level(64, 4)];
        // 16 sets of 4 ways: a line in every set each 100 cycles.
        let bytes_per_cycle = 16.0 * CACHE_LINE_BYTES as f64 / 100.0;
        let kept_for = |cycles: f64| {
            let mut caches =
                DataCacheHierarchy::new(levels, LRU).with_neighbour_traffic(bytes_per_cycle);
            caches.load(0, BASE_PAGE_BYTES, 1000.0);
            for line in [1, 2, 3] {
                caches.load(line, BASE_PAGE_BYTES, 1000.0);
            }
            caches.load(0, BASE_PAGE_BYTES, 1000.0 + cycles) == MemoryLevel::L3
        };
        assert!(kept_for(0.0) && kept_for(299.0));
        assert!(!kept_for(401.0) && !kept_for(1e9));
        // A line that is often reused stays.
        let mut caches =
            DataCacheHierarchy::new(levels, LRU).with_neighbour_traffic(bytes_per_cycle);
        let mut at = 0.0;
        for visit in 0..1000u32 {
            for line in 0..4 {
                let level = caches.load(line, BASE_PAGE_BYTES, at);
                assert_eq!(level == MemoryLevel::Memory, visit == 0);
            }
            at += 150.0;
        }
    }

    #[test]
    fn reused_lines_outlast_three_fills_by_neighbours() {
        // 16 sets of 16 ways, 4 of them for the program: every 100 cycles a neighbour's line in
        // every set.
        let bytes_per_cycle = 16.0 * CACHE_LINE_BYTES as f64 / 100.0;
        let found_after = |cycles: f64| {
            let levels = [level(1, 1), level(2, 2), level(256, 16)];
            let mut caches = DataCacheHierarchy::new(levels, RE_REFERENCE)
                .with_neighbour_traffic(bytes_per_cycle);
            let mut lap = |at| {
                let found = (0..64).map(|line| caches.load(line, HUGE_PAGE_BYTES, at));
                found.filter(|at| *at == MemoryLevel::L3).count()
            };
            for lap_of in 0..4u32 {
                lap(1000.0 + f64::from(lap_of));
            }
            lap(1000.0 + cycles)
        };
        let fills = 3.0 * 12.0 * 100.0;
        assert_eq!(found_after(0.8 * fills), 64);
        assert_eq!(found_after(1.3 * fills), 0);
    }

    #[test]
    fn walks_can_pass_the_first_level() {
        let mut caches = caches();
        let beyond =
            |caches: &mut DataCacheHierarchy| caches.load_beyond_first(0, BASE_PAGE_BYTES, 0.0);
        assert_eq!(beyond(&mut caches), MemoryLevel::Memory);
        assert_eq!(beyond(&mut caches), MemoryLevel::L2);
        assert_eq!(load(&mut caches, 0), MemoryLevel::L2, "the first has it since");
        assert_eq!(load(&mut caches, 0), MemoryLevel::L1);
    }

    proptest! {
        /// Compared with lists: address and frame choose the set, which has the lines used last.
        #[test]
        fn a_level_keeps_what_was_used_last_of_each_set(
            loads in proptest::collection::vec(0u64..1 << 14, 1..600),
        ) {
            let (sets_bits, ways) = (9, 2);
            let mut caches = DataCacheHierarchy::new([level(1, 1), level(2 << sets_bits, ways), level(1, 1)], LRU);
            // Every set, by the bits that are its lines' own and the rest of the address.
            let mut lists: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
            let mut last = None;
            for line in loads {
                let huge = line >> sets_bits & 1 == 1;
                let frame = if huge { HUGE_PAGE_BYTES } else { BASE_PAGE_BYTES };
                let found = caches.load(line, frame, 0.0);
                if last == Some(line) {
                    prop_assert_eq!(found, MemoryLevel::L1);
                    continue;
                }
                last = Some(line);
                let own = if huge { 0x1ff } else { 0x3f };
                let scatter = (line >> sets_bits).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                let set = (line % 512) ^ ((scatter % 512) & !own);
                let list = lists.entry(set).or_default();
                let place = list.iter().position(|held| *held == line);
                prop_assert_eq!(found == MemoryLevel::L2, place.is_some());
                list.retain(|held| *held != line);
                list.insert(0, line);
                list.truncate(ways as usize);
            }
        }
    }
}
