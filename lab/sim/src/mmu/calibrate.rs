//! What a page walk costs, measured as on a machine without counters.

use super::error::MmuError;
use super::pattern::Pattern;
use super::processor::Processor;
use super::truth::Truth;
use hawkeye_policy::BASE_PAGE_BYTES;
use serde::Serialize;

/// Time that a page walk adds, in nanoseconds, by what the program does meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WalkCosts {
    /// Pages read in order: neighbouring entries share cache lines.
    pub streamed_ns: f64,
    /// Random reads that don't wait for each other.
    pub independent_ns: f64,
    /// Each read's address is what the one before found.
    pub dependent_ns: f64,
}

/// Fewest reads of each kind. Otherwise each page is read once, after it was once before.
const MIN_READS: u64 = 1 << 17;

/// Measures with tight loops over `bytes` of memory: one read of each base page in order, random
/// reads, and a chase, each under base pages and under huge ones, whose walks (none, while the second
/// TLB level reaches over `bytes`) are taken off.
///
/// Walks get dearer with `bytes`, as less of the page tables is in the caches: calibrate over about as
/// much memory as the programs use.
///
/// # Errors
///
/// A processor or footprint that can't be simulated.
pub fn calibrate(processor: &Processor, bytes: u64) -> Result<WalkCosts, MmuError> {
    let reads = (bytes / BASE_PAGE_BYTES).max(MIN_READS);
    let cost = |pattern| -> Result<f64, MmuError> {
        let truth = Truth::measure(processor, pattern, bytes, reads, 1)?;
        Ok(truth.walk_ns().map_or(0.0, |ns| ns.max(0.0)))
    };
    Ok(WalkCosts {
        streamed_ns: cost(Pattern::STRIDE_4K)?,
        independent_ns: cost(Pattern::RANDOM)?,
        dependent_ns: cost(Pattern::CHASE)?,
    })
}
