//! Errors of workloads.

use crate::protocol::WrongWord;
use hawkeye_linux::LinuxError;
use std::io;
use thiserror::Error;

/// A system call on memory failed.
#[derive(Debug, Error)]
#[error("{call} of {bytes} bytes: {source}")]
pub struct MemoryCallError {
    pub call: &'static str,
    /// Size of the range it was given.
    pub bytes: usize,
    pub source: io::Error,
}

impl MemoryCallError {
    /// The error of the system call that has just failed.
    pub(crate) fn last_os_error(call: &'static str, bytes: usize) -> Self {
        Self { call, bytes, source: io::Error::last_os_error() }
    }
}

pub type WorkloadResult<T, E = WorkloadError> = std::result::Result<T, E>;

#[derive(Debug, Error)]
pub enum WorkloadError {
    /// Options that contradict each other.
    #[error("{0}")]
    Usage(String),
    /// Memory could not be mapped or changed.
    #[error(transparent)]
    Memory(#[from] MemoryCallError),
    /// The kernel does not report a value of this process.
    #[error(transparent)]
    Linux(#[from] LinuxError),
    /// A process or a thread could not be started, or `/proc` could not be read.
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
    /// A forked child ended with an unexpected status.
    #[error("a forked child ended with wait status {0:#x}")]
    Child(i32),
    /// Standard output is closed.
    #[error("standard output: {0}")]
    Output(io::Error),
    /// A server can't be reached, or gives an invalid answer.
    #[error("{0}")]
    Server(String),
    /// Memory did not hold the written value.
    #[error("wrong memory contents: {0}")]
    Wrong(WrongWord),
}

impl WorkloadError {
    pub(crate) fn from_histogram_error(
        error: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::wrap_system_error("counting times")(io::Error::other(error))
    }

    /// Wraps an error of the system with the name of the operation.
    pub(crate) fn wrap_system_error(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
