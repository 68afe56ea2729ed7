//! A model of the memory-management unit, exact down to the single access. It computes what
//! programs would see from their TLBs, page walkers and caches, under base pages and under huge
//! pages. It has counters that this machine may lack.
//!
//! Its counters are exact, unlike those of a virtual machine; estimates are compared with them.
//!
//! ```text
//!  AccessPattern --access_generator--> pipeline: when is each access done?
//!                                        |-- two_level_tlb: a hit, or a walk
//!                                        |-- page_walkers, page_tables: the walk's loads
//!                                        |-- memory_model: data_cache_hierarchy, fill buffers
//!                                        v
//!  PatternRun <------ core_counters
//! ```
//!
//! Read [`PatternRun`] first, then `pipeline.rs` and `two_level_tlb.rs`. [`ProcessorSpec`] has the
//! data of a processor. Whole machines use the [fast model](translation), a folder of its own.
//!
//! # The model
//!
//! - [`AccessPattern`] describes a program's accesses, [`ProcessorSpec`] the processor; both are
//!   data. The presets are in [`PROCESSORS`].
//! - A translation is looked up in two levels of TLB, each with exact LRU replacement. A miss
//!   causes a walk of four levels of tables, the upper ones with caches of their own. A walk loads
//!   cache lines of eight entries, through the same data caches as the program's lines. So walks
//!   for neighbouring pages are cheap, and scattered walks over a large memory are expensive.
//! - A core runs ahead of what it waits for. Independent accesses and their walks overlap;
//!   dependent ones don't (`pipeline.rs`).
//! - The lowest bits of the physical address choose the set of a cache. The bits within a frame are
//!   the program's. Those above are arbitrary, because programs don't choose their frames; so is
//!   the slice of the last level. Strided lines therefore share few sets, fewer under huge pages.
//! - The last level of a measured processor prefers lines that were reused to lines that were used
//!   once (`rrip_sets.rs`). In presets all levels are LRU.
//! - In a virtual machine ([`PatternRun::in_guest`]) walks go through the host's tables too, with
//!   nested TLB and walk caches. A TLB entry holds the smaller of the guest's and the host's page.
//! - Neighbouring pages can share a TLB entry if the processor supports
//!   [groups](CoalescedPageGroup). Their frames are contiguous, and the processor sees that by
//!   itself (AMD), or the kernel has marked them (Arm's contiguous bit, RISC-V's Svnapot). See
//!   [`PatternRun::in_largest_tlb_groups`].
//!
//! Left out:
//! - instruction fetch and stores, and other threads;
//! - access bits: all are set, so nothing breaks up the groups that a processor sees by itself;
//! - the time of a walk beside its loads;
//! - prefetchers for walks of streams (Intel's next-page prefetcher): streams cost more here;
//! - dirty bits: groups that a processor sees by itself would need equal ones too, as those of
//!   anonymous memory are.
//!
//! ```
//! use hawkeye_sim::mmu::{AccessPattern, HugePageGain, SKYLAKE};
//!
//! let gain = HugePageGain::measure(&SKYLAKE, AccessPattern::CHASE, 1 << 30, 100_000, 1)?;
//! assert!(gain.base.walk_active_percent() > 20.0 && gain.huge.walks == 0);
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
//! The plain one is the oracle, with no code of the fast one. `agree.rs` compares the fast one with
//! it, `exact.rs` with the exact one. The fast and the exact one share TLBs and walk caches.

mod access_generator;
mod access_pattern;
mod coalesced_page_groups;
mod core_counters;
mod data_cache_hierarchy;
mod error;
mod huge_page_gain;
mod lru_sets;
mod memory_model;
mod page_tables;
mod page_walkers;
mod pattern_run;
pub(crate) mod permutation;
mod pipeline;
pub mod presets;
mod processor_spec;
mod read_latency;
mod resource_slots;
mod rrip_sets;
mod tag_vectors;
mod tlb_spec;
pub mod translation;
mod two_level_tlb;

pub use access_pattern::AccessPattern;
pub use coalesced_page_groups::{CoalescedPageGroup, CoalescedPageGroups, TlbGroupCondition};
pub use core_counters::CoreCounters;
pub use data_cache_hierarchy::{CACHE_LINE_BYTES, CacheLevelSpec, CacheReplacement};
pub use error::MmuError;
pub use huge_page_gain::HugePageGain;
pub use lru_sets::SetShape;
pub use memory_model::MemorySpec;
pub use pattern_run::PatternRun;
pub use presets::{
    HASWELL, ICE_LAKE, NEOVERSE_V2, PROCESSORS, SAPPHIRE_RAPIDS, SKYLAKE, XIANGSHAN, ZEN_4, ZEN_5,
};
pub use processor_spec::ProcessorSpec;
pub use read_latency::ReadLatencyShape;
pub use tlb_spec::{GiantPages, L1TlbSpec, L2TlbSpec, NestedCacheSizes, WalkCacheSizes};
