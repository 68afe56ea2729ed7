//! What can be wrong with a workload.

use thiserror::Error;

/// A workload that can't be run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WorkloadError {
    /// None has this name.
    #[error(
        "there is no workload {name:?}; there are {known}; a file of your own is given by its path (NAME.toml)"
    )]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The text is no TOML, or has keys or values that no workload has. The text says where.
    #[error("workload {name}: {message}")]
    Parse {
        /// Which.
        name: String,
        /// With line and column.
        message: String,
    },
    /// A value out of range.
    #[error("workload {workload}: {place}: {key} must be {allowed}, not {value}")]
    Value {
        /// Which workload.
        workload: String,
        /// Which process and phase.
        place: String,
        /// The key.
        key: &'static str,
        /// What it can be.
        allowed: &'static str,
        /// What it is.
        value: String,
    },
}
