//! What can go wrong in a workload.

use crate::protocol::WrongWord;
use std::io;
use thiserror::Error;

/// A system call on memory failed.
#[derive(Debug, Error)]
#[error("{call} of {bytes} bytes: {source}")]
pub struct MemoryError {
    /// Name of the system call.
    pub call: &'static str,
    /// Size of the range it was given.
    pub bytes: usize,
    /// What the kernel answered.
    pub source: io::Error,
}

impl MemoryError {
    /// The error of the system call that has just failed.
    pub(crate) fn last(call: &'static str, bytes: usize) -> Self {
        Self {
            call,
            bytes,
            source: io::Error::last_os_error(),
        }
    }
}

/// Why a workload ended otherwise than asked.
#[derive(Debug, Error)]
pub enum WorkloadError {
    /// Options that contradict each other.
    #[error("{0}")]
    Usage(String),
    /// Memory could not be mapped or changed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A process or a thread could not be started, or `/proc` not be read.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel answered.
        source: io::Error,
    },
    /// A forked child ended in a way it should not.
    #[error("a forked child ended with wait status {0:#x}")]
    Child(i32),
    /// Nobody reads our standard output any more.
    #[error("standard output: {0}")]
    Output(io::Error),
    /// A server can't be reached, or answers something else.
    #[error("{0}")]
    Server(String),
    /// Memory did not hold what was written.
    #[error("wrong memory contents: {0}")]
    Wrong(WrongWord),
}

impl WorkloadError {
    /// Wraps an error of the system with what was tried.
    pub(crate) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
