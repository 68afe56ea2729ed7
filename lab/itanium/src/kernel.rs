//! The kernel's side: Linux 2.6.18 with transparent large pages by translation replication (thesis,
//! chapter 5), or, on the same mechanisms, another system's rules for page sizes ([`policies`]).
//!
//! The thesis' rule:
//!
//! - `mmap` chooses page sizes: the largest that are aligned and fit, from the mapping's first page
//!   on. They are written into every base page's entry, and never grow afterwards.
//! - The first touch of a page allocates all of it. Without contiguous memory, the kernel tries the
//!   next smaller size.
//! - A call on a part of a large page splits the page.
//!
//! The thesis leaves some of that open. Decided here:
//!
//! - A large page that a call cuts is covered again on both sides of the cut by the same rule.
//! - `mremap` keeps frames, so a page keeps its size only where its new place is aligned as its
//!   memory is.
//! - `fork` copies sizes.
//! - A write to a shared large page splits it into base pages and copies one ([`CopyOnWrite`]).
//! - Nothing is swapped or reclaimed.
//! - Reads of untouched pages get memory as writes do (Linux would map its page of zeros).

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

/// What a write does to a large page that several processes share since a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum CopyOnWrite {
    /// The kernel splits it into base pages and copies one.
    Demote,
    /// The kernel copies all of it, if there is contiguous memory.
    CopyLarge,
}

/// Build and boot settings of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KernelSettings {
    /// Its page size.
    pub base: BasePage,
    /// Page sizes that it may use (`order_bitmap`).
    pub orders: Orders,
    /// Mappings begin at multiples of this (`superpage_vm_align`), rounded up to whole pages. The
    /// thesis names no value. It is 0 here because an alignment of megabytes would spread vortex
    /// over far more than its 25 MiB.
    pub vm_align_bytes: u64,
    /// What happens to shared large pages after a fork.
    pub copy_on_write: CopyOnWrite,
    /// The machine's memory in bytes.
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

    /// The same kernel with every page size that the processor has.
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
    /// By process number; `None` for a process that has ended.
    spaces: Vec<Option<Space>>,
    /// Further owners of each shared frame, beyond the first one.
    shared: BTreeMap<u32, u32>,
    /// Frames that other memory holds and that cannot be moved.
    held: u32,
    /// Frames that other memory holds and that can be moved.
    movable: BTreeSet<u32>,
    /// Requests to the daemon that moves pages together.
    demand: Demand,
    misses: MissCounts,
    window: Window,
    /// Number of contexts handed out.
    contexts: u32,
    statistics: Statistics,
}

impl Kernel {
    /// A kernel without processes.
    ///
    /// # Errors
    /// Memory is less than a page or more than 2^31 pages, or the policy does not fit the settings.
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

    /// Starts a process with nothing mapped and returns its number.
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

    /// Memory of a process.
    ///
    /// # Errors
    /// No process has this number.
    #[inline]
    pub fn space(&self, process: u32) -> Result<&Space, ItaniumError> {
        let space = self.spaces.get(process as usize).and_then(Option::as_ref);
        space.ok_or(ItaniumError::Process(process))
    }

    /// Number of processes started so far.
    pub fn processes(&self) -> u32 {
        self.spaces.len() as u32
    }

    /// Counts of large pages.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The kernel's settings.
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

    /// Makes sure that a leaf exists for a page's entry.
    fn ensure_leaf(&mut self, process: u32, page: u64) -> Result<(), ItaniumError> {
        if self.space(process)?.table.leaf_frame(page).is_none() {
            let frame = self.allocate(0);
            let frame = frame.ok_or(ItaniumError::OutOfMemory(process))?;
            self.space_mut(process)?.table.add_leaf(page, frame);
        }
        Ok(())
    }
}
