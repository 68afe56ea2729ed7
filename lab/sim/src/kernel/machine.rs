//! The kernel's state, and address spaces as they come and go.

use super::cache::PageCache;
use super::compacting::Deferral;
use super::costs::times;
use super::fault_policies::FaultPolicy;
use super::frontier::Frontier;
use super::hosted::Hosted;
use super::payer::{Accounts, Paid, Payer};
use super::recency::Recency;
use super::remapped::Remapped;
use super::reservations::Reservations;
use super::space::{AddressSpace, pages_of};
use super::spaces::Spaces;
use super::swap::{Swap, SwapSpec};
use super::threads::Threads;
use super::{HugeAdvice, KernelCosts, KernelError, SpaceId};
use crate::memory::{PhysicalMemory, ZoneWatermarks};
use hawkeye_policy::HUGE_PAGE_BYTES;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// A machine with a kernel.
#[derive(Clone, Debug)]
pub struct KernelSpec {
    /// Its memory, in bytes (2 MiB to 1 TiB).
    pub memory_bytes: u64,
    /// What it does at page faults.
    pub faults: Arc<dyn FaultPolicy>,
    /// What things cost on it.
    pub costs: KernelCosts,
    /// Where pages are swapped to; `None`: nowhere.
    pub swap: Option<SwapSpec>,
}

/// Largest memory, in bytes: frames are numbered by 32 bits, and this is far under that.
const MOST_BYTES: u64 = 1 << 40;

/// A kernel at work. See the module.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub(super) memory: PhysicalMemory,
    pub(super) costs: KernelCosts,
    pub(super) faults: Arc<dyn FaultPolicy>,
    pub(super) spaces: Spaces,
    pub(super) reclaim_state: ReclaimState,
    pub(super) huge_frames: HugeFrames,
    pub(super) threads: Threads,
    pub(super) reports: Reports,
    pub(super) accounts: Accounts,
}

/// What can be taken back when memory runs short, in which order, and how short is short.
#[derive(Clone, Debug)]
pub(super) struct ReclaimState {
    pub(super) watermarks: ZoneWatermarks,
    pub(super) cache: PageCache,
    pub(super) recency: Recency,
    pub(super) swap: Swap,
}

/// Memory that is kept or made contiguous for huge pages.
#[derive(Clone, Debug, Default)]
pub(super) struct HugeFrames {
    pub(super) reservations: Reservations,
    pub(super) deferral: Deferral,
}

/// What the kernel tells the machine around it: the engine, and the host of a virtual machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Reports {
    pub(super) frontier: Frontier,
    pub(super) remapped: Remapped,
    pub(super) hosted: Hosted,
}

impl Kernel {
    /// A machine after boot: no address spaces, all memory free and not known to be zero.
    ///
    /// # Errors
    /// Memory outside of 2 MiB to 1 TiB.
    pub fn new(spec: KernelSpec) -> Result<Self, KernelError> {
        if !(HUGE_PAGE_BYTES..=MOST_BYTES).contains(&spec.memory_bytes) {
            return Err(KernelError::Spec {
                what: "memory",
                allowed: "2 MiB to 1 TiB",
            });
        }
        let memory = PhysicalMemory::new(spec.memory_bytes);
        Ok(Self {
            reclaim_state: ReclaimState {
                watermarks: ZoneWatermarks::of(memory.frames()),
                cache: PageCache::default(),
                recency: Recency::default(),
                swap: Swap::new(spec.swap),
            },
            memory,
            costs: spec.costs,
            faults: spec.faults,
            spaces: Spaces::default(),
            huge_frames: HugeFrames::default(),
            threads: Threads::default(),
            reports: Reports::default(),
            accounts: Accounts::default(),
        })
    }

    /// A new, empty address space.
    pub fn create_space(&mut self) -> SpaceId {
        self.spaces.create()
    }

    /// Maps private anonymous memory. It takes no time worth counting, and no memory.
    ///
    /// # Errors
    /// No whole pages, or something mapped there already.
    pub fn map(
        &mut self,
        space: SpaceId,
        bytes: Range<u64>,
        advice: HugeAdvice,
    ) -> Result<(), KernelError> {
        let pages = pages_of(&bytes)?;
        let mapped = self.space_mut(space)?.map(pages, advice);
        mapped.then_some(()).ok_or(KernelError::Occupied {
            space,
            start: bytes.start,
            end: bytes.end,
        })
    }

    /// Sets what is said about huge pages (`MADV_HUGEPAGE`, `MADV_NOHUGEPAGE`) for faults to come.
    ///
    /// # Errors
    /// No whole pages.
    pub fn advise(
        &mut self,
        space: SpaceId,
        bytes: Range<u64>,
        advice: HugeAdvice,
    ) -> Result<(), KernelError> {
        let pages = pages_of(&bytes)?;
        self.space_mut(space)?.advise(&pages, advice);
        Ok(())
    }

    /// The end of an address space: everything is freed, which its program waits for.
    ///
    /// # Errors
    /// No such address space.
    pub fn exit(&mut self, space: SpaceId) -> Result<Paid, KernelError> {
        let mapped = self.space(space)?.mappings.iter();
        let mapped: Vec<Range<u64>> = mapped.map(|(start, m)| *start..m.end).collect();
        let mut time = Duration::ZERO;
        for pages in mapped {
            time += self.unmap_pages(space, pages)?;
        }
        let paid = self.pay(Payer::Program(space), time);
        self.spaces.remove(space);
        self.reports.frontier.forget(space);
        self.debug_check();
        Ok(paid)
    }

    pub(crate) fn space(&self, space: SpaceId) -> Result<&AddressSpace, KernelError> {
        self.spaces.get(space).ok_or(KernelError::Space(space))
    }

    pub(crate) fn space_mut(&mut self, space: SpaceId) -> Result<&mut AddressSpace, KernelError> {
        self.spaces.get_mut(space).ok_or(KernelError::Space(space))
    }

    /// Charges time to somebody.
    pub(crate) fn pay(&mut self, by: Payer, time: Duration) -> Paid {
        match by {
            Payer::Program(space) => {
                if let Some(space) = self.spaces.get_mut(space) {
                    space.charged += time;
                }
            }
            Payer::Kernel(thread) => self.accounts.charge_thread(thread, time),
            Payer::Manager => self.accounts.charge_manager(time),
        }
        Paid { by, time }
    }

    /// What it does at page faults.
    pub(crate) fn fault_policy(&self) -> &dyn FaultPolicy {
        self.faults.as_ref()
    }

    /// Time to free these.
    pub(crate) fn freeing_time(&self, base_pages: u64, huge_pages: u64) -> Duration {
        times(base_pages, self.costs.free_base_ns) + times(huge_pages, self.costs.free_huge_ns)
    }
}
