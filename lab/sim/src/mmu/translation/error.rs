//! Errors of mapping.

use thiserror::Error;

pub(super) type Result<T> = std::result::Result<T, MappingError>;

/// Why mappings could not be changed. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MappingError {
    /// The address space is full.
    #[error(
        "{address:#x} can't be mapped: an address space touches over 8 TiB, in pieces of 1 GiB; \
         simulate less at a time"
    )]
    TooMuchMemory {
        /// The address to map.
        address: u64,
    },
    /// An address with more than 57 bits.
    #[error("{address:#x} can't be mapped: addresses have 57 bits")]
    Address {
        /// The address to map.
        address: u64,
    },
    /// A page of 1 GiB would overlap mapped pages.
    #[error("{address:#x} can't be mapped by a page of 1 GiB: unmap what is there before")]
    Occupied {
        /// The address to map.
        address: u64,
    },
    /// The change is within a page of 1 GiB.
    #[error("{address:#x} is in a page of 1 GiB, which can only be unmapped as a whole")]
    Giant {
        /// The address to change.
        address: u64,
    },
}
