//! The clock, caches and memory of the core that this runs on.
//!
//! Latencies and bandwidth are measured under huge pages, and in an order in which translation costs nothing even
//! where a hypervisor maps them by base pages: one block of memory after the other, each of no more pages than a TLB
//! holds. Of each 128 bytes one line is read, because processors fetch its neighbour as well.

use super::memory::{Memory, PAGE, Pages, REGION, nanoseconds};
use super::overlap::{self, Overlap};
use super::sharing::{self, Sharing};
use super::{Spread, turns};
use hawkeye_linux::LinuxError;
use hawkeye_linux::sample::generator::{below, next_random, worked};
use serde::Serialize;
use std::fs;
use std::ops::Range;
use std::time::Instant;

/// Bytes of a cache line.
const LINE: usize = 64;
/// Lines that prefetchers bring together.
pub(super) const PAIR: usize = 2 * LINE;
/// Memory that no cache holds, where it can be had.
const DATA_BYTES: usize = 2 << 30;
/// As many base pages as every first-level TLB holds ...
pub(super) const NEAR_BLOCK: usize = 64 * PAGE;
/// ... and every second-level one: those since Haswell have 1,024 entries and more.
pub(super) const FAR_BLOCK: usize = REGION;
/// Pairs of lines in that.
const BLOCK_PAIRS: usize = FAR_BLOCK / PAIR;
/// Reads in one turn of a chase.
const READS: usize = 200_000;
/// Independent reads in one turn, at least.
const FREE_READS: usize = 500_000;
/// Pages that no second-level TLB holds, in huge pages that the first level does.
const SCATTERED_PAGES: usize = 8192;
/// Steps of a multiplication and a rotation, 3 cycles and 1 (Intel since Nehalem, AMD since Zen: Agner Fog, "Instruction
/// tables").
const CLOCK_STEPS: u32 = 5_000_000;
const CYCLES_PER_STEP: f64 = 4.0;

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

/// How long a read takes over so much memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Memory that is read, each pair of lines as often as the others.
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
    /// Reads that depend on the one before: half of each cache of the core's own, four times the last of them or more, memory that no
    /// cache holds unless a hypervisor's is larger.
    pub latencies: Vec<Latency>,
    /// Independent reads over ever more memory; the last as above.
    pub independent: Vec<Latency>,
    /// Over the last but one of the latencies' footprints.
    pub sharing: Sharing,
    /// Over the last.
    pub overlap: Overlap,
    /// Reading the largest memory in order, in gigabytes (1e9) per second.
    pub stream_gb_per_s: Spread,
    /// Dependent reads of a line on each of 8,192 base pages' worth of huge pages ...
    pub scattered: Spread,
    /// ... and of as many lines side by side. Where the TLB has whole huge pages it makes no difference.
    pub together: Spread,
}

