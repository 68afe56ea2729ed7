//! The zeroing thread's use of last-level cache lines and memory channels beside programs.
//!
//! # The model
//!
//! - *Cache.* Shared, fully associative, replaced by LRU. A line stays for the time in which
//!   incoming lines fill the cache, which is the same for every program (H. Che, Y. Tung, Z. Wang,
//!   "Hierarchical web caching systems: modeling, design and experimental results", IEEE JSAC
//!   2002). A program finds what it accesses again within that time. Stores through the caches
//!   bring in each line once and never access it again. Non-temporal stores bring in nothing.
//! - *Memory.* Reads of a channel wait while it writes. Writes are collected and made in batches. A
//!   store through the caches first reads its line, for ownership.
//! - The cost of an access without the thread already includes what it finds in the caches. A line
//!   that it no longer finds costs memory's latency instead of the cache's. The program waits for
//!   the same share of that as it does for walks.
//!
//! Not modelled: what programs take from each other; lines of page tables; a core's own caches.

use super::stream_sampler::StreamSampler;
use crate::kernel::KernelThreadWork;
use crate::mmu::{CACHE_LINE_BYTES, MemorySpec, ProcessorSpec};
use std::time::Duration;

/// The thread's traffic, in lines per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ZeroingTrafficRates {
    written: f64,
    /// The part of it that goes through the caches.
    cached: f64,
}

/// Traffic since it was last averaged: pages are zeroed one at a time, and steps can be short.
#[derive(Clone, Copy, Debug, Default)]
struct RecentZeroingTraffic {
    written_bytes: u64,
    cached_bytes: u64,
    time: Duration,
}

/// Traffic is averaged over this much time, at least.
const RECKONED_OVER: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug)]
pub(super) struct ZeroingNeighbour {
    pub(super) memory: MemorySpec,
    pub(super) ghz: f64,
    pub(super) traffic: ZeroingTrafficRates,
    recent: RecentZeroingTraffic,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct EstimatedSlowdown {
    traffic: ZeroingTrafficRates,
    cycles: f64,
    /// Additional cycles per access.
    pub(super) by: f64,
}

/// The slowdown is estimated again when traffic has changed by more than this share.
const SAME: f64 = 0.02;

impl EstimatedSlowdown {
    fn still_holds(&self, traffic: ZeroingTrafficRates, cycles: f64) -> bool {
        let same = |a: f64, b: f64| (a - b).abs() <= SAME * a.max(b);
        let rates = (self.traffic, traffic);
        same(rates.0.written, rates.1.written)
            && same(rates.0.cached, rates.1.cached)
            && same(self.cycles, cycles)
    }
}

/// Lines that a channel writes in a row: a usual length of write queues.
const WRITE_BATCH: f64 = 32.0;
/// Time to turn a channel from reading to writing and back, in nanoseconds (DDR4: write-to-read
/// delay and write latency, about 7.5 and 10 ns).
const TURN_NS: f64 = 17.5;
/// Iterations in which a program's speed and its cache hits settle.
const ROUNDS: u32 = 10;
/// Bisection steps that find the time for which a line stays to within 0.1 us.
const HALVINGS: u32 = 40;

impl ZeroingNeighbour {
    pub(super) fn new(processor: &ProcessorSpec) -> Self {
        Self {
            memory: processor.memory,
            ghz: processor.ghz,
            traffic: ZeroingTrafficRates::default(),
            recent: RecentZeroingTraffic::default(),
        }
    }

    /// Records the thread's step, beside another thread's traffic in the same caches.
    pub(super) fn record_step(
        &mut self,
        done: &KernelThreadWork,
        step: Duration,
        other: ZeroingTrafficRates,
    ) {
        let recent = &mut self.recent;
        recent.written_bytes += done.written_bytes;
        recent.cached_bytes += done.cached_bytes;
        recent.time += step;
        if recent.time < RECKONED_OVER {
            return;
        }
        let time_s = recent.time.as_secs_f64();
        let per_s = |bytes: u64| bytes as f64 / CACHE_LINE_BYTES as f64 / time_s;
        self.traffic = ZeroingTrafficRates {
            written: per_s(recent.written_bytes) + other.written,
            cached: per_s(recent.cached_bytes) + other.cached,
        };
        *recent = RecentZeroingTraffic::default();
    }

    /// The additional time of an average access of a program with `threads` threads, where an
    /// access takes `cycles` without the zeroing thread. `known` is the estimate before.
    pub(super) fn estimate_slowdown(
        &self,
        sources: &[StreamSampler],
        threads: u32,
        cycles: f64,
        known: Option<EstimatedSlowdown>,
    ) -> EstimatedSlowdown {
        let known = known.filter(|known| known.still_holds(self.traffic, cycles));
        known.unwrap_or_else(|| EstimatedSlowdown {
            traffic: self.traffic,
            cycles,
            by: self.slowdown_cycles_per_access(sources, threads, cycles),
        })
    }

