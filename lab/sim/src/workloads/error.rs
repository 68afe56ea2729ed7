//! What can be wrong with a workload.

use thiserror::Error;

/// A workload that can't be run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum WorkloadSpecError {
    /// No workload has this name.
    #[error(
        "there is no workload {name:?}; there are {known}; to use your own file, give its path (NAME.toml)"
    )]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// The text is not TOML, or has unknown keys or values. The message gives the position.
    #[error("workload {name}: {message}")]
    Parse {
        /// Name of the workload.
        name: String,
        /// The reason, with line and column.
        message: String,
    },
    /// A value out of range.
    #[error("workload {workload}: {place}: {key} must be {allowed}, not {value}")]
    Value {
        /// Name of the workload.
        workload: String,
        /// Which process and phase.
        place: String,
        /// The key.
        key: &'static str,
        /// The values it can have.
        allowed: &'static str,
        /// Its value.
        value: String,
    },
}
