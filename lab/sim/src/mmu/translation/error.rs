//! Errors of mapping.

use thiserror::Error;

pub(super) type Result<T> = std::result::Result<T, MappingError>;

/// Why mappings could not be changed. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MappingError {
    /// The address space is full.
    #[error(
        "{0:#x} can't be mapped: an address space touches over 8 TiB, in pieces of 1 GiB; \
         simulate less at a time"
    )]
    TooMuchMemory(u64),
    /// An address with more than 57 bits.
    #[error("{0:#x} can't be mapped: addresses have 57 bits")]
    Address(u64),
    /// A page of 1 GiB would overlap mapped pages.
    #[error("{0:#x} can't be mapped by a page of 1 GiB: unmap what is there before")]
    Occupied(u64),
    /// The change is within a page of 1 GiB.
    #[error("{0:#x} is in a page of 1 GiB, which can only be unmapped as a whole")]
    Giant(u64),
}
