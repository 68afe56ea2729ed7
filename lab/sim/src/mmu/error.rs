//! Errors of a run.

use thiserror::Error;

/// A processor, an access pattern or a footprint that can't be simulated.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum MmuError {
    /// A footprint that is no number of whole regions, or too large.
    #[error("memory must be 1 or more whole regions of 2 MiB and at most 1 TiB, not {bytes} bytes")]
    Footprint {
        /// The footprint.
        bytes: u64,
    },
    /// An access pattern with a value out of range.
    #[error("pattern: {parameter} must be {allowed}, not {value}")]
    Pattern {
        /// Which value.
        parameter: &'static str,
        /// The values it can have, worded to follow "must be".
        allowed: &'static str,
        /// The value it was given.
        value: f64,
    },
    /// A processor that can't be built.
    #[error("processor {processor}: {part} must be {allowed}")]
    Processor {
        /// Its name.
        processor: &'static str,
        /// Which part of it.
        part: &'static str,
        /// What it can be, worded to follow "must be".
        allowed: &'static str,
    },
}
