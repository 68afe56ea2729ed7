//! How long loads take: caches, line-fill buffers, the memory channel and the stream prefetcher.

use super::caches::{CACHE_LINE_BYTES, CacheLevel, Caches, Level, Replacement};
use super::latency::{Latencies, LatencyShape};
use super::slots::Slots;
use hawkeye_policy::BASE_PAGE_BYTES;
use serde::{Deserialize, Serialize};

/// Caches and memory of one core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySpec {
    /// L1, L2 and L3. What a core can use of a shared one is all of it: it runs alone.
    pub caches: [CacheLevel; 3],
    /// From the start of a load to its data where no cache has it, in nanoseconds, on average.
    pub latency_ns: f64,
    /// How that varies. The fast model knows the average alone.
    #[serde(default)]
    pub latency_shape: LatencyShape,
    /// What one core can read in a stream, in gigabytes (1e9) per second.
    pub bandwidth_gb_per_s: f64,
    /// Lines that the L1 cache can be waiting for ("line-fill buffers").
    pub fill_buffers: u32,
    /// Channels of a socket's memory, which all its cores share.
    pub channels: u32,
    /// What each of them can transfer, in gigabytes (1e9) per second.
    pub channel_gb_per_s: f64,
    /// What programs on other cores, or of other guests, bring into the last level and so drive out of it, in gigabytes
    /// (1e9) per second: where that can't be kept apart from what is simulated. The fast model knows of none.
    #[serde(default)]
    pub neighbours_gb_per_s: f64,
    /// Which lines of the last level make room. The fast model knows LRU alone.
    #[serde(default)]
    pub last_level: Replacement,
    /// Page walks ask the second level and not the first, and take none of its buffers. The fast model knows of no first level.
    #[serde(default)]
    pub walks_pass_first_level: bool,
}

/// Neighbouring lines read one after the other before the prefetcher runs ahead.
const LINES_TO_A_STREAM: u32 = 2;
/// Lines of a base page. Prefetchers see physical addresses, and stay in 4 KiB also where pages are
/// huge.
const LINES_PER_PREFETCH_AREA: u64 = BASE_PAGE_BYTES / CACHE_LINE_BYTES;

/// Caches and memory at work. All times are in cycles since the start.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    caches: Caches,
    /// What is in one piece of physical memory, of the program's.
    frame_bytes: u64,
    /// Of each level, and of memory on average.
    latency: [f64; 4],
    /// Of memory.
    latencies: Latencies,
    /// The channel's time for one line.
    line_cycles: f64,
    /// When the channel has passed on all that was asked for, if it was asked at once.
    channel_free: f64,
    /// When the access that loads are made for entered the core: none of its loads, nor any later one's, is earlier.
    entered: f64,
    /// Lines that the L1 cache waits for.
    fill_buffers: Slots<u64>,
    stream: Stream,
    walks_pass_first_level: bool,
}

/// The line that the program read last.
#[derive(Clone, Copy, Debug)]
struct Stream {
    line: u64,
    /// When its data is there.
    ready: f64,
    /// Lines read in a row, within a base page.
    length: u32,
}

impl Memory {
    /// The program's memory is in frames of this size.
    pub(crate) fn new(spec: &MemorySpec, ghz: f64, frame_bytes: u64) -> Self {
        let [l1, l2, l3] = spec.caches.map(|level| f64::from(level.latency_cycles));
        Self {
            caches: Caches::new(spec.caches, spec.last_level)
                .shared_with(spec.neighbours_gb_per_s / ghz),
            frame_bytes,
            latency: [l1, l2, l3, spec.latency_ns * ghz],
            latencies: Latencies::new(spec.latency_ns * ghz, spec.latency_shape),
            line_cycles: CACHE_LINE_BYTES as f64 / spec.bandwidth_gb_per_s * ghz,
            channel_free: 0.0,
            entered: 0.0,
            fill_buffers: Slots::new(spec.fill_buffers),
            stream: Stream {
                // No line's number, and no line's neighbour.
                line: u64::MAX - 1,
                ready: 0.0,
                length: 0,
            },
            walks_pass_first_level: spec.walks_pass_first_level,
        }
    }

    /// Where its frames are of another size.
    pub(crate) fn set_frames(&mut self, frame_bytes: u64) {
        self.frame_bytes = frame_bytes;
    }

    /// What follows is for an access that entered the core at this time, no earlier than the last.
    #[inline]
    pub(crate) fn begin(&mut self, entered: f64) {
        self.entered = entered;
    }

