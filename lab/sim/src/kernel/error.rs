//! What a kernel refuses.

use super::SpaceId;
use hawkeye_policy::{PageOrder, PageOrders, RegionAddr};
use thiserror::Error;

/// An operation that could not be done.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KernelError {
    /// No such address space, or it has ended.
    #[error("there is no address space {0}")]
    Space(SpaceId),
    /// A range that is no range of whole pages.
    #[error("{start:#x} to {end:#x} is no range of whole pages under 2^48")]
    Range {
        /// First byte.
        start: u64,
        /// First byte after it.
        end: u64,
    },
    /// Something is mapped there already.
    #[error("address space {space} has something mapped between {start:#x} and {end:#x}")]
    Occupied {
        /// Whose.
        space: SpaceId,
        /// First byte.
        start: u64,
        /// First byte after it.
        end: u64,
    },
    /// An access to what isn't mapped.
    #[error("address space {space} has not mapped all of {start:#x} to {end:#x}")]
    NotMapped {
        /// Whose.
        space: SpaceId,
        /// First byte.
        start: u64,
        /// First byte after it.
        end: u64,
    },
    /// Nothing could be reclaimed for a fault.
    #[error("there is no memory left for address space {0}")]
    OutOfMemory(SpaceId),
    /// A region that can't be mapped by larger pages: it is already, or no mapping that allows it holds all of it, or nothing
    /// is in it, or some of it is in swap; or one of several that a page is to map is so.
    #[error("region {1} of address space {0} is no candidate for larger pages")]
    NotCandidate(SpaceId, RegionAddr),
    /// No memory for pages of this size is free, and none could be made.
    #[error("there are no frames for pages of {2} in region {1} of address space {0}")]
    NoFrames(SpaceId, RegionAddr, PageOrder),
    /// First touches can't be given pages of all of these sizes.
    #[error("pages of {0} can't all be given at first touches")]
    Sizes(PageOrders),
    /// Something that only a huge page has was asked of a region without one.
    #[error("region {1} of address space {0} is no huge page")]
    NotHuge(SpaceId, RegionAddr),
    /// Costs, sizes or rates that make no machine.
    #[error("{what} must be {allowed}")]
    Spec {
        /// Which.
        what: &'static str,
        /// What it can be, worded to follow "must be".
        allowed: &'static str,
    },
}

/// A kernel that contradicts itself: a bug in the model.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BrokenKernel {
    /// In physical memory.
    #[error("frames: {0}")]
    Frames(&'static str),
    /// In an address space.
    #[error("region {region:#x} of address space {space}: {rule}")]
    Region {
        /// Whose.
        space: SpaceId,
        /// Its first address.
        region: u64,
        /// What should hold.
        rule: &'static str,
    },
    /// In the counts of an address space or of the machine.
    #[error("{what}: {counted} are counted, and {there} are there")]
    Count {
        /// Of what.
        what: &'static str,
        /// As kept.
        counted: u64,
        /// As found.
        there: u64,
    },
}
