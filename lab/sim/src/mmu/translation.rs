//! A fast model of address translation, for whole simulated machines. It computes what a
//! [`ProcessorSpec`](super::ProcessorSpec) finds in its TLBs, which walks it makes and how long
//! they take, and which access bits they set.
//!
//! The example `translation_speed` measured on one core of a virtual AMD EPYC, in million accesses
//! a second: random ones 57 over 16 GiB of base pages, 68 of huge pages, 37 over 1 TiB of base
//! pages; sequential ones 1,000. Where each access waits for the one before (a few PDPTEs that are
//! used in turn), that step runs beside independent ones. On its own it took a sixth of the time.
//!
//! ```
//! use hawkeye_sim::mmu::SKYLAKE;
//! use hawkeye_sim::mmu::translation::{Access, Mappings, ProgramWork, Translator, TranslatorSpec};
//! use hawkeye_policy::RegionAddr;
//!
//! let mut mappings = Mappings::new();
//! let region = RegionAddr::containing(0x7f00_0000_0000);
//! mappings.map_pages(region, [u64::MAX; 8])?;
//! mappings.clear_accessed(region);
//! let mut core = Translator::new(&TranslatorSpec::native(&SKYLAKE))?;
//! let batch = [Access::load(region.start()), Access::store(region.start() + 4096)];
//! let done = core.translate(&mut mappings, &batch, ProgramWork::default());
//! assert_eq!((done.accesses, done.fault), (2, None));
//! assert_eq!(mappings.accessed(region)[0], 0b11);
//! assert_eq!(core.counters().walks(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```text
//!  Accesses --> Translator --stage after stage--> tlb_levels --misses--> walker, host_walker
//!                 |                               (tlb_entries)            |-- upper_entry_caches
//!                 v                                                        `-- table_caches
//!               TranslationCounters; access bits in Mappings
//! ```
//!
//! Read [`Translator`] first, then `translator/stages.rs`, then [`Mappings`] and `walker.rs`. The
//! other files are single structures of a core.
//!
//! # The model
//!
//! - [`Mappings`] hold the [`LeafSize`] of each mapping in one address space, with one byte for a
//!   region and three bits for a base page. That is about 100 MiB for 1 TiB, or up to 200 with the
//!   spare capacity of vectors. Groups of base pages take 8 MiB more. In a virtual machine a region
//!   also has the size by which the host maps the memory behind it.
//! - A [`Translator`] is one core: TLBs with exact LRU replacement, split by page size; caches of
//!   the upper entries; and radix tables of 4 or 5 levels. A walk loads lines of eight entries.
//! - In a virtual machine a walk also walks the host's tables, for each table of the guest and for
//!   the page itself. The resulting TLB entry has the smaller of both sizes. Guest-physical memory
//!   lies in the order of the guest's addresses; all guests' page tables share the upper tables of
//!   the host.
//! - The time of a walk's load depends on where the line is: in the second-level cache, in the last
//!   level, or in memory. Both caches have exact LRU replacement among lines of page tables. Their
//!   share beside the program's own data is [`TranslatorSpec::page_table_share_percent`].
//! - A walk sets the access bit of the page that the program sees; a TLB hit does not.
//! - Pages that one TLB entry holds as a [group](crate::mmu::CoalescedPageGroup) keep their own
//!   table entries ([`Mappings::set_groups`], [`Mappings::map_huge_group`]). A walk loads the
//!   missed page's.
//! - Marked groups have one access bit. Groups that the processor sees by itself have one for each
//!   page, and are one entry as long as all are set. Otherwise their pages are looked up one access
//!   at a time: as the group, in case a TLB still has it, and then as themselves. A page that has
//!   joined a group is no longer looked up by itself.
//! - In a virtual machine a group is one entry if the host's pages are as large, or such groups.
//!
//! # Compared with the exact model
//!
//! The [exact model](super) runs one pattern over one page size:
//!
//! - There, the program's data uses the same caches as page tables. Here, tables have a share.
//! - There, walks have start times and overlap. Here, their lengths are added up, and
//!   [`ProgramWork`] gives the share that the program waits for.
//! - There, the first-level cache may have a table's line. Here, a load takes at least the time of
//!   the second level.
//! - There, caches have the processor's ways. Here, parts for tables have sets of four lines.
//!
//! Walks take within 20 % of what they take there (random reads over 1 and 16 GiB, every preset).
//! TLB hits, walks, and the loads that a walk needs are the same in both
//! (`lab/sim/tests/translation/exact.rs`).

mod access;
mod batch_result;
mod dense_page_numbers;
mod error;
mod fully_associative_key_cache;
mod fully_associative_lru;
mod host_walker;
mod mappings;
mod miss_optimised_lru;
mod missed_pages;
mod region_translation;
mod sizes;
mod table_caches;
mod tlb_entries;
mod tlb_levels;
mod translation_counters;
mod translator;
mod translator_spec;
mod upper_entry_caches;
mod walker;

pub use access::Access;
pub use batch_result::{AccessFault, BatchResult};
pub use error::MappingError;
pub(super) use fully_associative_key_cache::FullyAssociativeKeyCache;
pub use fully_associative_lru::FullyAssociativeLru;
pub use mappings::Mappings;
pub(super) use missed_pages::MAX_LEVELS;
pub(crate) use sizes::EntryOrders;
pub use sizes::{EntrySize, LeafSize};
pub(super) use tlb_levels::{FirstLevelTlb, SecondLevelTlb};
pub use translation_counters::TranslationCounters;
pub use translator::Translator;
pub use translator_spec::{PageTableLevels, PageTableSetup, ProgramWork, TranslatorSpec};
pub(super) use upper_entry_caches::UpperEntryCaches;
