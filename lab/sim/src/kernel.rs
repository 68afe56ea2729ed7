//! A kernel's memory manager: address spaces, faults, and all that gives and takes pages.
//!
//! [`SimulatedKernel`] has no clock and no thread of its own. Each operation returns its time and
//! charges it to a program or to a thread of the kernel. [`SimulatedKernel::step_kernel_threads`]
//! runs these threads. Systems differ at a page fault by their
//! [`FaultPolicy`](fault_policies::FaultPolicy). A manager's work between faults is called from
//! outside ([`SimulatedKernel::promote`], [`SimulatedKernel::recover_bloat`], ...). That includes
//! khugepaged: it is the policy `linux`.
//!
//! # The model
//!
//! - Memory is private and anonymous. A region's page table is kept as sets of pages. Frames are
//!   kept by runs, so that neighbouring pages in neighbouring frames take no more room than one.
//! - Of a page's content only one thing is known: whether it is all zeros.
//! - Faults on neighbouring pages are handled together, with the result of one after the other.
//! - Pages have any size from 4 KiB to 1 GiB. Up to a huge page they are as in Linux: folios at
//!   first touches and by promotion. No kernel gives larger pages to anonymous memory. Here
//!   promotion does, to show what it would bring.
//! - When no memory is left, the kernel breaks reservations, drops the page cache and swaps pages.
//!   After that it is out of memory.
//!
//! Not modelled: mapped files, remote nodes, page tables' own memory, waits for locks.

use hawkeye_policy::{PageOrder, PageOrders, RegionAddr};
use std::ops::Range;
use thiserror::Error;

mod costs;
mod fault_mapping;
pub mod fault_policies;
mod faults;
mod figures;
mod first_touches;
mod free;
mod invariants;
mod page_moves;
mod promotion;
mod reclaim;
mod region;
mod space;
mod state;
mod swap;
mod threads;

pub use costs::{FaultCostCalibration, KernelCosts};
pub use faults::{PageAccess, TouchedPages};
pub use figures::{MappedBySize, MemoryFigures, SpaceFigures};
pub use promotion::CompletedPromotion;
pub(crate) use reclaim::regions_around;
pub(crate) use region::{RegionMapping, RegionPiece};
pub(crate) use space::RegionId;
pub use space::{FaultCounts, SpaceId};
pub use state::SimulatedKernel;
pub use swap::SwapSpec;
pub use threads::{KernelThreadTimes, KernelThreadWork, SamePageMergingSpec, ZeroingSpec};

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
    Sizes(PageOrders),
    /// The operation needs a huge page, and the region is none.
    #[error("region {1} of address space {0} is not a huge page")]
    NotHuge(SpaceId, RegionAddr),
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
pub enum BrokenKernel {
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
