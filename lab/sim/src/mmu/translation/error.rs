//! What can't be mapped.

use super::space_id::SpaceId;
use thiserror::Error;

/// A change of mappings that can't be made. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MappingError {
    /// More address spaces than there can be.
    #[error("there can't be more than 8,192 address spaces at a time; remove those that ended")]
    TooManySpaces,
    /// An address space that is not there.
    #[error("there is no address space {0:?}; it was removed or belongs to other mappings")]
    NoSuchSpace(SpaceId),
    /// More memory than there can be.
    #[error(
        "{address:#x} can't be mapped: all address spaces together touch over 8 TiB, in pieces of 1 GiB; \
         simulate less at a time"
    )]
    TooMuchMemory {
        /// What was to be mapped.
        address: u64,
    },
    /// An address with more than 57 bits.
    #[error("{address:#x} can't be mapped: addresses have 57 bits")]
    Address {
        /// What was to be mapped.
        address: u64,
    },
    /// A page of 1 GiB over pages that are mapped.
    #[error("{address:#x} can't be mapped by a page of 1 GiB: unmap what is there before")]
    Occupied {
        /// What was to be mapped.
        address: u64,
    },
    /// A change within a page of 1 GiB.
    #[error("{address:#x} is in a page of 1 GiB, which can only be unmapped as a whole")]
    Giant {
        /// What was to be changed.
        address: u64,
    },
}
