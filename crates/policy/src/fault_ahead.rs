//! What to fill ahead: huge pages zeroed and mapped before their program gets there.
//!
//! The paper zeroes free memory in advance (section 3.1). From user space that can't be had, but its effect
//! can: read-ahead for anonymous memory. Whoever touches new memory region after region is a [`Stream`]; a
//! window ahead of it is filled, which doubles each time it was used in full and is given up when it was not.
//!
//! The kernel reports first touches and nothing else: of memory that is there already nothing is heard. So a
//! stream is heard of when it has come through its window, as in file read-ahead, where a marked page
//! says so.
//!
//! ```text
//!  first touches --Advance--> predictor --> Stream, one for each run of touches --> Task: fill a region
//!                                 ^                                                     |
//!                                 `---------------- Filled (under_way) <----------------'
//! ```
//! Read `stream` first. `predictor` holds the streams of all processes.

mod predictor;
mod stream;
mod threads;
mod under_way;

pub use predictor::{Filled, Predictor, Task};
pub use stream::{FaultAheadSettings, Stream};
pub use threads::FillThreads;

use crate::page::RegionAddr;
use std::ops::Range;

/// First touches in one region, after those in the region one step back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    /// Where the touches are now.
    pub region: RegionAddr,
    /// From the region before to this one, in regions: negative where addresses descend, never 0.
    pub step: i32,
    /// Whether many base pages of the region before were touched. Under huge pages that does not show.
    pub dense: bool,
}

/// What may be filled around a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// The mapping, in bytes, if its memory may be huge. Nothing outside is filled.
    pub mapped: Range<u64>,
    /// Regions that may be filled before a limit is reached (the machine's, a cgroup's).
    pub room_regions: u64,
}
