//! Errors of a kernel.

use super::{SharedFileId, SpaceId};
use hawkeye_policy::{PageOrder, PageOrderSet, RegionAddr};
use std::ops::Range;
use thiserror::Error;

/// An operation that could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KernelError {
    /// The address space does not exist or has ended.
    #[error("there is no address space {0}")]
    Space(SpaceId),
    /// The range, in bytes, does not consist of whole pages.
    #[error("{start:#x} to {end:#x} is not a range of whole pages below 2^48", start = .0.start, end = .0.end)]
    Range(Range<u64>),
    /// Something is mapped in the range, in bytes, already.
    #[error("address space {0} already has a mapping between {start:#x} and {end:#x}", start = .1.start, end = .1.end)]
    Occupied(SpaceId, Range<u64>),
    /// The range, in bytes, that was accessed isn't mapped.
    #[error("address space {0} has not mapped all of {start:#x} to {end:#x}", start = .1.start, end = .1.end)]
    NotMapped(SpaceId, Range<u64>),
    /// Nothing could be reclaimed for a fault.
    #[error("there is no memory left for address space {0}")]
    OutOfMemory(SpaceId),
    /// A region that a page is to map is mapped by larger pages already, empty, partly in swap, or
    /// in no mapping that allows it and holds all of it.
    #[error("region {1} of address space {0} can't be mapped by larger pages")]
    NotCandidate(SpaceId, RegionAddr),
    /// No memory for pages of this size is free, and none could be made.
    #[error("there are no frames for pages of {2} in region {1} of address space {0}")]
    NoFrames(SpaceId, RegionAddr, PageOrder),
    /// The kernel can't map pages of all of these sizes at first touches.
    #[error("the kernel can't map pages of all of these sizes at first touches: {0}")]
    Sizes(PageOrderSet),
    /// The operation needs a huge page, and the region is none.
    #[error("region {1} of address space {0} is not a huge page")]
    NotHuge(SpaceId, RegionAddr),
    /// Only a mapping of a whole file can be unmapped.
    #[error("address space {0} can unmap its file only as a whole")]
    PartOfFile(SpaceId),
    /// The file does not exist or was freed.
    #[error("there is no file {}", .0.0)]
    File(SharedFileId),
    /// A huge page of a file that several address spaces have mapped stays as it is.
    #[error(
        "several address spaces have mapped region {1} of address space {0}, so its huge page can't be split"
    )]
    SeveralMappers(SpaceId, RegionAddr),
    /// Costs, sizes or rates are out of range.
    #[error("{what} must be {allowed}")]
    Spec {
        /// The name of the value.
        what: &'static str,
        /// The allowed range, worded to follow "must be".
        allowed: &'static str,
    },
}

pub(crate) type Result<T> = std::result::Result<T, KernelError>;

/// A kernel that contradicts itself: a bug in the model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvariantViolation {
    /// A rule on physical memory is broken.
    #[error("frames: {0}")]
    Frames(&'static str),
    /// A rule on an address space is broken.
    #[error("region {region:#x} of address space {space}: {rule}")]
    Region {
        /// The address space.
        space: SpaceId,
        /// The region's first address.
        region: u64,
        /// The rule that should hold.
        rule: &'static str,
    },
    /// A count of an address space or of the machine is wrong.
    #[error("{what}: {counted} are counted, and {there} are there")]
    Count {
        /// The name of the count.
        what: &'static str,
        /// The count as kept.
        counted: u64,
        /// The count as found.
        there: u64,
    },
}