    /// A load of the program's at `start`; returns when its data is there.
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
        let prefetched = level == Level::Memory && self.stream.length >= LINES_TO_A_STREAM;
        self.stream.ready = if prefetched {
            self.prefetched(start)
        } else {
            self.demanded(line, level, start)
        };
        self.stream.ready
    }

    /// A load of a page walk's at `start`; returns where the line was, and when it is there.
    #[inline]
    pub(crate) fn load_for_walk(&mut self, line: u64, start: f64) -> (Level, f64) {
        if self.walks_pass_first_level {
            let level = self.caches.load_beyond_first(line, BASE_PAGE_BYTES, start);
            let start = self.on_the_channel(level, start);
            return (level, start + self.takes(level));
        }
        let level = self.caches.load(line, BASE_PAGE_BYTES, start);
        (level, self.demanded(line, level, start))
    }

    /// From the start of a load to its data.
    #[inline]
    fn takes(&mut self, level: Level) -> f64 {
        match level {
            Level::Memory => self.latencies.draw(),
            level => self.latency[level as usize],
        }
    }

    /// When a line is asked for that is wanted at `start`.
    #[inline]
    fn on_the_channel(&mut self, level: Level, start: f64) -> f64 {
        if level != Level::Memory {
            return start;
        }
        // A walk's last load is far ahead of the next access. It takes the channel's time, but doesn't keep it
        // from what is asked for in between.
        let free = self.channel_free.max(self.entered);
        self.channel_free = free + self.line_cycles;
        start.max(free)
    }

    #[inline]
    fn demanded(&mut self, line: u64, level: Level, start: f64) -> f64 {
        if level == Level::L1 {
            // The cache knows a line as soon as it was asked for.
            let hit = start + self.latency[Level::L1 as usize];
            return self.fill_buffers.wait(line, hit);
        }
        self.fill_buffers.forget(self.entered);
        let start = self.on_the_channel(level, start);
        let begin = self.fill_buffers.free(start);
        let ready = begin + self.takes(level);
        self.fill_buffers.take(line, begin, ready);
        ready
    }

    /// A line that was asked for a memory latency ago and waits in the second level.
    #[inline]
    fn prefetched(&mut self, start: f64) -> f64 {
        let asked = start - self.latency[Level::Memory as usize];
        self.channel_free = self.channel_free.max(asked) + self.line_cycles;
        self.channel_free
            .max(start + self.latency[Level::L2 as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn level(lines: u64, latency_cycles: u32) -> CacheLevel {
        CacheLevel {
            bytes: lines * CACHE_LINE_BYTES,
            ways: lines as u32,
            latency_cycles,
        }
    }

    fn memory() -> Memory {
        Memory::new(&SPEC, 1.0, BASE_PAGE_BYTES)
    }

    /// 100 cycles to memory, 10 for a line on the channel, two fill buffers.
    const SPEC: MemorySpec = MemorySpec {
        caches: [level(4, 5), level(8, 14), level(16, 50)],
        latency_ns: 100.0,
        latency_shape: LatencyShape::SAME,
        bandwidth_gb_per_s: 6.4,
        fill_buffers: 2,
        channels: 1,
        channel_gb_per_s: 6.4,
        neighbours_gb_per_s: 0.0,
        last_level: Replacement::LeastRecentlyUsed,
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
        // It takes one of them from then on only.
        assert_eq!(memory.load_for_walk(2000, 300.0).1, 400.0);
        assert_eq!(memory.load(3000, 50.0), 150.0);
        assert_eq!(memory.load(4000, 50.0), 200.0, "both are taken");
    }

    #[test]
    fn the_channel_is_not_kept_for_what_comes_late() {
        let mut memory = memory();
        assert_eq!(memory.load_for_walk(1000, 500.0).1, 600.0);
        assert_eq!(memory.load(2000, 0.0), 110.0, "a line's time behind it");
        memory.begin(1000.0);
        assert_eq!(memory.load(3000, 1000.0), 1100.0, "idle since");
    }

    #[test]
    fn walks_that_pass_the_first_level_leave_its_buffers() {
        let spec = MemorySpec {
            walks_pass_first_level: true,
            ..SPEC
        };
        let mut memory = Memory::new(&spec, 1.0, BASE_PAGE_BYTES);
        for line in [1000, 2000, 3000] {
            memory.load_for_walk(line, 0.0);
        }
        assert_eq!(memory.load_for_walk(1000, 200.0), (Level::L2, 214.0));
        // Behind the three on the channel, and no further.
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
        assert_eq!(memory.load_for_walk(3000, 200.0), (Level::Memory, 300.0));
        assert_eq!(memory.load_for_walk(3000, 210.0), (Level::L1, 300.0));
        assert_eq!(memory.load_for_walk(3000, 400.0), (Level::L1, 405.0));
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
        memory.begin(200.0);
        let ready: Vec<f64> = (1..64).map(|line| memory.load(line, 200.0)).collect();
        let last = ready.last().copied().unwrap_or_default();
        assert!((750.0..=850.0).contains(&last), "{last}");
    }
}
