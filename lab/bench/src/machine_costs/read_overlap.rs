//! Measures how far a core's reads of memory overlap.
//! - how many reads can be under way
//! - how far the core runs ahead of a read that it waits for
//! - how much longer some reads take than others: instructions leave the core in order, so they
//!   wait for the slowest

use super::line_reads::independent_ns_per_read;
use super::prelude::*;
use crate::arch::run_additions;
use crate::statistics::{quantile_of_sorted, sorted};

const SINGLES: usize = 100_000;
/// Slowest reads that are left out, of each thousand: an interrupt or a hypervisor delayed them.
const LEFT_OUT: usize = 1;
/// Chains that are followed at once: more than the buffers of most cores.
const CHAINS: usize = 32;
/// Reads of all chains in one turn.
const CHAINED_READS: usize = 200_000;
/// Memory for measuring how far the core runs ahead: more than any cache holds.
const REACH_BYTES: usize = 512 << 20;
/// Instructions between reads. On cores that run far ahead, some reads overlap even with the larger
/// number.
const FEW_ADDITIONS: usize = 48;
const MANY_ADDITIONS: usize = 96;

#[derive(Clone, Debug)]
pub struct ReadOverlap {
    /// Durations of single reads, each of which waits for the one before, in nanoseconds,
    /// ascending. Empty if the clock takes longer than the reads do.
    pub singles: Vec<f64>,
    /// Reads under way at once that do not wait for each other's data. The core may have room for
    /// more than 32.
    pub at_once: MedianAndRange,
    /// Instructions that a core runs ahead of a read that it waits for, if each writes a register.
    pub reach: MedianAndRange,
}

/// Measures along a chain through memory that no cache holds. `starts` are lines of one block of
/// it, at least as many as there are chains. A read takes `read_ns`.
pub(super) fn measure_read_overlap(
    memory: &ScratchMemory,
    starts: &[usize],
    read_ns: f64,
) -> Result<ReadOverlap, LinuxError> {
    let singles = measure_single_reads_ns(memory, starts.first().copied().unwrap_or(0));
    let apart = starts.len() / CHAINS;
    let mut at: [usize; CHAINS] = std::array::from_fn(|chain| starts[chain * apart]);
    let at_once =
        median_figure_over_turns(|| Ok(read_ns / chase_chains_ns_per_read(memory, &mut at)))?;
    let reach = median_figure_over_turns(|| Ok(measure_instructions_ahead(memory, read_ns)))?;
    Ok(ReadOverlap { singles, at_once, reach })
}

/// Times reads by the clock. That works where reading the clock waits for earlier reads (see
/// [`crate::arch`]).
fn measure_single_reads_ns(memory: &ScratchMemory, mut at: usize) -> Vec<f64> {
    let clock: Vec<f64> = (0..1000).map(|_| nanoseconds_since(Instant::now())).collect();
    let clock_ns = MedianAndRange::from_figures(clock).median;
    let singles = (0..SINGLES)
        .map(|_| {
            let begun = Instant::now();
            at = memory.read_word(at) as usize;
            (nanoseconds_since(begun) - clock_ns).max(0.0)
        })
        .collect();
    let mut singles = sorted(singles);
    singles.truncate(SINGLES - SINGLES / 1000 * LEFT_OUT);
    if quantile_of_sorted(&singles, 500).is_none_or(|median| median < clock_ns) {
        return Vec::new();
    }
    singles
}

/// Follows several chains at once; returns nanoseconds per read.
fn chase_chains_ns_per_read(memory: &ScratchMemory, at: &mut [usize; CHAINS]) -> f64 {
    let begun = Instant::now();
    for _ in 0..CHAINED_READS / CHAINS {
        for at in at.iter_mut() {
            *at = memory.read_word(*at) as usize;
        }
    }
    nanoseconds_since(begun) / (CHAINED_READS / CHAINS * CHAINS) as f64
}

/// Reads of memory overlap as far as the core runs ahead. Within that distance, each instruction
/// between reads adds an equal part of a read's duration (after H. Wong, "Measuring reorder buffer
/// capacity", 2013). Registers run out first: most instructions of programs write one.
fn measure_instructions_ahead(memory: &ScratchMemory, read_ns: f64) -> f64 {
    let few = independent_ns_per_read(memory, REACH_BYTES, run_additions::<FEW_ADDITIONS>);
    let many = independent_ns_per_read(memory, REACH_BYTES, run_additions::<MANY_ADDITIONS>);
    let each_ns = (many - few) / (MANY_ADDITIONS - FEW_ADDITIONS) as f64;
    read_ns / each_ns.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::super::line_reads::{PAIR, link_lines_into_ring, shuffled_lines_by_block};
    use super::super::scratch_memory::{PageAdvice, REGION};
    use super::*;

    fn linked() -> (ScratchMemory, Vec<usize>) {
        let memory = ScratchMemory::map(REGION, PageAdvice::Base).expect("2 MiB");
        let order = shuffled_lines_by_block(REGION, REGION);
        link_lines_into_ring(&memory, &order);
        let starts = order.iter().map(|line| *line as usize * PAIR / 2).collect();
        (memory, starts)
    }

    #[test]
    fn chains_are_followed_side_by_side() {
        let (memory, starts) = linked();
        let apart = starts.len() / CHAINS;
        let mut at: [usize; CHAINS] = std::array::from_fn(|chain| starts[chain * apart]);
        chase_chains_ns_per_read(&memory, &mut at);
        let steps = CHAINED_READS / CHAINS;
        for (chain, at) in at.into_iter().enumerate() {
            assert_eq!(at, starts[(chain * apart + steps) % starts.len()]);
        }
    }

    #[test]
    fn single_reads_come_shortest_first_and_without_the_longest() {
        let (memory, starts) = linked();
        let singles = measure_single_reads_ns(&memory, starts[0]);
        // If these lines are in a cache, the clock may take longer than the reads do.
        assert!(singles.is_empty() || singles.len() == SINGLES - SINGLES / 1000 * LEFT_OUT);
        assert!(singles.is_sorted());
    }
}
