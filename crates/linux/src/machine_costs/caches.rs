//! The clock, caches and memory of the core that this runs on.

use super::memory::{Memory, Pages, nanoseconds};
use super::{Spread, turns};
use crate::error::LinuxError;
use serde::Serialize;
use std::fs;
use std::time::Instant;

/// Bytes of a cache line.
const LINE: usize = 64;
/// Memory that no cache holds, where it can be had.
const DATA_BYTES: usize = 2 << 30;
/// Reads in one turn of a chase.
const READS: usize = 200_000;
/// Independent reads in one turn.
const FREE_READS: usize = 1_000_000;
/// Steps of a multiplication and a rotation, 3 cycles and 1 (Intel since Nehalem, AMD since Zen: Agner Fog, "Instruction
/// tables").
const CLOCK_STEPS: u32 = 5_000_000;
const CYCLES_PER_STEP: f64 = 4.0;
/// Of Knuth's MMIX generator.
const MULTIPLIER: u64 = 6_364_136_223_846_793_005;

/// One level of data cache, as the kernel tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CacheSize {
    /// Which level, from 1.
    pub level: u32,
    /// Its size.
    pub bytes: u64,
    /// Its ways.
    pub ways: u32,
}

/// How long a read takes that depends on the one before, over so much memory under huge pages.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Memory that is read, each line as often as the others, in one random order.
    pub bytes: usize,
    /// A read.
    pub ns: Spread,
}

/// One core and its memory.
#[derive(Clone, Debug, Serialize)]
pub struct CoreCosts {
    /// Cycles per nanosecond.
    pub ghz: Spread,
    /// Data caches, by level.
    pub caches: Vec<CacheSize>,
    /// By size, ascending; the last over memory that no cache holds, unless a hypervisor's is larger.
    pub latencies: Vec<Latency>,
    /// A read of a random line of the largest memory, independent of the one before.
    pub independent: Spread,
    /// Reading the largest memory in order, in gigabytes (1e9) per second.
    pub stream_gb_per_s: Spread,
}

/// Measures.
///
/// # Errors
/// Memory or huge pages that can't be had.
pub fn measure() -> Result<CoreCosts, LinuxError> {
    let caches = cache_sizes();
    let memory = Memory::written(DATA_BYTES, Pages::Huge)?;
    let mut latencies = Vec::new();
    for bytes in footprints(&caches) {
        chain(&memory, bytes);
        let mut line = 0;
        let [ns] = turns(|| Ok([chase(&memory, &mut line)]))?;
        latencies.push(Latency { bytes, ns });
    }
    let [independent] = turns(|| Ok([independent(&memory)]))?;
    let [stream_gb_per_s] = turns(|| Ok([stream(&memory)]))?;
    let [ghz] = turns(|| Ok([clock()]))?;
    Ok(CoreCosts {
        ghz,
        caches,
        latencies,
        independent,
        stream_gb_per_s,
    })
}

/// Half of each cache of the core's own, then from 16 MiB up.
fn footprints(caches: &[CacheSize]) -> Vec<usize> {
    let own = caches.iter().filter(|cache| cache.level <= 2);
    let mut sizes: Vec<usize> = own.map(|cache| cache.bytes as usize / 2).collect();
    let largest = sizes.last().copied().unwrap_or(0);
    let beyond = (0..8).map(|n| (16 << 20) << n);
    sizes.extend(beyond.filter(|bytes| *bytes > 2 * largest && *bytes <= DATA_BYTES));
    sizes
}

/// `/sys/devices/system/cpu/cpu0/cache`; empty where it isn't there.
fn cache_sizes() -> Vec<CacheSize> {
    let index = |number: u32| {
        let read = |file: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{number}/{file}");
            fs::read_to_string(path).ok()
        };
        let data = read("type").filter(|kind| kind.trim() != "Instruction");
        data?;
        let size = read("size")?;
        let kib: u64 = size.trim().trim_end_matches('K').parse().ok()?;
        Some(CacheSize {
            level: read("level")?.trim().parse().ok()?,
            bytes: kib << 10,
            ways: read("ways_of_associativity")?.trim().parse().ok()?,
        })
    };
    (0..8).filter_map(index).collect()
}

/// Links all lines of the first `bytes` in one random cycle (Sattolo's algorithm): each holds the next one's offset.
fn chain(memory: &Memory, bytes: usize) {
    let lines = bytes / LINE;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut x = 1u64;
    for last in (1..lines).rev() {
        x = x
            .wrapping_mul(MULTIPLIER)
            .wrapping_add(1_442_695_040_888_963_407);
        let other = ((u128::from(x) * last as u128) >> 64) as usize;
        order.swap(last, other);
    }
    for (line, next) in order.iter().enumerate() {
        memory.write(line * LINE, u64::from(*next) * LINE as u64);
    }
}

fn chase(memory: &Memory, line: &mut usize) -> f64 {
    let begun = Instant::now();
    for _ in 0..READS {
        *line = memory.read(*line) as usize;
    }
    nanoseconds(begun) / READS as f64
}

fn independent(memory: &Memory) -> f64 {
    let lines = (memory.bytes() / LINE) as u128;
    let mut x = 1u64;
    let begun = Instant::now();
    for _ in 0..FREE_READS {
        x = x
            .wrapping_mul(MULTIPLIER)
            .wrapping_add(1_442_695_040_888_963_407);
        let line = ((u128::from(x) * lines) >> 64) as usize;
        std::hint::black_box(memory.read(line * LINE));
    }
    nanoseconds(begun) / FREE_READS as f64
}

fn stream(memory: &Memory) -> f64 {
    let begun = Instant::now();
    for offset in (0..memory.bytes() / 4).step_by(LINE) {
        std::hint::black_box(memory.read(offset));
    }
    (memory.bytes() / 4) as f64 / nanoseconds(begun)
}

fn clock() -> f64 {
    let mut x = std::hint::black_box(1u64);
    let begun = Instant::now();
    for _ in 0..CLOCK_STEPS {
        x = x.wrapping_mul(MULTIPLIER).rotate_left(17);
    }
    std::hint::black_box(x);
    f64::from(CLOCK_STEPS) * CYCLES_PER_STEP / nanoseconds(begun)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_costs::memory::REGION;

    #[test]
    fn a_chain_leads_through_every_line() {
        let memory = Memory::map(REGION, Pages::Base).expect("2 MiB");
        chain(&memory, REGION);
        let (mut line, mut steps) = (0, 0);
        loop {
            line = memory.read(line) as usize;
            steps += 1;
            if line == 0 {
                break;
            }
        }
        assert_eq!(steps, REGION / LINE);
    }

    #[test]
    fn footprints_rise_from_the_caches_to_memory() {
        let cache = |level, bytes| CacheSize {
            level,
            bytes,
            ways: 8,
        };
        let sizes = footprints(&[cache(1, 48 << 10), cache(2, 2 << 20), cache(3, 1 << 30)]);
        assert_eq!(sizes[..3], [24 << 10, 1 << 20, 16 << 20]);
        assert_eq!(sizes.last(), Some(&DATA_BYTES));
        assert!(footprints(&[]).len() > 5);
    }
}
