//! Loops over memory that measure page walks. The extra time of an access over the same memory
//! under huge pages is its page walk.

use super::measured_memory::{CacheLinesRead, MeasuredMemory};
use crate::error::{LinuxError, Result};
use crate::memory::system_memory::available_memory_bytes;
use crate::processes::process::calling_thread_cpu_time;
use crate::sample::random::dependent_arithmetic_step;
use hawkeye_policy::statistics::{median, median_standard_error};
use hawkeye_policy::walk_rate::{WalkCostAtInterval, WalkCosts, WalkCostsAtFootprint};
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use nix::sys::mman::MmapAdvise;

const FOOTPRINTS_BYTES: [u64; 3] = [64 << 20, 512 << 20, 4 << 30];
/// Memory that is read, much more than caches hold; less where less is available.
const DATA_BYTES: u64 = 512 << 20;
/// The least of it that shows anything.
const LEAST_DATA_BYTES: u64 = 64 << 20;
/// Divisor of available memory. The limit of the Kubernetes manifest leaves enough of it.
const DATA_SHARE: u64 = 8;
const CACHE_LINE_BYTES: u64 = 64;
/// No walk is free.
const LEAST_NS: f64 = 0.1;
/// Divisor of the lengths below. Loops without optimization take ten times as long, and show only
/// that the measurement works.
const SHORTENED_BY: u64 = if cfg!(debug_assertions) { 10 } else { 1 };
/// Random reads in one measurement.
const READS: u64 = 100_000 / SHORTENED_BY;
/// Pages in one measurement of pages in order.
const ORDERED_PAGES: u64 = 50_000 / SHORTENED_BY;
/// Loops over pages in order: they read a word of each page, several, one of each cache line, and
/// all of them.
const STREAMS: [OrderedPageLoop; 4] = [
    OrderedPageLoop::new(1, 1, 0),
    OrderedPageLoop::new(1, 8, 0),
    OrderedPageLoop::new(1, 64, 0),
    OrderedPageLoop::new(1, 512, 0),
];
/// Loops over every sixteenth page (64 KiB): none of its page-table entries shares a cache line
/// with another. With more and more work between the reads.
const STRIDES: [OrderedPageLoop; 3] = [
    OrderedPageLoop::new(16, 1, 0),
    OrderedPageLoop::new(16, 1, 16),
    OrderedPageLoop::new(16, 1, 64),
];
/// Steps of work between reads. A step is two instructions in four cycles, about the half
/// instruction per cycle of programs that miss TLBs and caches.
const WORK_STEPS: [u32; 6] = [0, 8, 16, 32, 64, 128];
/// Measurements, of which the fastest counts.
const TURNS: u64 = 9;
/// Numbers of pages among which the TLB's reach is searched.
const REACHES: [u64; 9] = [256, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192];

/// Measures the costs. Fails with [`LinuxError::NotMeasured`] if there are no huge pages to compare
/// with.
pub fn measure_walk_costs() -> Result<WalkCosts> {
    let largest = FOOTPRINTS_BYTES[FOOTPRINTS_BYTES.len() - 1];
    let available = available_memory_bytes()?;
    if available < DATA_SHARE * LEAST_DATA_BYTES {
        return Err(LinuxError::NotMeasured(
            "the cost of page walks cannot be measured: too little memory is free",
        ));
    }
    // A power of two divides the footprints.
    let data_bytes = 1 << (available / DATA_SHARE).ilog2();
    let data_bytes = data_bytes.clamp(LEAST_DATA_BYTES, DATA_BYTES);
    let data = MeasuredMemory::map_huge_pages(data_bytes)?;
    let data_pages = data_bytes / BASE_PAGE_BYTES;
    let in_order = |loops: &[OrderedPageLoop], base_pages: &MeasuredMemory| {
        measure_costs_by_interval(loops, |order| {
            measure_extra_cost_of_walks(
                |n| base_pages.ns_per_ordered_page(order, n),
                |n| data.ns_per_ordered_page(order, n),
            )
        })
    };
    // Streams come from memory that is not mapped repeatedly: prefetchers follow its addresses. It
    // is freed before the other memory is mapped.
    let small = MeasuredMemory::map_and_write(data_bytes, MmapAdvise::MADV_NOHUGEPAGE)?;
    let streamed = in_order(&STREAMS, &small);
    drop(small);
    let repeated =
        MeasuredMemory::map_repeated_base_pages(largest, data_bytes, CacheLinesRead::All)?;
    let strided = in_order(&STRIDES, &repeated);
    let by_footprint = FOOTPRINTS_BYTES.map(|bytes| {
        let cost = |read: fn(&MeasuredMemory, u64, u64) -> f64| {
            walk_cost_in_repeated_mapping(&repeated, &data, bytes, read)
        };
        let costs = [
            cost(MeasuredMemory::ns_per_independent_read),
            cost(MeasuredMemory::ns_per_dependent_read),
        ];
        let [independent_ns, dependent_ns] = costs.map(|cost| cost.walk_ns);
        WalkCostsAtFootprint { footprint_bytes: bytes, independent_ns, dependent_ns }
    });
    let by_distance = measure_costs_by_interval(&WORK_STEPS, |steps| {
        walk_cost_in_repeated_mapping(&repeated, &data, largest, |memory, pages, n| {
            memory.ns_per_read_with_work(pages, steps, n)
        })
    });
    let cached = MeasuredMemory::map_repeated_base_pages(
        FOOTPRINTS_BYTES[1],
        HUGE_PAGE_BYTES,
        CacheLinesRead::OneOfEachPage,
    )?;
    let reach = measure_tlb_reach_pages(&cached);
    Ok(WalkCosts {
        by_footprint: by_footprint.into(),
        streamed,
        strided,
        by_distance,
        data_independent_ns: least_ns_of_turns(|n| data.ns_per_independent_read(data_pages, n)),
        data_dependent_ns: least_ns_of_turns(|n| data.ns_per_dependent_read(data_pages, n)),
        tlb_pages: reach,
        // Base and huge pages share the second level on current processors.
        tlb_huge_pages: reach,
    })
}

