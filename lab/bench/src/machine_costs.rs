//! Costs of the kernel's and the processor's work on this machine, measured from inside one
//! process.
//!
//! ```text
//!  a kind of work --a turn--> median_figures_over_turns --MedianAndRange--> calibrate
//!  (one file each,            (1 + TURNS turns)                               |
//!   on ScratchMemory)                     the simulator's KernelCosts and ProcessorSpec
//! ```
//!
//! Read `median_figures_over_turns` in this file first, then [`access_bits`].
//!
//! No setting is changed: huge pages come from `madvise`, and all memory is our own and is unmapped
//! at the end. Only reading page tables needs privileges.
//!
//! Each figure is the median of several turns, with the minimum and the maximum, in nanoseconds.
//! The first turn of each does not count, because a hypervisor may have to back memory in it. Only
//! an optimised build gives meaningful figures.
//!
//! Each file is about one kind of work; `core_measurements.rs` measures the core and its caches by
//! the reads in `line_reads.rs`.

pub mod access_bits;
pub mod collapse_split;
pub mod core_measurements;
pub mod data_cache_levels;
pub mod fault_costs;
mod line_reads;
pub mod page_contents;
pub mod read_overlap;
mod scratch_memory;
pub mod shared_cache_retention;
pub mod tlb_shoot_down;

pub use crate::statistics::MedianAndRange;

use hawkeye_linux::LinuxError;

mod prelude {
    pub(super) use super::scratch_memory::{
        PAGE, PageAdvice, REGION, ScratchMemory, nanoseconds_since,
    };
    pub(super) use super::{
        CostResult, MedianAndRange, median_figure_over_turns, median_figures_over_turns,
        not_measured_error,
    };
    pub(super) use hawkeye_linux::LinuxError;
    pub(super) use std::time::Instant;
}

pub type CostResult = Result<MedianAndRange, LinuxError>;

/// Counted turns of each measurement.
const TURNS: usize = 9;

/// The figures of some turns after one that does not count.
fn median_figures_over_turns<const N: usize>(
    mut turn: impl FnMut() -> Result<[f64; N], LinuxError>,
) -> Result<[MedianAndRange; N], LinuxError> {
    turn()?;
    let mut figures: [Vec<f64>; N] = std::array::from_fn(|_| Vec::new());
    for _ in 0..TURNS {
        for (all, one) in figures.iter_mut().zip(turn()?) {
            all.push(one);
        }
    }
    Ok(figures.map(MedianAndRange::from_figures))
}

/// The only figure of such turns.
fn median_figure_over_turns(mut turn: impl FnMut() -> Result<f64, LinuxError>) -> CostResult {
    median_figures_over_turns(|| Ok([turn()?])).map(|[figure]| figure)
}

fn not_measured_error(why: &'static str) -> LinuxError {
    LinuxError::NotMeasured(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_from_the_least_to_the_greatest() {
        let spread = MedianAndRange::from_figures(vec![3.0, 1.0, 2.0]);
        assert_eq!((spread.median, spread.low, spread.high, spread.turns), (2.0, 1.0, 3.0, 3));
        assert_eq!(MedianAndRange::from_figures(Vec::new()).turns, 0);
    }

    #[test]
    fn the_first_turn_does_not_count() {
        let mut turn = 0.0;
        let found = median_figures_over_turns(|| {
            turn += 1.0;
            Ok([turn])
        });
        let [spread] = found.expect("nothing failed");
        assert_eq!((spread.low, spread.turns), (2.0, TURNS));
    }
}
