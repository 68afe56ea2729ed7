//! The clock, caches and memory of the core that this runs on.
//!
//! Latencies and bandwidth are measured under huge pages, in an order in which translation costs
//! nothing. That holds even if a hypervisor maps the huge pages by base pages: reads go through one
//! block after the other, and a block has no more pages than a TLB holds. Of each 128 bytes one
//! line is read, because processors fetch its neighbour as well.

use super::prelude::*;
use super::read_overlap::{self, ReadOverlap};
use super::shared_cache_retention::{self, SharedCacheRetention};
use hawkeye_linux::sample::random::{dependent_arithmetic_step, map_random_below, next_random};
use hawkeye_workload::rng::WorkloadRng;
use std::fs;
use std::ops::Range;

const LINE: usize = 64;
/// Two lines that prefetchers fetch together.
pub(super) const PAIR: usize = 2 * LINE;
/// Memory larger than every cache, if it can be allocated.
const DATA_BYTES: usize = 2 << 30;
/// As many base pages as every first-level TLB holds.
pub(super) const NEAR_BLOCK: usize = 64 * PAGE;
/// As many base pages as every second-level TLB holds: since Haswell they have 1,024 entries or
/// more.
pub(super) const FAR_BLOCK: usize = REGION;
const BLOCK_PAIRS: usize = FAR_BLOCK / PAIR;
const READS: usize = 200_000;
/// Independent reads in one turn, at least.
const FREE_READS: usize = 500_000;
/// Number of pages: too many for a second-level TLB as base pages, but few enough for a first-level
/// one as huge pages.
const SCATTERED_PAGES: usize = 8192;
/// Number of steps, each a multiplication and a rotation of 3 cycles and 1 (Intel since Nehalem,
/// AMD since Zen: Agner Fog, "Instruction tables").
const CLOCK_STEPS: u32 = 5_000_000;
const CYCLES_PER_STEP: f64 = 4.0;

/// One level of data cache, as reported by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataCacheLevel {
    pub level: u32,
    pub bytes: u64,
    pub ways: u32,
}

/// The duration of a read, by the amount of memory.
#[derive(Clone, Copy, Debug)]
pub struct ReadNsAtSize {
    /// Memory that is read; each pair of lines is read equally often.
    pub bytes: usize,
    pub ns: MedianAndRange,
}

#[derive(Clone, Debug)]
pub struct CoreMeasurements {
    pub ghz: MedianAndRange,
    pub caches: Vec<DataCacheLevel>,
    /// Dependent reads over several sizes: half of each of the core's own caches, four times the
    /// last of them or more, and memory that no cache holds. A hypervisor's cache may be larger
    /// than that.
    pub latencies: Vec<ReadNsAtSize>,
    /// Independent reads over growing memory; the last size is the same as above.
    pub independent: Vec<ReadNsAtSize>,
    /// Measured over the next to last size of `latencies`.
    pub sharing: SharedCacheRetention,
    /// Measured over the last size of `latencies`.
    pub overlap: ReadOverlap,
    /// Speed of reading a quarter of the largest memory in order, in gigabytes (1e9) per second.
    pub stream_gb_per_s: MedianAndRange,
    /// Dependent reads of a line on each of 8,192 base pages' worth of huge pages.
    pub scattered: MedianAndRange,
    /// Dependent reads of as many lines side by side. The difference is none if the TLB holds whole
    /// huge pages.
    pub together: MedianAndRange,
}

