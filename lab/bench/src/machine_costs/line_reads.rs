//! Reads of cache lines, each dependent on the one before or independent of it.
//!
//! All are made under huge pages, in an order in which translation costs nothing. That holds even
//! if a hypervisor maps the huge pages by base pages: reads go through one block after the other,
//! and a block has no more pages than a TLB holds. Of each 128 bytes one line is read, because
//! processors fetch its neighbour as well.

use super::prelude::*;
use hawkeye_linux::sample::random::{map_random_below, next_random};
use hawkeye_workload::rng::WorkloadRng;
use std::ops::Range;

pub(super) const LINE: usize = 64;
/// Two lines that prefetchers fetch together.
pub(super) const PAIR: usize = 2 * LINE;
/// As many base pages as every first-level TLB holds.
pub(super) const NEAR_BLOCK: usize = 64 * PAGE;
/// As many base pages as every second-level TLB holds: current ones have 1,024 entries or more.
pub(super) const FAR_BLOCK: usize = REGION;
pub(super) const BLOCK_PAIRS: usize = FAR_BLOCK / PAIR;
/// Independent reads in one turn, at least.
const FREE_READS: usize = 500_000;

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
pub(super) fn shuffled_line_of_each_page(pages: usize) -> Vec<u32> {
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
