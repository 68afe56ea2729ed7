//! Latency of loads: caches, line-fill buffers, the memory channel and the stream prefetcher.

use super::data_cache_hierarchy::{
    CACHE_LINE_BYTES, CacheLevelSpec, CacheReplacement, DataCacheHierarchy, MemoryLevel,
};
use super::read_latency::{ReadLatencySampler, ReadLatencyShape};
use super::resource_slots::ResourceSlots;
use hawkeye_policy::BASE_PAGE_BYTES;
use serde::{Deserialize, Serialize};

/// Caches and memory of one core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySpec {
    /// L1, L2 and L3. A core can use all of a shared cache, because it runs alone.
    pub caches: [CacheLevelSpec; 3],
    /// Mean time from the start of a load to its data where no cache has it, in nanoseconds.
    pub latency_ns: f64,
    /// Distribution of that latency. The fast model uses only the mean.
    #[serde(default)]
    pub latency_shape: ReadLatencyShape,
    /// Streaming read bandwidth of one core, in gigabytes (1e9) per second.
    pub bandwidth_gb_per_s: f64,
    /// L1 misses that can be outstanding ("line-fill buffers").
    pub fill_buffers: u32,
    /// Memory channels of a socket, shared by all its cores.
    pub channels: u32,
    /// Bandwidth of each channel, in gigabytes (1e9) per second.
    pub channel_gb_per_s: f64,
    /// Data that programs on other cores, or of other guests, bring into the last level, in
    /// gigabytes (1e9) per second. It evicts lines there; set it where the neighbours can't be
    /// separated from the simulated program. The fast model ignores it.
    #[serde(default)]
    pub neighbours_gb_per_s: f64,
    /// Replacement in the last level. The fast model has only LRU.
    #[serde(default)]
    pub last_level: CacheReplacement,
    /// Page walks access the second level, not the first, and use none of its buffers. The fast
    /// model has no first level.
    #[serde(default)]
    pub walks_pass_first_level: bool,
}

/// Neighbouring lines read in order before the prefetcher runs ahead.
const LINES_TO_A_STREAM: u32 = 2;
/// Lines of a base page. Prefetchers see physical addresses and stay within 4 KiB.
const LINES_PER_PREFETCH_AREA: u64 = BASE_PAGE_BYTES / CACHE_LINE_BYTES;

/// State of caches and memory. All times are in cycles since the start.
#[derive(Clone, Debug)]
pub(crate) struct MemoryModel {
    caches: DataCacheHierarchy,
    /// Size of a contiguous frame of the program's memory.
    frame_bytes: u64,
    /// Latency of each level, and mean latency of memory.
    latency: [f64; 4],
    latencies: ReadLatencySampler,
    /// Time of one line on the channel.
    line_cycles: f64,
    /// When the channel has transferred all requests, if they had been made at once.
    channel_free: f64,
    /// When the access of the current loads entered the core; no later load is earlier.
    entered: f64,
    fill_buffers: ResourceSlots<u64>,
    stream: PrefetchStream,
    walks_pass_first_level: bool,
}

#[derive(Clone, Copy, Debug)]
struct PrefetchStream {
    line: u64,
    /// When its data arrives.
    ready: f64,
    /// Lines read in order, within a base page.
    length: u32,
}

impl MemoryModel {
    pub(crate) fn new(spec: &MemorySpec, ghz: f64, frame_bytes: u64) -> Self {
        let [l1, l2, l3] = spec.caches.map(|level| f64::from(level.latency_cycles));
        Self {
            caches: DataCacheHierarchy::new(spec.caches, spec.last_level)
                .with_neighbour_traffic(spec.neighbours_gb_per_s / ghz),
            frame_bytes,
            latency: [l1, l2, l3, spec.latency_ns * ghz],
            latencies: ReadLatencySampler::new(spec.latency_ns * ghz, spec.latency_shape),
            line_cycles: CACHE_LINE_BYTES as f64 / spec.bandwidth_gb_per_s * ghz,
            channel_free: 0.0,
            entered: 0.0,
            fill_buffers: ResourceSlots::new(spec.fill_buffers),
            stream: PrefetchStream {
                // A number that is no line's and no neighbour's.
                line: u64::MAX - 1,
                ready: 0.0,
                length: 0,
            },
            walks_pass_first_level: spec.walks_pass_first_level,
        }
    }

