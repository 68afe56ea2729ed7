//! What a simulated Itanium machine refuses.

use thiserror::Error;

/// An operation that could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ItaniumError {
    /// A process that never was or has ended.
    #[error("there is no process {0}")]
    Process(u32),
    /// Nothing is mapped at an address, or not all of a range is.
    #[error("process {process} has not mapped {address:#x}")]
    NotMapped {
        /// Whose.
        process: u32,
        /// First byte that isn't mapped.
        address: u64,
    },
    /// Something is mapped there already.
    #[error("process {process} has something mapped from {address:#x} on")]
    Occupied {
        /// Whose.
        process: u32,
        /// First byte of what was to be mapped.
        address: u64,
    },
    /// A range that no region holds.
    #[error(
        "{bytes} bytes at {address:#x} are no range of pages in the first 2^36 bytes of a region"
    )]
    Range {
        /// First byte.
        address: u64,
        /// How many.
        bytes: u64,
    },
    /// A write to memory that is only to be read.
    #[error("process {process} may not write to {address:#x}")]
    ReadOnly {
        /// Whose.
        process: u32,
        /// Where.
        address: u64,
    },
    /// Not a single frame is free.
    #[error("there is no memory left for process {0}")]
    OutOfMemory(u32),
    /// No place for a mapping.
    #[error("there is no room left among the addresses of process {0}")]
    NoRoom(u32),
    /// More processes and forks than there are region ids.
    #[error("all 2^21 contexts of region ids are used")]
    Contexts,
    /// A machine that can't be.
    #[error("{what} must be {allowed}")]
    Setup {
        /// Which of its values.
        what: &'static str,
        /// What it can be, worded to follow "must be".
        allowed: &'static str,
    },
}

/// Something that contradicts the model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} at page {page:#x}")]
pub struct Contradiction {
    /// What.
    pub what: &'static str,
    /// Number of the page or frame.
    pub page: u64,
}
