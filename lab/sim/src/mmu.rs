//! A model of the memory-management unit, exact down to the single access: what programs would see
//! from their TLBs, page walkers and caches under base pages and under huge pages, with counters that
//! this machine may not have, and access bits as the processor sets them.
//!
//! Its counters are the truth that estimates of MMU overhead are held against, free of what limits
//! them on a virtual machine.
//!
//! # The model
//!
//! - [`Pattern`] says what a program accesses, [`Processor`] what it runs on; both are data. The
//!   presets are in [`PROCESSORS`].
//! - A translation is looked up in two levels of TLB, each with exact LRU replacement, and else walked
//!   for: four levels of tables, the upper ones with caches of their own. What a walk loads are cache
//!   lines of eight entries, in the same data caches as the program's own lines; so walks for
//!   neighbouring pages are cheap, and walks all over a large memory dear.
//! - A core runs ahead of what it waits for, so that independent accesses and their walks overlap, and
//!   dependent ones don't (`pipeline.rs`).
//! - A set of a cache is chosen by the lowest bits of the physical address. Those within a frame are the
//!   program's; what is above is any, for programs don't choose their frames, and so is the slice of the last
//!   level. Strided lines therefore meet in few sets, under huge pages in fewer.
//! - The last level of a processor that was measured keeps what is used again before what is used once (`rrip.rs`); in
//!   presets all levels are LRU.
//! - In a virtual machine ([`Run::in_guest`]) walks go through the host's tables too, with their nested TLB and
//!   walk caches, and TLBs hold what one page of either maps.
//! - A page's access bit is set by a walk, never by a TLB hit.
//! - Neighbouring pages can be one TLB entry where the processor knows [groups](Group): of contiguous frames that it sees
//!   by itself (AMD), or that the kernel has marked (Arm's contiguous bit, RISC-V's Svnapot). [`Run::in_groups`].
//!
//! Left out: instruction fetch and stores, other threads, what a walk takes beside its
//! loads, and what processors do against walks of streams (Intel's next-page prefetcher), so that these cost a little
//! more here than in reality. Dirty bits: groups that a processor sees by itself would need them alike too, as those of
//! anonymous memory are.
//!
//! ```
//! use hawkeye_sim::mmu::{Pattern, SKYLAKE, Truth};
//!
//! let truth = Truth::measure(&SKYLAKE, Pattern::CHASE, 1 << 30, 100_000, 1)?;
//! assert!(truth.base.walk_active_percent() > 20.0 && truth.huge.walks == 0);
//! # Ok::<(), hawkeye_sim::mmu::MmuError>(())
//! ```
//!
//! # Which model answers which question
//!
//! | model | where | question | time |
//! |---|---|---|---|
//! | exact | here | what do a program's TLBs, walkers and caches see, access by access? | each access is simulated |
//! | fast | [`translation`] | what does translation cost the programs of a whole machine? | tens of millions of accesses a second |
//! | plain | `lab/sim/tests/translation/plain.rs` | is the fast one right? | slow: lists that are searched, for tests alone |
//!
//! The plain one is the oracle: written from the description, without anything of the fast one's. `agree.rs`
//! holds the fast one against it, `exact.rs` the fast one against the exact one.

mod accessed;
mod accesses;
mod caches;
mod calibrate;
mod counters;
mod error;
mod group;
mod latency;
mod lru;
mod memory;
mod page;
mod pattern;
mod pipeline;
pub mod presets;
mod processor;
mod rrip;
mod run;
pub(crate) mod scatter;
mod slots;
mod tlb;
pub mod translation;
mod truth;
mod vectors;
mod walk;
mod walkers;

pub use caches::{CACHE_LINE_BYTES, CacheLevel, Replacement};
pub use calibrate::{WalkCosts, calibrate};
pub use counters::Counters;
pub use error::MmuError;
pub use group::{Group, GroupCondition, Groups};
pub use latency::LatencyShape;
pub use lru::Shape;
pub use memory::MemorySpec;
pub use page::PageSize;
pub use pattern::Pattern;
pub use presets::{
    HASWELL, ICE_LAKE, NEOVERSE_V2, PROCESSORS, SAPPHIRE_RAPIDS, SKYLAKE, XIANGSHAN, ZEN_4, ZEN_5,
};
pub use processor::Processor;
pub use run::Run;
pub use tlb::{GiantPages, L1Tlb, L2Tlb};
pub use truth::Truth;
pub use walk::NestedCaches;
pub use walk::WalkCacheSizes;