    pub(crate) fn set_frame_bytes(&mut self, frame_bytes: u64) {
        self.frame_bytes = frame_bytes;
    }

    /// Sets the time at which the next loads' access entered the core; it never decreases.
    #[inline]
    pub(crate) fn set_core_entry_time(&mut self, entered: f64) {
        self.entered = entered;
    }

    /// A load of the program at `start`; returns when its data arrives.
    #[inline]
    pub(crate) fn load(&mut self, line: u64, start: f64) -> f64 {
        if line == self.stream.line {
            return self.stream.ready.max(start + self.latency[0]);
        }
        self.stream.length = match line {
            _ if line % LINES_PER_PREFETCH_AREA == 0 => 0,
            _ if line == self.stream.line + 1 => self.stream.length + 1,
            _ => 0,
        };
        self.stream.line = line;
        let level = self.caches.load(line, self.frame_bytes, start);
        let prefetched = level == MemoryLevel::Memory && self.stream.length >= LINES_TO_A_STREAM;
        self.stream.ready = if prefetched {
            self.prefetched_load_time(start)
        } else {
            self.demand_load_time(line, level, start)
        };
        self.stream.ready
    }

    /// A load of a page walk at `start`; returns the level that had the line, and when it arrives.
    #[inline]
    pub(crate) fn load_for_walk(&mut self, line: u64, start: f64) -> (MemoryLevel, f64) {
        if self.walks_pass_first_level {
            let level = self.caches.load_beyond_first(line, BASE_PAGE_BYTES, start);
            let start = self.reserve_channel(level, start);
            return (level, start + self.level_latency(level));
        }
        let level = self.caches.load(line, BASE_PAGE_BYTES, start);
        (level, self.demand_load_time(line, level, start))
    }

    #[inline]
    fn level_latency(&mut self, level: MemoryLevel) -> f64 {
        match level {
            MemoryLevel::Memory => self.latencies.draw(),
            level => self.latency[level as usize],
        }
    }

    /// When a line that is wanted at `start` is requested from the channel.
    #[inline]
    fn reserve_channel(&mut self, level: MemoryLevel, start: f64) -> f64 {
        if level != MemoryLevel::Memory {
            return start;
        }
        // A walk's last load is far ahead of the next access. It uses the channel's time, but does
        // not delay requests made in between.
        let free = self.channel_free.max(self.entered);
        self.channel_free = free + self.line_cycles;
        start.max(free)
    }

    #[inline]
    fn demand_load_time(&mut self, line: u64, level: MemoryLevel, start: f64) -> f64 {
        if level == MemoryLevel::L1 {
            // The cache contains a line as soon as it is requested.
            let hit = start + self.latency[MemoryLevel::L1 as usize];
            return self.fill_buffers.end_of_work_on(line, hit);
        }
        self.fill_buffers.drop_work_before(self.entered);
        let start = self.reserve_channel(level, start);
        let begin = self.fill_buffers.first_free_time(start);
        let ready = begin + self.level_latency(level);
        self.fill_buffers.add_busy_span(line, begin, ready);
        ready
    }

