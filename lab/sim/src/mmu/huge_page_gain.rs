//! What address translation costs, from counters: the truth that estimates are compared with.

use super::access_pattern::AccessPattern;
use super::core_counters::CoreCounters;
use super::error::MmuError;
use super::pattern_run::PatternRun;
use super::processor_spec::ProcessorSpec;
use super::translation::LeafSize;
use serde::Serialize;

/// The same accesses under base pages and under huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct HugePageGain {
    /// All memory mapped by base pages.
    pub base: CoreCounters,
    /// All memory mapped by huge pages.
    pub huge: CoreCounters,
}

impl HugePageGain {
    /// Measures `accesses` accesses of a pattern over `bytes` of memory, after as many to warm up.
    ///
    /// # Errors
    /// What can't be simulated: see [`MmuError`].
    pub fn measure(
        processor: &ProcessorSpec,
        pattern: AccessPattern,
        bytes: u64,
        accesses: u64,
        seed: u64,
    ) -> Result<Self, MmuError> {
        let new = |size| PatternRun::new(processor, pattern, bytes, size, seed);
        Self::measure_runs(new, accesses)
    }

    /// Like [`measure`](Self::measure), with runs that `new` makes for each page size.
    ///
    /// # Errors
    /// Those of `new`.
    pub fn measure_runs(
        new: impl Fn(LeafSize) -> Result<PatternRun, MmuError>,
        accesses: u64,
    ) -> Result<Self, MmuError> {
        let count = |size| {
            let mut run = new(size)?;
            run.run_accesses(accesses);
            Ok(run.run_and_count_accesses(accesses))
        };
        Ok(Self { base: count(LeafSize::Base)?, huge: count(LeafSize::Huge)? })
    }

    /// Time that huge pages save, in per cent of that with base pages; may be negative.
    pub fn gain_percent(&self) -> f64 {
        let base = self.base.access_ns();
        if base > 0.0 { 100.0 * (1.0 - self.huge.access_ns() / base) } else { 0.0 }
    }
}
