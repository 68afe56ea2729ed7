//! Errors of experiments.

use hawkeye_linux::LinuxError;
use hawkeye_policy::SettingError;
use hawkeye_sim::mmu::MmuError;
use hawkeye_workload::WorkloadProcessError;
use std::io;
use std::process::Command;
use thiserror::Error;

pub type BenchResult<T, E = BenchError> = std::result::Result<T, E>;

#[derive(Debug, Error)]
pub enum BenchError {
    /// An error of the kernel, or another manager is running.
    #[error(transparent)]
    Linux(#[from] LinuxError),
    /// An error of a program under measurement.
    #[error(transparent)]
    Workload(#[from] WorkloadProcessError),
    /// A setting of the experiment is out of range.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The machine lacks an ability or a resource that the experiment needs.
    #[error("{0}")]
    Impossible(String),
    /// The simulator can't do it.
    #[error(transparent)]
    Simulation(#[from] MmuError),
    /// A program of the experiment could not be run.
    #[error("running {program} failed: {source}")]
    Program { program: String, source: io::Error },
}

impl BenchError {
    pub(crate) fn program_error_mapper(
        program: impl Into<String>,
    ) -> impl FnOnce(io::Error) -> Self {
        let program = program.into();
        move |source| Self::Program { program, source }
    }

    pub(crate) fn start_error_mapper(command: &Command) -> impl FnOnce(io::Error) -> Self + use<> {
        Self::program_error_mapper(command.get_program().to_string_lossy().into_owned())
    }
}

macro_rules! impossible {
    ($($words:tt)*) => { $crate::error::BenchError::Impossible(format!($($words)*)) };
}
pub(crate) use impossible;

macro_rules! bail {
    ($($words:tt)*) => { return Err($crate::error::impossible!($($words)*)) };
}
pub(crate) use bail;