/// The costs of similar loops, by the time from one page to the next.
fn measure_costs_by_interval<L: Copy>(
    loops: &[L],
    cost: impl Fn(L) -> WalkCostAtInterval,
) -> Vec<WalkCostAtInterval> {
    let mut costs: Vec<WalkCostAtInterval> = loops.iter().map(|one| cost(*one)).collect();
    costs.sort_by(|a, b| a.apart_ns.total_cmp(&b.apart_ns));
    costs.dedup_by(|a, b| a.apart_ns <= b.apart_ns);
    costs
}

/// The cost of page walks in a footprint of `mirrors`. The same data is read once without page
/// walks and once with them, so that the caches hold the same. The amount of memory does not depend
/// on how much of its mirrors is read.
fn walk_cost_in_repeated_mapping(
    mirrors: &MeasuredMemory,
    data: &MeasuredMemory,
    footprint_bytes: u64,
    read: impl Fn(&MeasuredMemory, u64, u64) -> f64,
) -> WalkCostAtInterval {
    let few = mirrors.distinct_bytes.min(footprint_bytes) / BASE_PAGE_BYTES;
    let all = footprint_bytes / BASE_PAGE_BYTES;
    measure_extra_cost_of_walks(|n| read(mirrors, all, n), |n| read(data, few, n))
}

/// Distance of reads with page walks, and how much greater it is than without them. Both are
/// medians of pairs, since other load makes the machine faster and slower. Of two turns only the
/// second counts: the first finds the caches as the other loop left them.
fn measure_extra_cost_of_walks(
    with: impl Fn(u64) -> f64,
    without: impl Fn(u64) -> f64,
) -> WalkCostAtInterval {
    let second_turn = |read: &dyn Fn(u64) -> f64, n: u64| {
        read(2 * n);
        read(2 * n + 1)
    };
    let pairs = (0..TURNS).map(|n| (second_turn(&with, n), second_turn(&without, n)));
    let (apart, walks): (Vec<f64>, Vec<f64>) =
        pairs.map(|(with, without)| (with, with - without)).unzip();
    WalkCostAtInterval {
        apart_ns: median(&apart),
        walk_ns: median(&walks).max(LEAST_NS),
        error_ns: median_standard_error(&walks),
    }
}

/// The least time of several turns: other load on the machine can only add to it.
fn least_ns_of_turns(measure: impl Fn(u64) -> f64) -> f64 {
    (0..TURNS).map(measure).fold(f64::INFINITY, f64::min)
}

/// The largest number of base pages that are read at random hardly slower than a few: all their
/// translations are in the TLB.
fn measure_tlb_reach_pages(mirrors: &MeasuredMemory) -> u32 {
    let most = REACHES[REACHES.len() - 1];
    let ns = |pages| least_ns_of_turns(|n| mirrors.ns_per_dependent_read(pages, n));
    let (few, many) = (ns(REACHES[0]), ns(most));
    let limit = few + (many - few) / 3.0;
    let within = REACHES.iter().take_while(|pages| ns(**pages) <= limit);
    let reach = within.last().copied().unwrap_or(REACHES[0]);
    u32::try_from(reach).unwrap_or(u32::MAX)
}

/// CPU time of this thread per step of some work of `steps` steps, in nanoseconds. Time in which
/// other programs have the processor does not count. `work` returns what it computed.
fn cpu_ns_per_step<T>(steps: u64, work: impl FnOnce() -> T) -> f64 {
    let before = calling_thread_cpu_time();
    std::hint::black_box(work());
    calling_thread_cpu_time().saturating_sub(before).as_secs_f64() * 1e9 / steps as f64
}

