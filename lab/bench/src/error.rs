//! Why an experiment could not be done.

use hawkeye_linux::LinuxError;
use hawkeye_policy::SettingError;
use hawkeye_workload::HandleError;
use thiserror::Error;

/// What stood in an experiment's way.
#[derive(Debug, Error)]
pub enum BenchError {
    /// The kernel, or another manager.
    #[error(transparent)]
    Linux(#[from] LinuxError),
    /// A program under measurement.
    #[error(transparent)]
    Workload(#[from] HandleError),
    /// A setting of ours is out of range.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The machine can't do it, or hasn't got what it takes.
    #[error("{0}")]
    Impossible(String),
    /// A program of the experiment could not be run.
    #[error("running {program}: {source}")]
    Program {
        /// Which.
        program: String,
        /// Why.
        source: std::io::Error,
    },
}
