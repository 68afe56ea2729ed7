//! The clock, caches and memory of the core that this runs on.

use super::data_cache_levels::{DataCacheLevel, read_data_cache_levels};
use super::line_reads::{
    BLOCK_PAIRS, FAR_BLOCK, LINE, NEAR_BLOCK, chase_ns_per_read, chase_start_offset,
    independent_ns_per_read, link_lines_into_ring, shuffled_line_of_each_page,
    shuffled_lines_by_block,
};
use super::prelude::*;
use super::read_overlap::{self, ReadOverlap};
use super::shared_cache_retention::{self, SharedCacheRetention};
use hawkeye_linux::sample::random::dependent_arithmetic_step;
use hawkeye_workload::rng::WorkloadRng;

/// Memory larger than every cache, if it can be allocated.
const DATA_BYTES: usize = 2 << 30;
const READS: usize = 200_000;
/// Number of pages: too many for a second-level TLB as base pages, but few enough for a first-level
/// one as huge pages.
const SCATTERED_PAGES: usize = 8192;
/// Number of steps, each a multiplication and a rotation of 3 cycles and 1 (Agner Fog, "Instruction
/// tables").
const CLOCK_STEPS: u32 = 5_000_000;
const CYCLES_PER_STEP: f64 = 4.0;

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
