//! Physical memory: frames, the buddy system, and what fragments it.
//!
//! ```text
//!  kernel --allocate, free--> buddy: PhysicalMemory, the state of each pageblock
//!    ^                          |-- buddy/free_lists    free blocks by order and content
//!    |                          |-- partial_pageblock   a pageblock in parts
//!    |                          `-- frame_touches       for the host of a virtual machine
//!    |
//!    +-- compaction, contiguous: frames to empty, by their owner (frame_owner)
//!    +-- prezeroing: dirty free frames become zeroed
//!    `-- fragmentation, zone_watermarks: how fragmented, and how much is kept free
//! ```
//!
//! Read `buddy.rs` first, then `partial_pageblock.rs`. `ascending_run_map.rs` stores the frames of
//! a region for the kernel. `allocation_replay.rs` uses all of it without a kernel.
//!
//! # The model
//!
//! - Frames are handed out in blocks of 2^order frames, orders 0 to 10, as `mm/page_alloc.c` does.
//!   The lowest address comes first (Linux takes what was freed last). Free blocks merge with their
//!   buddies at once; there are no per-CPU lists.
//! - Free lists are split by content (paper, section 3.1): *zeroed* and *dirty*. What the kernel
//!   knows is kept for each frame, so a merge forgets nothing. A block counts as zeroed when all of
//!   it is.
//! - State is kept for each pageblock, and for each frame only where a pageblock is in parts. Empty
//!   memory of 1 TiB takes about 40 MiB here, and a pageblock in parts about 0.8 KiB.
//!
//! One zone and one node. All memory is movable: there are no migrate types.

mod allocation_replay;
mod ascending_run_map;
mod buddy;
mod compaction;
mod contiguous;
mod fragmentation;
mod frame_content;
mod frame_owner;
mod frame_run;
mod frame_touches;
mod invariants;
mod partial_pageblock;
mod prezeroing;
mod zone_watermarks;

pub use allocation_replay::{AllocatedFrameCounts, AllocationReplay};
pub use buddy::PhysicalMemory;
pub use frame_content::{FrameContent, FrameContentChange};
pub use frame_run::FrameRun;
pub use prezeroing::PrezeroingResult;
pub use zone_watermarks::ZoneWatermarks;

pub(crate) use ascending_run_map::{AscendingRun, AscendingRunMap};
pub(crate) use buddy::AllocatedFrames;
pub(crate) use compaction::ScanCount;
pub(crate) use contiguous::MovablePages;
pub(crate) use frame_owner::FrameOwner;
pub(crate) use frame_run::pageblock_of_frame;

/// Orders of free blocks: 0 to 10, that is 4 KiB to 4 MiB (`MAX_PAGE_ORDER` of x86).
pub const ORDERS: u8 = 11;
/// Order of a huge page and of a pageblock.
pub const HUGE_ORDER: u8 = 9;
/// Orders smaller than a pageblock.
pub(crate) const PART_ORDERS: u8 = HUGE_ORDER;
