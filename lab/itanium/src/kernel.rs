//! The machine with its kernel: Linux 2.6.18 with transparent large pages by translation
//! replication (thesis, chapter 5), or, on the same mechanisms, another system's rules for page
//! sizes ([`policies`]).
//!
//! ```text
//!  a program's mmap, fork, ... --> mapping_calls: mappings, and page sizes in the page table
//!  a program's reference
//!    v                                                               process_space
//!  tlb_misses: access_memory --> Mmu::translate --a hit--> done      (PageTable)
//!    | a miss: filled from the page table <------------------------------+
//!    v no memory yet, or a write to a shared page                        |
//!  page_faults --FrameSource (policies)--> frames, reservations          |
//!    |                                       `--> page table entries ----+
//!    v                                                                   |
//!  promotion, compaction: larger pages, in place or by copying ----------'
//! ```
//!
//! Read `access_memory` in `tlb_misses.rs` first, then `page_faults.rs`, then [`policies`].
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
//! - A write to a shared large page splits it into base pages and copies one
//!   ([`LargePageCopyOnWrite`]).
//! - Nothing is swapped or reclaimed.
//! - Reads of untouched pages get memory as writes do (Linux would map its page of zeros).

mod compaction;
mod frames;
mod invariants;
mod mapping_calls;
mod page_faults;
pub mod policies;
mod process_space;
mod promotion;
mod reservations;
mod statistics;
mod tlb_misses;

pub use frames::InitialFragmentation;
pub use process_space::{MappingBacking, MemoryMapping, PageTable, ProcessSpace};
pub use statistics::{CountsByOrder, LargePageStatistics};

use crate::address::{BasePageSize, KernelPageOrders};
use crate::error::{ItaniumError, Result};
use crate::mmu::{
    ItaniumCounters, ItaniumProcessorSpec, MADISON, Mmu, RegionRegisters, WalkerMode,
};
use compaction::CompactionDemand;
use frames::{BuddyAllocator, HugePagePool};
use policies::PageSizePolicy;
use reservations::FrameReservations;
use statistics::{MissesByPreventingPage, ReferenceWindow};
use std::collections::{BTreeMap, BTreeSet};

/// What a write does to a large page that several processes share since a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LargePageCopyOnWrite {
    /// The kernel splits it into base pages and copies one.
    Demote,
    /// The kernel copies all of it, if there is contiguous memory.
    CopyLarge,
}

/// Build and boot settings of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSettings {
    /// Its page size.
    pub base: BasePageSize,
    /// Page sizes that it may use (`order_bitmap`).
    pub orders: KernelPageOrders,
    /// Mappings begin at multiples of this (`superpage_vm_align`), rounded up to whole pages. The
    /// thesis names no value. It is 0 here because an alignment of megabytes would spread vortex
    /// over far more than its 25 MiB.
    pub vm_align_bytes: u64,
    /// What happens to shared large pages after a fork.
    pub copy_on_write: LargePageCopyOnWrite,
    /// The machine's memory in bytes.
    pub memory_bytes: u64,
    /// How page sizes are chosen.
    pub policy: PageSizePolicy,
}

impl KernelSettings {
    /// The thesis' machine, with 2 GiB, on a kernel without large pages.
    pub const fn with_base_pages_only(base: BasePageSize) -> Self {
        Self {
            base,
            orders: KernelPageOrders::BASE,
            vm_align_bytes: 0,
            copy_on_write: LargePageCopyOnWrite::Demote,
            memory_bytes: 2 << 30,
            policy: PageSizePolicy::Cover,
        }
    }

    /// The same kernel with every page size that the processor has.
    pub fn with_all_page_sizes(base: BasePageSize) -> Self {
        Self {
            orders: KernelPageOrders::all_processor_orders(base),
            ..Self::with_base_pages_only(base)
        }
    }
}

/// Settings of a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineSettings {
    /// Its processor.
    pub processor: ItaniumProcessorSpec,
    /// The kernel's setting of the hardware walker.
    pub walker: WalkerMode,
    /// Settings of its kernel.
    pub kernel: KernelSettings,
    /// Number of pinned TLB entries beyond the kernel's own, as in the thesis' test with fewer
    /// entries (section 6.3.2).
    pub fake_pinned: u32,
    /// Other memory that fragments free memory. The thesis saw no fragmentation.
    pub fragmentation: Option<InitialFragmentation>,
    /// Page sizes that the program, or its administrator, asks for.
    pub advice: Option<PageSizeAdvice>,
}

impl Default for MachineSettings {
    /// Itanium Linux without large pages: short format, 16 KiB pages.
    fn default() -> Self {
        Self {
            processor: MADISON,
            walker: WalkerMode::ShortFormat,
            kernel: KernelSettings::with_base_pages_only(BasePageSize::Kib16),
            fake_pinned: 0,
            fragmentation: None,
            advice: None,
        }
    }
}

/// A page size that a program, or its administrator, asks for. Policies that choose by themselves
/// ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSizeAdvice {
    /// It applies to mappings of at least this number of bytes.
    pub from_bytes: u64,
    /// Page size in bytes: a power of two, at least the kernel's base page.
    pub page_bytes: u64,
}

