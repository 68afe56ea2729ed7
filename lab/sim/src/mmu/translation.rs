//! A fast model of address translation, for whole simulated machines: what a [`Processor`](super::Processor) finds in
//! its TLBs, what it walks for and how long, and which access bits that sets. On one core of a virtual AMD EPYC the
//! example `translation_speed` measured 57 million random accesses a second over 16 GiB of base pages, 68 of huge
//! pages, 37 over 1 TiB of base pages; of sequential ones a thousand million by access, and twice that by
//! [`Sweep`]. Where each access waits for the one before (a few PDPTEs that are used in turn) it is made beside what
//! does not: on its own that took a sixth of the time.
//!
//! ```
//! use hawkeye_sim::mmu::SKYLAKE;
//! use hawkeye_sim::mmu::translation::{Access, Mappings, Translator, TranslatorSpec, Work};
//! use hawkeye_policy::RegionAddr;
//!
//! let mut mappings = Mappings::new();
//! let space = mappings.add_space()?;
//! let region = RegionAddr::containing(0x7f00_0000_0000);
//! mappings.map_pages(space, region, [u64::MAX; 8])?;
//! mappings.clear_accessed(space, region);
//! let mut core = Translator::new(&TranslatorSpec::native(&SKYLAKE))?;
//! let batch = [Access::load(region.start()), Access::store(region.start() + 4096)];
//! let done = core.translate(&mut mappings, space, &batch, Work::default());
//! assert_eq!((done.accesses, done.fault), (2, None));
//! assert_eq!(mappings.accessed(space, region)[0], 0b11);
//! assert_eq!(core.counters(space).walks(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The model
//!
//! - [`Mappings`] say what is mapped by which [`LeafSize`], in address spaces of any number, with one
//!   byte for a region and three bits for a base page: about 100 MiB for 1 TiB, up to 200 with what vectors
//!   hold in reserve; 8 MiB more where base pages have groups. In a virtual machine a
//!   region also has the size by which the host maps what is behind it.
//! - A [`Translator`] is one core: TLBs with exact LRU replacement, split by page size; caches of the
//!   upper entries; and radix tables of 4 or 5 levels, of which a walk loads lines of eight entries.
//! - In a virtual machine each table of the guest and the page itself is walked for in the tables of
//!   the host as well. The TLB entry that results is of the smaller of both sizes. Guest-physical
//!   memory lies in the order of the guest's addresses; all guests' page tables share the upper tables
//!   of the host.
//! - What a walk's load takes depends on where the line is: in the second-level cache, in the last
//!   level, or in memory, both caches with exact LRU replacement among lines of page tables. What the
//!   program's own data leaves of them is [`TranslatorSpec::page_table_share_percent`].
//! - A walk sets the access bit of the page that the program sees; a TLB hit does not.
//! - Pages keep their entries in the table where they are a [group](crate::mmu::Group) that one TLB entry holds
//!   ([`Mappings::set_groups`], [`Mappings::map_huge_group`]): a walk loads that of the page that was missed. Marked ones
//!   have one access bit. Those that the processor sees by itself have one each, and are one entry as long as all are set;
//!   else their pages are looked for as the group, in case it is still known, and then as themselves, one access at a
//!   time. A page that has come to be in a group is not looked for by itself any more.
//! - In a virtual machine a group is one entry where the host's pages are as large, or are such groups too.
//!
//! # Beside the exact model
//!
//! The [exact model](super) runs one pattern over one page size and has the program's data in the same
//! caches as its page tables; here a share of them stands for that. There walks have their place in
//! time and overlap; here their lengths are added up, and [`Work`] says how much of that the program
//! waits for. There the first-level cache may have a table's line; here a load takes the second level's
//! time at least. There caches have the ways of the processor; here their parts for page tables have sets of
//! four lines, and the same size. Walks take within 20 % of what they take there (random reads over 1 and 16
//! GiB, every preset). TLB hits, walks and
//! what a walk has to load are the same in both (`lab/sim/tests/translation/exact.rs`).

mod access;
mod associative;
mod counters;
mod error;
mod guest;
mod keys;
mod lines;
mod mappings;
mod miss;
mod outcome;
mod place;
mod recent;
mod sizes;
mod space_id;
mod spec;
mod state;
mod tags;
mod tlb;
mod translator;
mod upper;
mod walker;

pub use access::{Access, Sweep};
pub use associative::Associative;
pub use counters::TranslationCounters;
pub use error::MappingError;
pub use mappings::Mappings;
pub(crate) use mappings::Mark;
pub use outcome::{Done, Fault, Swept};
pub(crate) use sizes::Orders;
pub use sizes::{EntrySize, LeafSize};
pub use space_id::SpaceId;
pub use spec::{Levels, Tables, TranslatorSpec, Work};
pub use translator::Translator;
