//! What to do with huge pages: every policy and every limit, as pure code.
//!
//! Nothing in here does I/O, reads a clock, starts a thread or is unsafe, so that the same code
//! manages live processes and simulated ones.
#![forbid(unsafe_code)]

pub mod observation;
pub mod page;
pub mod plan;
pub mod policy;

pub use observation::{
    CoverageSource, GroupMemory, MemoryState, MemoryUse, Observation, ProcessId, ProcessSample,
    RegionSample,
};
pub use page::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};
pub use plan::{Promotion, Reason};
pub use policy::{Needs, Policy};
