//! Errors of calls into a process.

use hawkeye_policy::{Errno, PageOrder, ProcessId};
use thiserror::Error;

/// Why a call into a process failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MachineError {
    /// The process has ended or replaced its address space. It will give no further results.
    #[error("process {0} has ended, or runs another program now")]
    Gone(ProcessId),
    /// A call into the process is still under way. No other call is made before that one ends.
    #[error("process {0} does not answer: an earlier call into it has not returned yet")]
    NotAnswering(ProcessId),
    /// The kernel refused the call.
    #[error("{call} in process {process} failed: {errno}")]
    Refused {
        /// Name of the call for users.
        call: &'static str,
        /// The process.
        process: ProcessId,
        /// The kernel's error number.
        errno: Errno,
    },
    /// The machine has no pages of this size.
    #[error("this machine has no pages of {0}")]
    PageSize(PageOrder),
    /// An operation around the call failed (for example the read of a file in `/proc`).
    #[error("{0}")]
    Other(String),
}

impl MachineError {
    /// Whether no huge page was available (`madvise_collapse_errno`, mm/khugepaged.c). Such an
    /// error says nothing about the region itself.
    pub fn is_shortage(&self) -> bool {
        matches!(self, Self::Refused { errno, .. } if *errno == Errno::ENOMEM)
    }
}