/// Measures.
///
/// # Errors
/// Memory or huge pages that can't be had.
pub fn measure() -> Result<CoreCosts, LinuxError> {
    let caches = cache_sizes();
    let own = caches.iter().filter(|cache| cache.level <= 2);
    let own: Vec<usize> = own.map(|cache| cache.bytes as usize).collect();
    let shared = sharing::bytes(&caches);
    let memory = Memory::written(DATA_BYTES, Pages::Huge)?;
    let chased = |order: &[u32]| -> Result<Spread, LinuxError> {
        link(&memory, order);
        let mut at = first(order);
        let [ns] = turns(|| Ok([chase(&memory, &mut at, READS)]))?;
        Ok(ns)
    };
    let mut latencies = Vec::new();
    for bytes in own.iter().map(|bytes| bytes / 2) {
        let ns = chased(&in_blocks(bytes, NEAR_BLOCK))?;
        latencies.push(Latency { bytes, ns });
    }
    let ns = chased_again(&memory, shared)?;
    latencies.push(Latency { bytes: shared, ns });
    let bytes = DATA_BYTES;
    let order = in_blocks(bytes, FAR_BLOCK);
    let ns = chased(&order)?;
    latencies.push(Latency { bytes, ns });
    // A block that was not read by then.
    let block = order[order.len() / 2..].iter().take(BLOCK_PAIRS);
    let block: Vec<usize> = block.map(|line| *line as usize * LINE).collect();
    let overlap = overlap::along(&memory, &block, ns.median)?;
    let scattered = chased(&one_of_each_page(SCATTERED_PAGES))?;
    let mut side_by_side: Vec<u32> = (0..SCATTERED_PAGES as u32).collect();
    shuffle(&mut side_by_side, 1);
    let together = chased(&side_by_side)?;
    let sharing = sharing::over(&memory, shared)?;
    let mut independent = Vec::new();
    // Also half-way to twice as much.
    let sizes = (0..).flat_map(|n| [shared << n, (shared + shared / 2) << n]);
    for bytes in sizes.take_while(|bytes| *bytes < DATA_BYTES) {
        let [ns] = turns(|| Ok([swept(&memory, bytes, || ())]))?;
        independent.push(Latency { bytes, ns });
    }
    let [stream_gb_per_s] = turns(|| Ok([stream(&memory)]))?;
    let [ghz] = turns(|| Ok([clock()]))?;
    Ok(CoreCosts {
        ghz,
        caches,
        latencies,
        independent,
        sharing,
        overlap,
        stream_gb_per_s,
        scattered,
        together,
    })
}

