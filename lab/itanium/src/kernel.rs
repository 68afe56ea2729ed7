//! The kernel's side: Linux 2.6.18 with transparent large pages by translation replication (thesis, chapter 5), or, on the same mechanisms,
//! another system's rules for page sizes ([`policies`]).
//!
//! The thesis' rule:
//!
//! - `mmap` chooses page sizes: the largest that are aligned and fit, from the mapping's first page on. They are written into every base
//!   page's entry, and never grow afterwards.
//! - The first touch of a page allocates all of it. Where there is no contiguous memory, its size goes down by one and it is tried again.
//! - What is done to a part of a large page splits it.
//!
//! The thesis leaves some of that open. Decided here: a large page that a call cuts is covered again on both sides of the cut by the same
//! rule; `mremap` keeps frames, so a page keeps its size only where its new place is aligned as its memory is; `fork` copies
//! sizes; a write to a shared large page splits it into base pages and copies one ([`CopyOnWrite`]). Nothing is swapped or
//! reclaimed, and reads of untouched pages get memory as writes do (Linux would show them a page of zeros).

mod buddy;
mod coalescing;
mod counting;
mod faulting;
mod forking;
mod fragmenting;
mod growing;
mod invariants;
mod mapping;
mod memory;
mod moving;
mod page_table;
pub mod policies;
mod promoting;
mod purge;
mod reserving;
mod space;
mod splitting;
mod statistics;
mod supplying;

pub use buddy::Buddy;
pub use fragmenting::Fragmentation;
pub use page_table::PageTable;
pub use purge::Purge;
pub use space::{Backing, Mapping, Space};
pub use statistics::{ByOrder, Statistics};

use super::ItaniumError;
use super::address::{BasePage, Orders};
use super::mmu::RegionRegisters;
use coalescing::Demand;
use counting::{MissCounts, Window};
use memory::ReservedPool;
use policies::{Cover, Policy};
use reserving::Reservations;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What a write to a large page does that several processes share since a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CopyOnWrite {
    /// It is split into base pages, and one is copied.
    Demote,
    /// All of it is copied, if there is contiguous memory.
    CopyLarge,
}

/// How a kernel is built and set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KernelSettings {
    /// Its page size.
    pub base: BasePage,
    /// Page sizes that it may use (`order_bitmap`).
    pub orders: Orders,
    /// Mappings begin at multiples of this (`superpage_vm_align`), rounded up to whole pages. The thesis names no value; 0 here, as an alignment of
    /// megabytes would spread vortex over far more than its 25 MiB.
    pub vm_align_bytes: u64,
    /// After a fork.
    pub copy_on_write: CopyOnWrite,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// How page sizes are chosen.
    pub policy: Policy,
}

impl KernelSettings {
    /// The thesis' machine, with 2 GiB, on a kernel without large pages.
    pub const fn plain(base: BasePage) -> Self {
        Self {
            base,
            orders: Orders::BASE,
            vm_align_bytes: 0,
            copy_on_write: CopyOnWrite::Demote,
            memory_bytes: 2 << 30,
            policy: Policy::Cover(Cover),
        }
    }

    /// The same with every page size that the processor has.
    pub fn large(base: BasePage) -> Self {
        Self {
            orders: Orders::all(base),
            ..Self::plain(base)
        }
    }
}

/// Memory and processes.
#[derive(Clone, Debug)]
pub struct Kernel {
    settings: KernelSettings,
    buddy: Buddy,
    /// Memory set aside for large pages.
    pool: Option<ReservedPool>,
    reservations: Reservations,
    /// By process number; none where one has ended.
    spaces: Vec<Option<Space>>,
    /// Owners beside the first of frames that have some.
    shared: BTreeMap<u32, u32>,
    /// Frames that are somebody else's for good.
    held: u32,
    /// Frames that are somebody else's and can be moved.
    movable: BTreeSet<u32>,
    /// What the daemon that moves pages together was asked for.
    demand: Demand,
    misses: MissCounts,
    window: Window,
    /// Contexts that were handed out.
    contexts: u32,
    statistics: Statistics,
}

impl Kernel {
    /// Nothing runs.
    ///
    /// # Errors
    /// Memory of less than a page or more than 2^31 of them; a policy that does not fit.
    pub fn new(settings: KernelSettings) -> Result<Self, ItaniumError> {
        let frames = settings.memory_bytes >> settings.base.shift();
        if !(1..=1 << 31).contains(&frames) {
            return Err(ItaniumError::Setup {
                what: "memory",
                allowed: "1 to 2^31 pages",
            });
        }
        let rules = settings.policy.rules();
        rules.check(&settings)?;
        let pool = rules.pool();
        let pool = pool.map(|pool| ReservedPool::new(pool, frames as u32));
        let pool = pool.transpose()?;
        let rest = pool.as_ref().map_or(frames as u32, ReservedPool::first);
        Ok(Self {
            settings,
            buddy: Buddy::new(rest),
            pool,
            reservations: Reservations::default(),
            spaces: Vec::new(),
            shared: BTreeMap::new(),
            held: 0,
            movable: BTreeSet::new(),
            demand: Demand::default(),
            misses: MissCounts::default(),
            window: Window::default(),
            contexts: 0,
            statistics: Statistics::default(),
        })
    }

    /// A process with nothing mapped: its number.
    ///
    /// # Errors
    /// There are no more region ids.
    pub fn spawn(&mut self) -> Result<u32, ItaniumError> {
        let registers = self.context()?;
        let number = self.spaces.len() as u32;
        self.spaces
            .push(Some(Space::new(self.settings.base, registers)));
        Ok(number)
    }

    /// A process's memory.
    ///
    /// # Errors
    /// There is none of this number.
    #[inline]
    pub fn space(&self, process: u32) -> Result<&Space, ItaniumError> {
        let space = self.spaces.get(process as usize).and_then(Option::as_ref);
        space.ok_or(ItaniumError::Process(process))
    }

    /// Processes that ever were.
    pub fn processes(&self) -> u32 {
        self.spaces.len() as u32
    }

    /// What was counted of large pages.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// How it is set.
    pub fn settings(&self) -> &KernelSettings {
        &self.settings
    }

    fn space_mut(&mut self, process: u32) -> Result<&mut Space, ItaniumError> {
        let space = self.spaces.get_mut(process as usize);
        space
            .and_then(Option::as_mut)
            .ok_or(ItaniumError::Process(process))
    }

    fn context(&mut self) -> Result<RegionRegisters, ItaniumError> {
        self.contexts += 1;
        if self.contexts >= RegionRegisters::CONTEXTS {
            return Err(ItaniumError::Contexts);
        }
        let registers = RegionRegisters::of_context(self.contexts);
        Ok(match &self.pool {
            Some(pool) => pool.region(registers),
            None => registers,
        })
    }

    /// There is a leaf for a page's entry.
    fn ensure_leaf(&mut self, process: u32, page: u64) -> Result<(), ItaniumError> {
        if self.space(process)?.table.leaf_frame(page).is_none() {
            let frame = self.allocate(0);
            let frame = frame.ok_or(ItaniumError::OutOfMemory(process))?;
            self.space_mut(process)?.table.add_leaf(page, frame);
        }
        Ok(())
    }
}
