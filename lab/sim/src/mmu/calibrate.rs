//! Costs of a page walk, measured as on a machine without counters.

use super::error::MmuError;
use super::pattern::Pattern;
use super::processor::Processor;
use super::truth::Truth;
use hawkeye_policy::BASE_PAGE_BYTES;
use serde::Serialize;

/// Time that a page walk adds, in nanoseconds, by the kind of access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WalkCosts {
    /// Pages read in order: neighbouring entries share cache lines.
    pub streamed_ns: f64,
    /// Random reads that don't depend on each other.
    pub independent_ns: f64,
    /// Each read's address is the data of the read before.
    pub dependent_ns: f64,
}

/// Fewest reads of each kind. With more pages, each page is read once after a first pass.
const MIN_READS: u64 = 1 << 17;

/// Measures with tight loops over `bytes` of memory: one read of each base page in order, random
/// reads, and a pointer chase. Each runs under base pages and under huge pages; the time and the
/// walks under huge pages are subtracted. There are no such walks while the second TLB level covers
/// `bytes`.
///
/// Walks get more expensive with `bytes`, because less of the page tables is in the caches.
/// Calibrate over about as much memory as the programs use.
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