/// `/sys/devices/system/cpu/cpu0/cache`; empty where it isn't there.
pub(super) fn cache_sizes() -> Vec<CacheSize> {
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

/// The numbers of one line of each pair in so many bytes: one block after the other, in random order within each.
pub(super) fn in_blocks(bytes: usize, block: usize) -> Vec<u32> {
    let lines = PAIR / LINE;
    let mut order: Vec<u32> = (0..bytes / LINE).step_by(lines).map(|n| n as u32).collect();
    for (number, block) in order.chunks_mut(block / PAIR).enumerate() {
        shuffle(block, number as u64);
    }
    order
}

/// A line on each of so many base pages, in random order.
fn one_of_each_page(pages: usize) -> Vec<u32> {
    let lines_per_page = PAGE / LINE;
    let mut random = 1;
    let lines = (0..pages).map(|page| {
        random = next_random(random);
        (page * lines_per_page) as u32 + below(random, lines_per_page as u64) as u32
    });
    let mut order: Vec<u32> = lines.collect();
    shuffle(&mut order, 1);
    order
}

/// A random order (Fisher and Yates).
fn shuffle(order: &mut [u32], seed: u64) {
    let mut random = next_random(seed);
    for last in (1..order.len()).rev() {
        random = next_random(random);
        order.swap(last, below(random, last as u64 + 1) as usize);
    }
}

/// Has each line of an order hold the offset of the next, and the last that of the first.
pub(super) fn link(memory: &Memory, order: &[u32]) {
    let next = order.iter().cycle().skip(1);
    for (line, next) in order.iter().zip(next) {
        memory.write(*line as usize * LINE, u64::from(*next) * LINE as u64);
    }
}

/// Where a chase through an order begins.
pub(super) fn first(order: &[u32]) -> usize {
    order.first().map_or(0, |line| *line as usize * LINE)
}

pub(super) fn chase(memory: &Memory, at: &mut usize, reads: usize) -> f64 {
    let begun = Instant::now();
    for _ in 0..reads {
        *at = memory.read(*at) as usize;
    }
    nanoseconds(begun) / reads as f64
}

/// Laps through so many bytes of a shared cache, each after all of them were read without waiting: where neighbours have
/// driven them out once, a lap that waits for memory takes so long that they do again, and no turn would ever find any.
fn chased_again(memory: &Memory, bytes: usize) -> Result<Spread, LinuxError> {
    let order = in_blocks(bytes, FAR_BLOCK);
    link(memory, &order);
    let mut at = first(&order);
    let [ns] = turns(|| {
        swept(memory, bytes, || ());
        Ok([chase(memory, &mut at, order.len())])
    })?;
    Ok(ns)
}

/// Reads a line of each pair of a range of whole blocks, one block after the other and all of it so many times, where no read
/// waits for another, and works before each: nanoseconds for one.
pub(super) fn sweep(memory: &Memory, of: Range<usize>, laps: usize, work: impl Fn()) -> f64 {
    let begun = Instant::now();
    for lap in 0..laps {
        for block in of.clone().step_by(FAR_BLOCK) {
            let mut x = (lap + block / FAR_BLOCK) as u64;
            for _ in 0..BLOCK_PAIRS {
                let pair = next_pair(&mut x);
                work();
                std::hint::black_box(memory.read(block + pair * PAIR));
            }
        }
    }
    nanoseconds(begun) / (laps * (of.len() / FAR_BLOCK) * BLOCK_PAIRS) as f64
}

/// Sweeps through so many bytes, as often as makes enough reads.
pub(super) fn swept(memory: &Memory, bytes: usize, work: impl Fn()) -> f64 {
    let laps = (FREE_READS / (bytes / PAIR)).max(1);
    sweep(memory, 0..bytes, laps, work)
}

/// The next pair of lines of a block, in an order that comes by each once.
#[inline(always)]
fn next_pair(x: &mut u64) -> usize {
    // A generator of full period below a power of two; its lowest bits alone are no random order.
    *x = next_random(*x) % BLOCK_PAIRS as u64;
    (*x ^ (*x >> 7)) as usize
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
        x = worked(x);
    }
    std::hint::black_box(x);
    f64::from(CLOCK_STEPS) * CYCLES_PER_STEP / nanoseconds(begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that a chase comes by until it is where it began.
    fn lap(memory: &Memory, order: &[u32]) -> Vec<u32> {
        link(memory, order);
        let mut at = first(order);
        let mut lines = Vec::new();
        while lines.len() <= order.len() {
            lines.push((at / LINE) as u32);
            at = memory.read(at) as usize;
            if at == first(order) {
                break;
            }
        }
        lines
    }

    #[test]
    fn a_chase_leads_through_a_line_of_each_pair_block_by_block() {
        let memory = Memory::map(REGION, Pages::Base).expect("2 MiB");
        let order = in_blocks(REGION, NEAR_BLOCK);
        let lines = lap(&memory, &order);
        assert_eq!(lines, order);
        assert_eq!(lines.len(), REGION / PAIR);
        for (number, block) in lines.chunks(NEAR_BLOCK / PAIR).enumerate() {
            let mut sorted = block.to_vec();
            sorted.sort_unstable();
            assert_ne!(sorted, block);
            let begin = (number * NEAR_BLOCK / LINE) as u32;
            let pairs = (0..block.len() as u32).map(|pair| begin + 2 * pair);
            assert!(sorted.into_iter().eq(pairs), "block {number}");
        }
    }

    #[test]
    fn scattered_lines_are_on_pages_of_their_own() {
        let memory = Memory::map(REGION, Pages::Base).expect("2 MiB");
        let pages = REGION / PAGE;
        let lines = lap(&memory, &one_of_each_page(pages));
        let mut on: Vec<usize> = lines
            .iter()
            .map(|line| *line as usize * LINE / PAGE)
            .collect();
        on.sort_unstable();
        assert!(on.into_iter().eq(0..pages));
    }

    #[test]
    fn a_sweep_reads_every_pair() {
        let mut seen = vec![false; BLOCK_PAIRS];
        let mut x = 5;
        for _ in 0..BLOCK_PAIRS {
            seen[next_pair(&mut x)] = true;
        }
        assert!(seen.into_iter().all(|seen| seen));
    }
}
