//! Why a call into a process failed.

use hawkeye_policy::{Errno, PageOrder, ProcessId};
use thiserror::Error;

/// Why a call into a process did not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MachineError {
    /// The process has ended or replaced its address space; nothing more will come from it.
    #[error("process {0} is gone")]
    Gone(ProcessId),
    /// A call into it is still under way: it gets no other before that has ended.
    #[error("process {0} does not answer")]
    NotAnswering(ProcessId),
    /// The kernel refused.
    #[error("{call} on process {process}: {errno}")]
    Refused {
        /// What was tried, as a person would name it.
        call: &'static str,
        /// On whom.
        process: ProcessId,
        /// The kernel's error number.
        errno: Errno,
    },
    /// It has no pages of this size to give.
    #[error("pages of {0} can't be had here")]
    PageSize(PageOrder),
    /// Something around the call failed (a file of `/proc` that can't be read, say).
    #[error("{0}")]
    Other(String),
}

impl MachineError {
    /// Whether no huge page could be had (`madvise_collapse_errno`, mm/khugepaged.c). It says nothing
    /// about the region that it was for.
    pub fn is_shortage(&self) -> bool {
        matches!(self, Self::Refused { errno, .. } if *errno == Errno::ENOMEM)
    }
}