/// A machine with one processor: its memory management, its kernel's memory and processes.
#[derive(Clone, Debug)]
pub struct ItaniumMachine {
    setup: MachineSettings,
    mmu: Mmu,
    counters: ItaniumCounters,
    buddy: BuddyAllocator,
    pool: Option<HugePagePool>,
    reservations: FrameReservations,
    /// By process number; `None` for a process that has ended.
    spaces: Vec<Option<ProcessSpace>>,
    /// Further owners of each shared frame, beyond the first one.
    shared: BTreeMap<u32, u32>,
    /// Frames that other memory holds and that cannot be moved.
    held: u32,
    /// Frames that other memory holds and that can be moved.
    movable: BTreeSet<u32>,
    demand: CompactionDemand,
    misses: MissesByPreventingPage,
    window: ReferenceWindow,
    contexts: u32,
    statistics: LargePageStatistics,
}

impl ItaniumMachine {
    /// A machine without processes. The seed determines random choices: those of hardware, and the
    /// place of other memory.
    pub fn new(setup: MachineSettings, seed: u64) -> Result<Self> {
        let kernel = setup.kernel;
        let pinned = setup.walker.pinned_entry_count() + setup.fake_pinned;
        let mmu = Mmu::new(&setup.processor, kernel.base, setup.walker, pinned, seed)?;
        let advised = setup.advice.map_or(kernel.base.bytes(), |it| it.page_bytes);
        ItaniumError::require_setting(
            advised.is_power_of_two() && advised >= kernel.base.bytes(),
            "an advised page size",
            "a power of two, and at least the kernel's page size",
        )?;
        let frames = kernel.memory_bytes >> kernel.base.shift();
        let fits = (1..=1 << 31).contains(&frames);
        ItaniumError::require_setting(fits, "memory", "1 to 2^31 pages")?;
        let rules = kernel.policy;
        rules.check_against_kernel(&kernel)?;
        let pool = rules.pool_settings().map(|pool| HugePagePool::new(pool, frames as u32));
        let pool = pool.transpose()?;
        let rest = pool.as_ref().map_or(frames as u32, |pool| pool.first);
        let mut machine = Self {
            setup,
            mmu,
            counters: ItaniumCounters::default(),
            buddy: BuddyAllocator::new(rest),
            pool,
            reservations: FrameReservations::default(),
            spaces: Vec::new(),
            shared: BTreeMap::new(),
            held: 0,
            movable: BTreeSet::new(),
            demand: CompactionDemand::default(),
            misses: MissesByPreventingPage::default(),
            window: ReferenceWindow::default(),
            contexts: 0,
            statistics: LargePageStatistics::default(),
        };
        if let Some(how) = setup.fragmentation {
            machine.fragment_free_memory(how, seed);
        }
        Ok(machine)
    }

    /// Its settings.
    pub fn settings(&self) -> &MachineSettings {
        &self.setup
    }

    /// Its counters.
    pub fn counters(&self) -> ItaniumCounters {
        self.counters
    }

    /// Its memory management unit.
    pub fn mmu(&self) -> &Mmu {
        &self.mmu
    }

    /// Counts of large pages.
    pub fn large_page_statistics(&self) -> &LargePageStatistics {
        &self.statistics
    }

    /// Number of processes started so far.
    pub fn count_started_processes(&self) -> u32 {
        self.spaces.len() as u32
    }

    /// Memory of a process.
    #[inline]
    pub fn process_space(&self, process: u32) -> Result<&ProcessSpace> {
        let space = self.spaces.get(process as usize).and_then(Option::as_ref);
        space.ok_or(ItaniumError::Process(process))
    }

    fn process_space_mut(&mut self, process: u32) -> Result<&mut ProcessSpace> {
        let space = self.spaces.get_mut(process as usize).and_then(Option::as_mut);
        space.ok_or(ItaniumError::Process(process))
    }

    /// Starts a process with nothing mapped and returns its number.
    pub fn spawn_process(&mut self) -> Result<u32> {
        let registers = self.registers_with_new_region_ids()?;
        self.spaces.push(Some(ProcessSpace::new(self.base_page_size(), registers)));
        Ok(self.count_started_processes() - 1)
    }

    /// Accounts for a program's work without memory references.
    pub fn add_useful_cycles(&mut self, cycles: u64) {
        self.counters.useful_cycles += cycles;
    }

    #[inline]
    fn base_page_size(&self) -> BasePageSize {
        self.setup.kernel.base
    }

    #[inline]
    fn allowed_orders(&self) -> KernelPageOrders {
        self.setup.kernel.orders
    }

    #[inline]
    fn page_size_policy(&self) -> &PageSizePolicy {
        &self.setup.kernel.policy
    }

    fn registers_with_new_region_ids(&mut self) -> Result<RegionRegisters> {
        self.contexts += 1;
        if self.contexts >= RegionRegisters::CONTEXTS {
            return Err(ItaniumError::Contexts);
        }
        let registers = RegionRegisters::from_context(self.contexts);
        Ok(match &self.pool {
            Some(pool) => pool.registers_with_pool_region(registers),
            None => registers,
        })
    }

    fn ensure_leaf_table(&mut self, process: u32, page: u64) -> Result {
        if self.process_space(process)?.table.leaf_frame_of_page(page).is_none() {
            let frame = self.allocate_frames(0).ok_or(ItaniumError::OutOfMemory(process))?;
            self.process_space_mut(process)?.table.add_leaf_of_page(page, frame);
        }
        Ok(())
    }
}
