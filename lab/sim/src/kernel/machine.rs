//! The kernel's state, and address spaces as they come and go.

use super::cache::PageCache;
use super::compacting::Deferral;
use super::costs::times;
use super::fault_policies::FaultPolicy;
use super::frontier::Frontier;
use super::hosted::Hosted;
use super::payer::{KernelThread, Paid, Payer};
use super::recency::Recency;
use super::remapped::Remapped;
use super::reservations::Reservations;
use super::space::{AddressSpace, pages_of};
use super::swap::{Swap, SwapSpec};
use super::threads::Threads;
use super::{HugeAdvice, KernelCosts, KernelError, SpaceId};
use crate::memory::{PhysicalMemory, ZoneWatermarks};
use hawkeye_policy::HUGE_PAGE_BYTES;
use std::collections::BTreeMap;
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
    pub(crate) memory: PhysicalMemory,
    pub(crate) costs: KernelCosts,
    pub(crate) faults: Arc<dyn FaultPolicy>,
    pub(crate) watermarks: ZoneWatermarks,
    pub(crate) spaces: BTreeMap<SpaceId, AddressSpace>,
    /// Living members of each family, by the family's number.
    pub(crate) families: Vec<Vec<SpaceId>>,
    pub(crate) created: u32,
    pub(crate) cache: PageCache,
    pub(crate) swap: Swap,
    pub(crate) recency: Recency,
    pub(crate) reservations: Reservations,
    pub(crate) deferral: Deferral,
    pub(crate) threads: Threads,
    pub(crate) frontier: Frontier,
    pub(crate) hosted: Hosted,
    pub(crate) remapped: Remapped,
    pub(crate) by_thread: BTreeMap<KernelThread, Duration>,
    pub(crate) by_manager: Duration,
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
            watermarks: ZoneWatermarks::of(memory.frames()),
            memory,
            costs: spec.costs,
            faults: spec.faults,
            spaces: BTreeMap::new(),
            families: Vec::new(),
            created: 0,
            cache: PageCache::default(),
            swap: Swap::new(spec.swap),
            recency: Recency::default(),
            reservations: Reservations::default(),
            deferral: Deferral::default(),
            threads: Threads::default(),
            frontier: Frontier::default(),
            hosted: Hosted::default(),
            remapped: Remapped::default(),
            by_thread: BTreeMap::new(),
            by_manager: Duration::ZERO,
        })
    }

    /// A new, empty address space.
    pub fn create_space(&mut self) -> SpaceId {
        let family = self.families.len() as u32;
        self.families.push(Vec::new());
        self.add_space(family)
    }

    pub(crate) fn add_space(&mut self, family: u32) -> SpaceId {
        let id = SpaceId(self.created);
        self.created += 1;
        self.spaces.insert(id, AddressSpace::new(id, family));
        if let Some(members) = self.families.get_mut(family as usize) {
            members.push(id);
        }
        id
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
        if let Some(gone) = self.spaces.remove(&space) {
            if let Some(members) = self.families.get_mut(gone.family as usize) {
                members.retain(|member| *member != space);
            }
        }
        self.frontier.forget(space);
        self.debug_check();
        Ok(paid)
    }

    /// Whose family a space is of, and whether it has living relatives.
    pub(crate) fn has_relatives(&self, family: u32) -> bool {
        let members = self.families.get(family as usize);
        members.is_some_and(|members| members.len() > 1)
    }

    pub(crate) fn space(&self, space: SpaceId) -> Result<&AddressSpace, KernelError> {
        self.spaces.get(&space).ok_or(KernelError::Space(space))
    }

    pub(crate) fn space_mut(&mut self, space: SpaceId) -> Result<&mut AddressSpace, KernelError> {
        self.spaces.get_mut(&space).ok_or(KernelError::Space(space))
    }

    /// Charges time to somebody.
    pub(crate) fn pay(&mut self, by: Payer, time: Duration) -> Paid {
        match by {
            Payer::Program(space) => {
                if let Some(space) = self.spaces.get_mut(&space) {
                    space.charged += time;
                }
            }
            Payer::Kernel(thread) => *self.by_thread.entry(thread).or_default() += time,
            Payer::Manager => self.by_manager += time,
        }
        Paid { by, time }
    }

    /// Time to free these.
    pub(crate) fn freeing_time(&self, base_pages: u64, huge_pages: u64) -> Duration {
        times(base_pages, self.costs.free_base_ns) + times(huge_pages, self.costs.free_huge_ns)
    }
}