/// A loop over pages in ascending order, again and again.
#[derive(Clone, Copy)]
struct OrderedPageLoop {
    /// From one page to the next, in pages.
    step: u64,
    /// Cache lines read of each page, at equal distances.
    lines: u64,
    /// Steps of work after each page.
    work: u32,
}

impl OrderedPageLoop {
    const fn new(step: u64, lines: u64, work: u32) -> Self {
        Self { step, lines, work }
    }
}

impl MeasuredMemory {
    /// Nanoseconds per independent random read with `steps` steps of work between reads.
    fn ns_per_read_with_work(&self, pages: u64, steps: u32, seed: u64) -> f64 {
        cpu_ns_per_step(READS, || {
            let (mut x, mut work) = (seed, seed);
            for _ in 0..READS {
                x = self.read_random_word(x, pages).0;
                for _ in 0..steps {
                    work = dependent_arithmetic_step(work);
                }
            }
            (x, work)
        })
    }

    /// Nanoseconds per page of a loop over all pages. Each turn starts where the last one ended, at
    /// page tables that were not read for longest. Each pass over the memory behind the mapping
    /// reads other cache lines, so that repeated mappings do not find their data in the caches.
    fn ns_per_ordered_page(&self, order: OrderedPageLoop, turn: u64) -> f64 {
        let OrderedPageLoop { step, lines, work } = order;
        let apart = BASE_PAGE_BYTES / lines;
        let pages = self.memory.byte_len() as u64 / BASE_PAGE_BYTES;
        let distinct = self.distinct_bytes / BASE_PAGE_BYTES;
        let start = turn * ORDERED_PAGES * step;
        let (mut page, mut behind, mut pass) = (start % pages, start % distinct, start / distinct);
        cpu_ns_per_step(ORDERED_PAGES, || {
            let mut x = turn;
            for _ in 0..ORDERED_PAGES {
                for line in 0..lines {
                    let offset = (pass * CACHE_LINE_BYTES + line * apart) % BASE_PAGE_BYTES;
                    self.read_word(page * BASE_PAGE_BYTES + offset);
                }
                for _ in 0..work {
                    x = dependent_arithmetic_step(x);
                }
                page += step;
                if page >= pages {
                    page -= pages;
                }
                behind += step;
                if behind >= distinct {
                    behind -= distinct;
                    pass += 1;
                }
            }
            x
        })
    }

    /// Nanoseconds per read of a word on one of `pages` pages, at random. The address is known
    /// before the last read returns.
    fn ns_per_independent_read(&self, pages: u64, seed: u64) -> f64 {
        debug_assert!(pages * BASE_PAGE_BYTES <= self.memory.byte_len() as u64);
        cpu_ns_per_step(READS, || {
            let mut x = seed;
            for _ in 0..READS {
                x = self.read_random_word(x, pages).0;
            }
            x
        })
    }

    /// The same, but the address depends on the last read.
    fn ns_per_dependent_read(&self, pages: u64, seed: u64) -> f64 {
        debug_assert!(pages * BASE_PAGE_BYTES <= self.memory.byte_len() as u64);
        cpu_ns_per_step(READS, || {
            let mut x = seed;
            for _ in 0..READS {
                let (next, word) = self.read_random_word(x, pages);
                // The word is 0, which the processor cannot know.
                x = next.wrapping_add(word);
            }
            x
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_in_the_order_of_their_distances() {
        let cost = |apart_ns| WalkCostAtInterval { apart_ns, walk_ns: 1.0, error_ns: 0.0 };
        let found = measure_costs_by_interval(&[9.0, 3.0, 9.0, 4.0], cost);
        let apart: Vec<f64> = found.iter().map(|cost| cost.apart_ns).collect();
        assert_eq!(apart, [3.0, 4.0, 9.0]);
    }

    /// Half of the pod's limit may be in use: by the daemon, and by what it has read.
    #[test]
    fn the_kubernetes_manifest_leaves_memory_to_measure_in() {
        let manifest = include_str!("../../../../../packaging/kubernetes/hawkeye.yaml");
        let limits =
            manifest.lines().find_map(|line| line.trim().strip_prefix("limits: {memory: "));
        let limit = limits.and_then(|rest| rest.split(',').next()).expect("memory is limited");
        let numbers = [("Gi", 1 << 30), ("Mi", 1 << 20)];
        let bytes = numbers.into_iter().find_map(|(unit, unit_bytes): (_, u64)| {
            Some(limit.strip_suffix(unit)?.parse::<u64>().ok()? * unit_bytes)
        });
        let bytes = bytes.expect("the limit has a known unit");
        assert!(bytes / 2 >= DATA_SHARE * LEAST_DATA_BYTES, "{limit}");
    }
}
