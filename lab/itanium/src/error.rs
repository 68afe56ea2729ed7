//! Errors of a simulated Itanium machine.

use thiserror::Error;

/// An operation that could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ItaniumError {
    /// No such process: it never existed or has ended.
    #[error("there is no process {0}")]
    Process(u32),
    /// Nothing is mapped at an address, or a range is mapped only in part.
    #[error("process {process} has not mapped {address:#x}")]
    NotMapped {
        /// The process.
        process: u32,
        /// First byte that isn't mapped.
        address: u64,
    },
    /// Something is mapped there already.
    #[error("process {process} has something mapped from {address:#x} on")]
    Occupied {
        /// The process.
        process: u32,
        /// First byte of the requested mapping.
        address: u64,
    },
    /// A range that does not lie within one region.
    #[error(
        "{bytes} bytes at {address:#x} are no range of pages in the first 2^36 bytes of a region"
    )]
    Range {
        /// First byte.
        address: u64,
        /// Length of the range.
        bytes: u64,
    },
    /// A write to read-only memory.
    #[error("process {process} may not write to {address:#x}")]
    ReadOnly {
        /// The process.
        process: u32,
        /// The address.
        address: u64,
    },
    /// No frame is free.
    #[error("there is no memory left for process {0}")]
    OutOfMemory(u32),
    /// No place for a mapping.
    #[error("there is no room left among the addresses of process {0}")]
    NoRoom(u32),
    /// More processes and forks than there are region ids.
    #[error("all 2^21 contexts of region ids are used")]
    Contexts,
    /// Settings that the model does not support.
    #[error("{what} must be {allowed}")]
    Setup {
        /// The setting.
        what: &'static str,
        /// Allowed values, worded to follow "must be".
        allowed: &'static str,
    },
}

/// A state that contradicts the model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} at page {page:#x}")]
pub struct Contradiction {
    /// The contradiction.
    pub what: &'static str,
    /// Number of the page or frame.
    pub page: u64,
}