    fn slowdown_cycles_per_access(
        &self,
        sources: &[StreamSampler],
        threads: u32,
        cycles: f64,
    ) -> f64 {
        if self.traffic.written <= 0.0 {
            return 0.0;
        }
        let mut slower = 0.0;
        for _ in 0..ROUNDS {
            let per_s = f64::from(threads) * self.ghz * 1e9 / (cycles + slower);
            // Half a step, because the two depend on each other: a slower program loses more lines.
            slower = (slower + self.extra_cycles(sources, per_s)) / 2.0;
        }
        slower
    }

    fn extra_cycles(&self, sources: &[StreamSampler], per_s: f64) -> f64 {
        let [_, _, last] = self.memory.caches;
        let alone = self.cache_line_lifetime_s(sources, per_s, 0.0);
        let beside = self.cache_line_lifetime_s(sources, per_s, self.traffic.cached);
        let memory = self.memory.latency_ns * self.ghz;
        let longer = memory - f64::from(last.latency_cycles);
        let waits = self.memory_wait_ns() * self.ghz;
        let each = sources.iter().map(|source| {
            let per_s = per_s * source.share;
            let misses = |stays_s| source.missed_lines_per_access(per_s, stays_s);
            let (before, now) = (misses(alone), misses(beside));
            let waited = f64::from(source.waited_permille) / 1000.0;
            source.share * waited * ((now - before) * longer + now * waits)
        });
        each.sum()
    }

    /// How long a line stays in the cache, in seconds, if `others` lines come in per second.
    fn cache_line_lifetime_s(&self, sources: &[StreamSampler], per_s: f64, others: f64) -> f64 {
        let [_, _, last] = self.memory.caches;
        let lines = last.bytes as f64 / CACHE_LINE_BYTES as f64;
        let brought = |stays_s: f64| {
            let own = sources.iter().map(|s| s.expected_touched_lines(per_s * s.share, stays_s));
            own.sum::<f64>() + others * stays_s
        };
        // A day stands for ever.
        let (mut low, mut high) = (0.0, 86_400.0);
        if brought(high) < lines {
            return high;
        }
        for _ in 0..HALVINGS {
            let middle = (low + high) / 2.0;
            if brought(middle) < lines {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Average wait of a read from memory: for half a batch of writes, or for another read.
    fn memory_wait_ns(&self) -> f64 {
        let channels = f64::from(self.memory.channels);
        let line_ns = CACHE_LINE_BYTES as f64 / self.memory.channel_gb_per_s;
        let batch_ns = WRITE_BATCH * line_ns + TURN_NS;
        let batches_per_ns = self.traffic.written / channels / WRITE_BATCH / 1e9;
        let reads = (self.traffic.cached / channels / 1e9 * line_ns).min(1.0);
        (batches_per_ns * batch_ns).min(1.0) * batch_ns / 2.0 + reads * line_ns / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stream_sampler::tests;
    use crate::mmu::HASWELL;
    use crate::workloads::StreamPattern;

    fn source(mib: u64, pattern: StreamPattern) -> StreamSampler {
        tests::source(pattern, mib / 2, 512).0
    }

    fn slowed(source: StreamSampler, written: f64, cached: f64) -> f64 {
        let neighbour = ZeroingNeighbour {
            traffic: ZeroingTrafficRates { written, cached },
            ..ZeroingNeighbour::new(&HASWELL)
        };
        neighbour.slowdown_cycles_per_access(&[source], 1, 60.0)
    }

    #[test]
    fn nontemporal_stores_evict_nothing() {
        let lines = 16e6;
        let (small, large) = (20, 4096);
        assert_eq!(slowed(source(small, StreamPattern::Random), 0.0, 0.0), 0.0);
        assert_eq!(slowed(source(small, StreamPattern::Random), lines, 0.0), 0.0);
        let through = slowed(source(small, StreamPattern::Random), lines, lines);
        assert!(through > 5.0, "{through}");
        // A program that finds nothing in the cache anyway loses only time of the channels.
        let through = slowed(source(large, StreamPattern::Random), lines, lines);
        let past = slowed(source(large, StreamPattern::Random), lines, 0.0);
        assert!(past > 0.0 && through < 2.0 * past + 3.0, "{through} {past}");
    }

    #[test]
    fn more_traffic_takes_more() {
        for pattern in [StreamPattern::Random, StreamPattern::Zipf(0.8), StreamPattern::Stride(64)]
        {
            let rates = [1e5, 1e6, 1e7, 1e8];
            let taken = rates.map(|rate| slowed(source(28, pattern), rate, rate));
            assert!(taken.is_sorted(), "{pattern:?}: {taken:?}");
        }
    }

    #[test]
    fn lines_stay_until_the_cache_is_full() {
        let neighbour = ZeroingNeighbour::new(&HASWELL);
        let lines = (30 << 20) as f64 / 64.0;
        let stays =
            neighbour.cache_line_lifetime_s(&[source(4096, StreamPattern::Stride(64))], 1e7, 0.0);
        assert!((stays - lines / 1e7).abs() < 1e-6, "{stays}");
        let stays = neighbour.cache_line_lifetime_s(&[source(20, StreamPattern::Random)], 1e7, 0.0);
        assert_eq!(stays, 86_400.0);
    }
}
