//! Errors of a simulated Itanium machine.

use thiserror::Error;

/// The result of an operation on the machine.
pub type Result<T = (), E = ItaniumError> = std::result::Result<T, E>;

/// An operation that could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ItaniumError {
    /// No such process: it never existed or has ended.
    #[error("process {0} does not exist or has ended")]
    Process(u32),
    /// Nothing is mapped at an address, or a range is mapped only in part.
    #[error("process {0} has no mapping at {1:#x}")]
    NotMapped(u32, u64),
    /// Something is mapped there already.
    #[error("process {0} already has a mapping in the range from {1:#x}")]
    Occupied(u32, u64),
    /// A range that does not lie within one region.
    #[error(
        "invalid range of {bytes} bytes at {address:#x}: it must be whole pages in the first 2^36 bytes of a region"
    )]
    Range {
        /// First byte.
        address: u64,
        /// Length of the range.
        bytes: u64,
    },
    /// A write to read-only memory.
    #[error("process {0} cannot write to {1:#x}: its mapping is read-only")]
    ReadOnly(u32, u64),
    /// No frame is free.
    #[error("out of memory for process {0}")]
    OutOfMemory(u32),
    /// No place for a mapping.
    #[error("no free range of addresses for a mapping of process {0}")]
    NoRoom(u32),
    /// More processes and forks than there are region ids.
    #[error("all 2^21 contexts of region ids are in use")]
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

impl ItaniumError {
    pub(crate) fn require_setting(
        valid: bool,
        what: &'static str,
        allowed: &'static str,
    ) -> Result {
        if valid { Ok(()) } else { Err(Self::Setup { what, allowed }) }
    }
}

/// A state that contradicts the model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{what} (page {page:#x})")]
pub struct ModelContradiction {
    /// The contradiction.
    pub what: &'static str,
    /// Number of the page or frame.
    pub page: u64,
}

impl ModelContradiction {
    pub(crate) fn require_consistent(
        right: bool,
        what: &'static str,
        page: impl Into<u64>,
    ) -> Result<(), Self> {
        let page = page.into();
        if right { Ok(()) } else { Err(Self { what, page }) }
    }
}
