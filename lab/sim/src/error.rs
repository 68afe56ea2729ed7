//! What can be wrong with a simulation.

use hawkeye_policy::{ProcessId, RegionAddr, SettingError, UnknownPolicy};
use std::time::Duration;
use thiserror::Error;

/// A machine, process or change that can't be simulated.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum SimError {
    /// An access that takes no time.
    #[error("{cost} must be over 0 and finite, not {ns}")]
    Cost {
        /// Which cost.
        cost: &'static str,
        /// Its value, in nanoseconds.
        ns: f64,
    },
    /// More pages than a region has.
    #[error("a region has 512 base pages; {0} can't be in use")]
    Pages(u16),
    /// A weight that is no weight.
    #[error("a weight must be at least 0 and finite, not {0}")]
    Weight(f64),
    /// A share of accesses that is no share.
    #[error(
        "the share of accesses that need a page walk must be at least 0 and at most 1, not {0}"
    )]
    WalkShare(f64),
    /// A part of the address space without a region, or one that ends beyond all addresses.
    #[error("the part at {start} has no regions, or too many ({regions})")]
    Size {
        /// Where it starts.
        start: RegionAddr,
        /// How many regions it was to have.
        regions: u32,
    },
    /// Two parts of one address space at the same place.
    #[error("two parts of the address space hold region {0}")]
    Overlap(RegionAddr),
    /// A process that doesn't fit into memory as it starts.
    #[error("the process needs {needed_bytes} bytes of memory and {free_bytes} are free")]
    Memory {
        /// What it holds at its start.
        needed_bytes: u64,
        /// What it could have.
        free_bytes: u64,
    },
    /// A limit that is exceeded before it is set.
    #[error("a limit of {limit_bytes} bytes is under the {used_bytes} in use")]
    Limit {
        /// The limit.
        limit_bytes: u64,
        /// What the group's processes hold.
        used_bytes: u64,
    },
    /// A process that this machine never had.
    #[error("there is no process {0}")]
    Process(ProcessId),
    /// A part that the process doesn't have.
    #[error("process {process} has no part {part}")]
    Part {
        /// Whose.
        process: ProcessId,
        /// Index of the part in its specification.
        part: usize,
    },
    /// A change that lies in the past, or before its process arrives.
    #[error("at {at:?} it is too early or too late for this")]
    Time {
        /// When it was to happen.
        at: Duration,
    },
    /// A setting of the manager out of range.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A policy that doesn't exist.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
}

/// The simulation contradicts itself: a bug in it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BrokenInvariant {
    /// A process's resident memory is not the sum of its present pages.
    #[error("process {process} holds {pages} pages, and counts {counted}")]
    Resident {
        /// Which.
        process: ProcessId,
        /// Present base pages in its page table.
        pages: u64,
        /// Base pages it is charged for.
        counted: u64,
    },
    /// Page sets of a region that exclude each other.
    #[error("region {region} of process {process}: {rule}")]
    Region {
        /// Whose.
        process: ProcessId,
        /// Which.
        region: RegionAddr,
        /// What should hold.
        rule: &'static str,
    },
    /// More memory in use than there is.
    #[error("{used_bytes} bytes are in use of {limit_bytes}")]
    Memory {
        /// In use by simulated processes.
        used_bytes: u64,
        /// The machine's or a group's limit.
        limit_bytes: u64,
    },
}