pub fn measure_core() -> Result<CoreMeasurements, LinuxError> {
    let caches = read_data_cache_levels();
    let own = caches.iter().filter(|cache| cache.level <= 2);
    let own: Vec<usize> = own.map(|cache| cache.bytes as usize).collect();
    let shared = shared_cache_retention::bytes_held_by_shared_cache_only(&caches);
    let memory = ScratchMemory::map_and_write(DATA_BYTES, PageAdvice::Huge)?;
    let chased = |order: &[u32]| -> CostResult {
        link_lines_into_ring(&memory, order);
        let mut at = chase_start_offset(order);
        median_figure_over_turns(|| Ok(chase_ns_per_read(&memory, &mut at, READS)))
    };
    let mut latencies = Vec::new();
    for bytes in own.iter().map(|bytes| bytes / 2) {
        let ns = chased(&shuffled_lines_by_block(bytes, NEAR_BLOCK))?;
        latencies.push(ReadNsAtSize { bytes, ns });
    }
    let ns = chase_ns_in_warmed_cache(&memory, shared)?;
    latencies.push(ReadNsAtSize { bytes: shared, ns });
    let bytes = DATA_BYTES;
    let order = shuffled_lines_by_block(bytes, FAR_BLOCK);
    let ns = chased(&order)?;
    latencies.push(ReadNsAtSize { bytes, ns });
    // A block that was not read until now.
    let block = order[order.len() / 2..].iter().take(BLOCK_PAIRS);
    let block: Vec<usize> = block.map(|line| *line as usize * LINE).collect();
    let overlap = read_overlap::measure_read_overlap(&memory, &block, ns.median)?;
    let scattered = chased(&shuffled_line_of_each_page(SCATTERED_PAGES))?;
    let mut side_by_side: Vec<u32> = (0..SCATTERED_PAGES as u32).collect();
    WorkloadRng::new(1, 0).shuffle(&mut side_by_side);
    let together = chased(&side_by_side)?;
    let sharing = shared_cache_retention::measure_retention_of_bytes(&memory, shared)?;
    let mut independent = Vec::new();
    // Each power-of-two multiple, and the sizes half-way between.
    let sizes = (0..).flat_map(|n| [shared << n, (shared + shared / 2) << n]);
    for bytes in sizes.take_while(|bytes| *bytes < DATA_BYTES) {
        let ns = median_figure_over_turns(|| Ok(independent_ns_per_read(&memory, bytes, || ())))?;
        independent.push(ReadNsAtSize { bytes, ns });
    }
    let stream_gb_per_s = median_figure_over_turns(|| Ok(streaming_read_gb_per_s(&memory)))?;
    let ghz = median_figure_over_turns(|| Ok(measure_clock_ghz()))?;
    Ok(CoreMeasurements {
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

/// The caches in `/sys/devices/system/cpu/cpu0/cache`; empty if that is missing.
pub(super) fn read_data_cache_levels() -> Vec<DataCacheLevel> {
    let index = |number: u32| {
        let read = |file: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{number}/{file}");
            fs::read_to_string(path).ok()
        };
        let data = read("type").filter(|kind| kind.trim() != "Instruction");
        data?;
        let size = read("size")?;
        let kib: u64 = size.trim().trim_end_matches('K').parse().ok()?;
        Some(DataCacheLevel {
            level: read("level")?.trim().parse().ok()?,
            bytes: kib << 10,
            ways: read("ways_of_associativity")?.trim().parse().ok()?,
        })
    };
    (0..8).filter_map(index).collect()
}

/// One line of each pair within `bytes`: block after block, in random order within each.
pub(super) fn shuffled_lines_by_block(bytes: usize, block: usize) -> Vec<u32> {
    let lines = PAIR / LINE;
    let mut order: Vec<u32> = (0..bytes / LINE).step_by(lines).map(|n| n as u32).collect();
    for (number, block) in order.chunks_mut(block / PAIR).enumerate() {
        WorkloadRng::new(number as u64, 0).shuffle(block);
    }
    order
}

/// A line on each of this many base pages, in random order.
fn shuffled_line_of_each_page(pages: usize) -> Vec<u32> {
    let lines_per_page = PAGE / LINE;
    let mut random = 1;
    let lines = (0..pages).map(|page| {
        random = next_random(random);
        (page * lines_per_page) as u32 + map_random_below(random, lines_per_page as u64) as u32
    });
    let mut order: Vec<u32> = lines.collect();
    WorkloadRng::new(1, 0).shuffle(&mut order);
    order
}

/// Links the lines of an order: each holds the offset of the next, and the last that of the first.
pub(super) fn link_lines_into_ring(memory: &ScratchMemory, order: &[u32]) {
    let next = order.iter().cycle().skip(1);
    for (line, next) in order.iter().zip(next) {
        memory.write_word(*line as usize * LINE, u64::from(*next) * LINE as u64);
    }
}

/// The offset at which a chase through an order starts.
pub(super) fn chase_start_offset(order: &[u32]) -> usize {
    order.first().map_or(0, |line| *line as usize * LINE)
}

pub(super) fn chase_ns_per_read(memory: &ScratchMemory, at: &mut usize, reads: usize) -> f64 {
    let begun = Instant::now();
    for _ in 0..reads {
        *at = memory.read_word(*at) as usize;
    }
    nanoseconds_since(begun) / reads as f64
}

/// Laps through `bytes` of a shared cache, each after independent reads of all of it. Without these
/// reads, a lap that finds its lines evicted waits for memory. It then takes so long that
/// neighbours evict the lines again, and no turn would find any.
fn chase_ns_in_warmed_cache(memory: &ScratchMemory, bytes: usize) -> CostResult {
    let order = shuffled_lines_by_block(bytes, FAR_BLOCK);
    link_lines_into_ring(memory, &order);
    let mut at = chase_start_offset(&order);
    median_figure_over_turns(|| {
        independent_ns_per_read(memory, bytes, || ());
        Ok(chase_ns_per_read(memory, &mut at, order.len()))
    })
}

/// Reads a line of each pair in a range of whole blocks, block after block, `laps` times. No read
/// waits for another, and `work` runs before each. Returns nanoseconds per read.
pub(super) fn independent_laps_ns_per_read(
    memory: &ScratchMemory,
    of: Range<usize>,
    laps: usize,
    work: impl Fn(),
) -> f64 {
    let begun = Instant::now();
    for lap in 0..laps {
        for block in of.clone().step_by(FAR_BLOCK) {
            let mut x = (lap + block / FAR_BLOCK) as u64;
            for _ in 0..BLOCK_PAIRS {
                let pair = next_random_pair_of_block(&mut x);
                work();
                std::hint::black_box(memory.read_word(block + pair * PAIR));
            }
        }
    }
    nanoseconds_since(begun) / (laps * (of.len() / FAR_BLOCK) * BLOCK_PAIRS) as f64
}

/// The same through all of `bytes`, with enough laps for `FREE_READS` reads.
pub(super) fn independent_ns_per_read(
    memory: &ScratchMemory,
    bytes: usize,
    work: impl Fn(),
) -> f64 {
    let laps = (FREE_READS / (bytes / PAIR)).max(1);
    independent_laps_ns_per_read(memory, 0..bytes, laps, work)
}

/// The next pair of lines of a block, in an order that visits each pair once.
#[inline(always)]
fn next_random_pair_of_block(x: &mut u64) -> usize {
    // A generator with full period below a power of two; its lowest bits alone are not in random
    // order.
    *x = next_random(*x) % BLOCK_PAIRS as u64;
    (*x ^ (*x >> 7)) as usize
}

fn streaming_read_gb_per_s(memory: &ScratchMemory) -> f64 {
    let begun = Instant::now();
    for offset in (0..memory.bytes() / 4).step_by(LINE) {
        std::hint::black_box(memory.read_word(offset));
    }
    (memory.bytes() / 4) as f64 / nanoseconds_since(begun)
}

fn measure_clock_ghz() -> f64 {
    let mut x = std::hint::black_box(1u64);
    let begun = Instant::now();
    for _ in 0..CLOCK_STEPS {
        x = dependent_arithmetic_step(x);
    }
    std::hint::black_box(x);
    f64::from(CLOCK_STEPS) * CYCLES_PER_STEP / nanoseconds_since(begun)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that a chase visits until it is back at its start.
    fn lap(memory: &ScratchMemory, order: &[u32]) -> Vec<u32> {
        link_lines_into_ring(memory, order);
        let mut at = chase_start_offset(order);
        let mut lines = Vec::new();
        while lines.len() <= order.len() {
            lines.push((at / LINE) as u32);
            at = memory.read_word(at) as usize;
            if at == chase_start_offset(order) {
                break;
            }
        }
        lines
    }

    #[test]
    fn a_chase_leads_through_a_line_of_each_pair_block_by_block() {
        let memory = ScratchMemory::map(REGION, PageAdvice::Base).expect("2 MiB");
        let order = shuffled_lines_by_block(REGION, NEAR_BLOCK);
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
        let memory = ScratchMemory::map(REGION, PageAdvice::Base).expect("2 MiB");
        let pages = REGION / PAGE;
        let lines = lap(&memory, &shuffled_line_of_each_page(pages));
        let mut on: Vec<usize> = lines.iter().map(|line| *line as usize * LINE / PAGE).collect();
        on.sort_unstable();
        assert!(on.into_iter().eq(0..pages));
    }

    #[test]
    fn a_lap_reads_every_pair() {
        let mut seen = vec![false; BLOCK_PAIRS];
        let mut x = 5;
        for _ in 0..BLOCK_PAIRS {
            seen[next_random_pair_of_block(&mut x)] = true;
        }
        assert!(seen.into_iter().all(|seen| seen));
    }
}
