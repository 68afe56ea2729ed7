//! What to prefault: huge pages that are zeroed and mapped before their program touches them.
//!
//! The paper zeroes free memory in advance (section 3.1). User space cannot do that, but it can
//! have the same effect: read-ahead for anonymous memory. A program that touches new memory region
//! after region is a stream. A window ahead of it is filled. The window doubles each time it was
//! used in full, and is given up when it was not.
//!
//! The kernel reports first touches and nothing else: memory that is already present gives no
//! report. So the next report of a stream comes when it has passed its window. File read-ahead
//! works alike, where a marked page reports it.
//!
//! ```text
//!  first touches -StreamFaultReport-> PrefaultPredictor -> FaultStream (one a run) -> PrefaultTask
//!                                             ^                                             |
//!                                             `-------------- PrefaultResult ---------------'
//! ```
//! Read `fault_stream` first. `prefault_predictor` holds the streams of all processes.

mod fault_stream;
mod prefault_predictor;
mod prefault_thread_count;

use fault_stream::FaultStream;
pub use prefault_predictor::{PrefaultPredictor, PrefaultResult, PrefaultTask};
pub use prefault_thread_count::PrefaultThreadCount;

use crate::page::RegionAddr;
use std::ops::Range;

/// First touches in one region, after touches in the region one step back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFaultReport {
    /// The region touched now.
    pub region: RegionAddr,
    /// Distance from the region before to this one, in regions: negative where addresses descend,
    /// never 0.
    pub step: i32,
    /// Whether many base pages of the region before were touched. Under huge pages this cannot be
    /// seen.
    pub dense: bool,
}

/// What a program is known to have done in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionTouch {
    /// Nothing: the region is filled only while it is empty.
    Untouched,
    /// It is touching the region, which is filled around the base pages that are there.
    BeingTouched,
    /// It has left the region, which is filled if it is in use.
    LeftBehind,
}

/// What may be filled around a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefaultableMemory {
    /// The mapping, in bytes, if its memory may be huge. Nothing outside it is filled.
    pub mapped: Range<u64>,
    /// Regions that may be filled before a limit is reached (that of the machine or of a cgroup).
    pub room_regions: u64,
}

impl PrefaultableMemory {
    /// Whether all of a region may be filled, as far as the mapping decides.
    fn contains(&self, region: RegionAddr) -> bool {
        self.mapped.start <= region.start() && region.end() <= self.mapped.end
    }
}