    /// A prefetched line: it was requested a memory latency ago and waits in the second level.
    #[inline]
    fn prefetched_load_time(&mut self, start: f64) -> f64 {
        let asked = start - self.latency[MemoryLevel::Memory as usize];
        self.channel_free = self.channel_free.max(asked) + self.line_cycles;
        self.channel_free.max(start + self.latency[MemoryLevel::L2 as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn level(lines: u64, latency_cycles: u32) -> CacheLevelSpec {
        CacheLevelSpec { bytes: lines * CACHE_LINE_BYTES, ways: lines as u32, latency_cycles }
    }

    fn memory() -> MemoryModel {
        MemoryModel::new(&SPEC, 1.0, BASE_PAGE_BYTES)
    }

    /// 100 cycles to memory, 10 for a line on the channel, two fill buffers.
    const SPEC: MemorySpec = MemorySpec {
        caches: [level(4, 5), level(8, 14), level(16, 50)],
        latency_ns: 100.0,
        latency_shape: ReadLatencyShape::SAME,
        bandwidth_gb_per_s: 6.4,
        fill_buffers: 2,
        channels: 1,
        channel_gb_per_s: 6.4,
        neighbours_gb_per_s: 0.0,
        last_level: CacheReplacement::LeastRecentlyUsed,
        walks_pass_first_level: false,
    };

    #[test]
    fn loads_overlap_as_far_as_there_are_fill_buffers() {
        let mut memory = memory();
        assert_eq!(memory.load(1000, 0.0), 100.0);
        assert_eq!(memory.load(2000, 0.0), 110.0, "behind it on the channel");
        assert_eq!(memory.load(3000, 0.0), 200.0, "the first buffer is free");
        assert_eq!(memory.load(2000, 300.0), 305.0, "in L1");
    }

    #[test]
    fn a_buffer_is_not_kept_for_what_comes_late() {
        let mut memory = memory();
        assert_eq!(memory.load(1000, 0.0), 100.0);
        // It takes a buffer only from then on.
        assert_eq!(memory.load_for_walk(2000, 300.0).1, 400.0);
        assert_eq!(memory.load(3000, 50.0), 150.0);
        assert_eq!(memory.load(4000, 50.0), 200.0, "both are taken");
    }

    #[test]
    fn the_channel_is_not_kept_for_what_comes_late() {
        let mut memory = memory();
        assert_eq!(memory.load_for_walk(1000, 500.0).1, 600.0);
        assert_eq!(memory.load(2000, 0.0), 110.0, "a line's time behind it");
        memory.set_core_entry_time(1000.0);
        assert_eq!(memory.load(3000, 1000.0), 1100.0, "idle since");
    }

    #[test]
    fn walks_that_pass_the_first_level_leave_its_buffers() {
        let spec = MemorySpec { walks_pass_first_level: true, ..SPEC };
        let mut memory = MemoryModel::new(&spec, 1.0, BASE_PAGE_BYTES);
        for line in [1000, 2000, 3000] {
            memory.load_for_walk(line, 0.0);
        }
        assert_eq!(memory.load_for_walk(1000, 200.0), (MemoryLevel::L2, 214.0));
        // Behind the three lines on the channel, and no further.
        assert_eq!(memory.load(4000, 0.0), 130.0);
        assert_eq!(memory.load(5000, 0.0), 140.0);
        assert_eq!(memory.load(6000, 0.0), 230.0, "the first buffer is free");
    }

    #[test]
    fn a_line_under_way_is_waited_for_once() {
        let mut memory = memory();
        assert_eq!(memory.load(1000, 0.0), 100.0);
        assert_eq!(memory.load(1000, 2.0), 100.0);
        assert_eq!(memory.load(1000, 200.0), 205.0);
        assert_eq!(memory.load_for_walk(3000, 200.0), (MemoryLevel::Memory, 300.0));
        assert_eq!(memory.load_for_walk(3000, 210.0), (MemoryLevel::L1, 300.0));
        assert_eq!(memory.load_for_walk(3000, 400.0), (MemoryLevel::L1, 405.0));
    }

    #[test]
    fn streams_are_prefetched_up_to_the_end_of_a_base_page() {
        let mut memory = memory();
        let took: Vec<f64> = (0..70u32)
            .map(|line| {
                let start = f64::from(line) * 1000.0;
                memory.load(64 + u64::from(line), start) - start
            })
            .collect();
        for (line, took) in took.into_iter().enumerate() {
            let expected = if line % 64 < 2 { 100.0 } else { 14.0 };
            assert_eq!(took, expected, "line {line}");
        }
    }

    #[test]
    fn a_stream_is_as_fast_as_the_channel() {
        let mut memory = memory();
        memory.set_core_entry_time(200.0);
        let ready: Vec<f64> = (1..64).map(|line| memory.load(line, 200.0)).collect();
        let last = ready.last().copied().unwrap_or_default();
        assert!((750.0..=850.0).contains(&last), "{last}");
    }
}
