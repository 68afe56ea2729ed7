//! A core that translates addresses.
//!
//! Nothing that a later stage does changes what an earlier one decides: which pages the first TLB level
//! misses depends on the accesses alone, which of those the second misses on the former, and so on. So
//! a batch goes through one stage after the other, each with its tables hot and its branches foreseen,
//! and the result is that of access by access.

use super::access::{Access, STORE, Sweep};
use super::counters::TranslationCounters;
use super::lines::Cause;
use super::mappings::{Mappings, SpaceId};
use super::miss::{BATCH, Miss, Window};
use super::place::{chunk_of, page_number};
use super::spec::{TranslatorSpec, Work};
use super::state::{LeafSize, RegionState};
use super::tlb::{FirstLevel, SecondLevel, is_in};
use super::walker::Walker;
use crate::mmu::{L1Tlb, MmuError, Shape};
use std::ops::Range;

/// Why an access could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No page is mapped there.
    Unmapped(Access),
    /// A store to a page that can only be loaded from.
    Protected(Access),
}

/// How far a batch got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Accesses made, from the first on. The next one faulted, if there is a fault.
    pub accesses: usize,
    /// What stopped it. Accesses go on from there once it is resolved.
    pub fault: Option<Fault>,
}

/// How far sweeps got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Sweeps made as a whole, from the first on.
    pub sweeps: usize,
    /// Accesses made of the next one.
    pub of_next: u64,
    /// What stopped it.
    pub fault: Option<Fault>,
}

/// One core: its TLBs, its walker and its counters for each address space.
#[derive(Clone, Debug)]
pub struct Translator {
    first: FirstLevel,
    second: SecondLevel,
    walker: Walker,
    l2_hit_cycles: u64,
    prefetches: bool,
    /// The base page that the first level missed last.
    missed_last: u32,
    /// Pages of the batch under way; then what the first level missed of them.
    misses: Vec<Miss>,
    /// What the second level missed of that.
    walks: Vec<Miss>,
    counters: Vec<TranslationCounters>,
}

impl Translator {
    /// A core that knows nothing yet.
    ///
    /// # Errors
    ///
    /// A processor that can't be built, a share of page tables that is not 1-100 %, or a TLB with two sets:
    /// see [`MmuError`].
    pub fn new(spec: &TranslatorSpec) -> Result<Self, MmuError> {
        let processor = &spec.processor;
        processor.check()?;
        let refuse = |part, allowed| MmuError::Processor {
            processor: processor.name,
            part,
            allowed,
        };
        if !(1..=100).contains(&spec.page_table_share_percent) {
            return Err(refuse(
                "the share of page tables in its caches",
                "1 to 100 %",
            ));
        }
        let base = match processor.l1_tlb {
            L1Tlb::Split { base, .. } => base,
            L1Tlb::Shared(shape) => shape,
        };
        // What a tag has no room for, a set must tell.
        let few_sets = |shape: Shape| shape.sets().unwrap_or(0) < 4;
        let small = |shape: Shape| {
            few_sets(shape) && (shape.entries != shape.ways || !(17..=255).contains(&shape.ways))
        };
        if [base, processor.l2_tlb.shape].into_iter().any(small) {
            return Err(refuse(
                "each TLB",
                "of 4 or more sets, or of 1 with 17 to 255 entries",
            ));
        }
        Ok(Self {
            first: FirstLevel::new(processor.l1_tlb),
            second: SecondLevel::new(processor.l2_tlb),
            walker: Walker::new(spec),
            l2_hit_cycles: u64::from(processor.l2_tlb.hit_cycles),
            prefetches: spec.next_page_prefetch,
            missed_last: u32::MAX,
            misses: Vec::with_capacity(BATCH),
            walks: Vec::with_capacity(2 * BATCH),
            counters: Vec::new(),
        })
    }

    /// Makes accesses in an address space, up to the first that faults.
    pub fn translate(
        &mut self,
        mappings: &mut Mappings,
        space: SpaceId,
        accesses: &[Access],
        work: Work,
    ) -> Done {
        let before = self.counters(space);
        let mut counters = before;
        let mut window = Window::NONE;
        let mut fault = None;
        let mut done = accesses.len();
        for (index, access) in accesses.iter().enumerate() {
            if window.holds(*access) {
                continue;
            }
            if self.misses.len() == BATCH {
                self.settle(mappings, &mut counters);
            }
            match self.enter(mappings, space, *access) {
                Ok(entered) => window = entered,
                Err(why) => {
                    (fault, done) = (Some(why), index);
                    break;
                }
            }
        }
        self.settle(mappings, &mut counters);
        counters.accesses += done as u64;
        self.count(space, before, counters, work);
        Done {
            accesses: done,
            fault,
        }
    }

    /// Makes the accesses of sweeps, one sweep after the other, up to the first access that faults: exactly
    /// what [`translate`](Self::translate) does with each of them, but those that stay on a page take no
    /// time. Goes on from `from` in the first of them.
    pub fn sweep(
        &mut self,
        mappings: &mut Mappings,
        space: SpaceId,
        sweeps: &[Sweep],
        from: u64,
        work: Work,
    ) -> Swept {
        let before = self.counters(space);
        let mut counters = before;
        let mut window = Window::NONE;
        let mut swept = Swept {
            sweeps: 0,
            of_next: from,
            fault: None,
        };
        'sweeps: for sweep in sweeps {
            while swept.of_next < sweep.count {
                let access = sweep.access(swept.of_next);
                if !window.holds(access) {
                    if self.misses.len() == BATCH {
                        self.settle(mappings, &mut counters);
                    }
                    match self.enter(mappings, space, access) {
                        Ok(entered) => window = entered,
                        Err(why) => {
                            swept.fault = Some(why);
                            break 'sweeps;
                        }
                    }
                }
                let address = access.address();
                let end = (address & !(window.bytes - 1)) + window.bytes;
                let here = sweep.before(address, end).min(sweep.count - swept.of_next);
                swept.of_next += here;
                counters.accesses += here;
            }
            swept.sweeps += 1;
            swept.of_next = 0;
        }
        self.settle(mappings, &mut counters);
        self.count(space, before, counters, work);
        swept
    }

    /// What was counted in an address space; nothing of one that was never seen.
    pub fn counters(&self, space: SpaceId) -> TranslationCounters {
        let counters = self.counters.get(usize::from(space.0));
        counters.copied().unwrap_or_default()
    }

    /// Adds cycles to an address space in which it did something else than access memory: page faults,
    /// calls of the kernel, work between batches.
    pub fn add_cycles(&mut self, space: SpaceId, cycles: u64) {
        let mut counters = self.counters(space);
        counters.millicycles += cycles * 1000;
        self.set_counters(space, counters);
    }

    /// Forgets the pages that have bytes at these addresses, and all upper entries, as a shoot-down does
    /// (Intel SDM, volume 3A, 4.10.4.1: INVLPG "invalidates all entries in all paging-structure caches").
    /// It costs the host a pass over the TLBs: name ranges, not pages.
    pub fn invalidate(&mut self, mappings: &Mappings, space: SpaceId, addresses: Range<u64>) {
        let places = mappings.places();
        let keep =
            |number: u32, size: LeafSize| !is_in(places, (number, size), space.0, &addresses);
        self.first.retain(keep);
        self.second.retain(keep);
        self.walker.clear();
    }

    /// Forgets all pages of an address space and its counters: it ended.
    pub fn invalidate_space(&mut self, mappings: &Mappings, space: SpaceId) {
        self.invalidate(mappings, space, 0..u64::MAX);
        if let Some(counters) = self.counters.get_mut(usize::from(space.0)) {
            *counters = TranslationCounters::default();
        }
    }

    /// Forgets all pages and upper entries of all address spaces, but nothing of the host's.
    pub fn invalidate_all(&mut self) {
        self.first.retain(|_, _| false);
        self.second.retain(|_, _| false);
        self.walker.clear();
    }

    /// Forgets everything, the host's translations too: the host changed what maps the guest's memory
    /// (INVEPT).
    pub fn invalidate_host(&mut self) {
        self.invalidate_all();
        self.walker.clear_host();
    }

    /// Finds the page of an access, which is to be looked up in the first level.
    #[inline(always)]
    fn enter(
        &mut self,
        mappings: &Mappings,
        space: SpaceId,
        access: Access,
    ) -> Result<Window, Fault> {
        let address = access.address();
        let chunk = mappings.chunk_in(mappings.blocks(space), address);
        let page = page_number(chunk, address);
        let state = mappings.state(page);
        let writable = state.is_whole() || check(mappings, page, state, access)?;
        let size = state.entry();
        let cause = if access.is_store() {
            Cause::Store
        } else {
            Cause::Load
        };
        self.misses.push(Miss::new(page, state, cause));
        let mask = !(size.bytes() - 1);
        Ok(Window {
            mask: if writable { mask & !STORE } else { mask },
            base: address & mask,
            bytes: size.bytes(),
        })
    }

    /// Takes the pages of a batch through all levels.
    fn settle(&mut self, mappings: &mut Mappings, counters: &mut TranslationCounters) {
        self.first.filter(&mut self.misses);
        counters.l1_misses += self.misses.len() as u64;
        if self.prefetches {
            for index in 0..self.misses.len() {
                let miss = self.misses[index];
                let size = miss.state().entry();
                if !self.second.access(miss.page(), size) {
                    self.walks.push(miss);
                }
                if size == LeafSize::Base {
                    self.prefetch(mappings, miss.page());
                }
            }
        } else {
            self.second.filter(&mut self.misses);
            std::mem::swap(&mut self.misses, &mut self.walks);
        }
        self.misses.clear();
        for miss in &self.walks {
            let (page, state) = (miss.page(), miss.state());
            let place = &mappings.places()[chunk_of(page)];
            self.walker.walk(page, state, place, miss.cause());
        }
        let loads = self.walker.finish();
        // Read some at a time, before the first store: see `touch_each`.
        let mut sizes = [0; 3];
        let mut groups = self.walks.chunks_exact(GROUP);
        for group in &mut groups {
            let group: [Miss; GROUP] = std::array::from_fn(|index| group[index]);
            for miss in group {
                count_walk(mappings, miss, counters, &mut sizes);
            }
        }
        for miss in groups.remainder() {
            count_walk(mappings, *miss, counters, &mut sizes);
        }
        for (count, walks) in counters.walks_by_size.iter_mut().zip(sizes) {
            *count += walks;
        }
        self.walks.clear();
        counters.load_walk_cycles += self.walker.cycles(&loads[Cause::Load as usize]);
        counters.store_walk_cycles += self.walker.cycles(&loads[Cause::Store as usize]);
        for (level, count) in counters.walk_loads.iter_mut().enumerate() {
            *count += loads.iter().map(|of_cause| of_cause[level]).sum::<u64>();
        }
    }

    /// Walks for the page after two misses in a row, if it is mapped and not known.
    fn prefetch(&mut self, mappings: &Mappings, page: u32) {
        let follows = self.missed_last.wrapping_add(1) == page;
        self.missed_last = page;
        let next = page.wrapping_add(1);
        // Not from or into another GiB, which may be of somebody else.
        let chunk = chunk_of(page);
        if !follows || chunk_of(page.wrapping_sub(1)) != chunk || chunk_of(next) != chunk {
            return;
        }
        let state = mappings.state(next);
        let mapped = match state.size() {
            None => false,
            Some(LeafSize::Base) => mappings.page(next).0,
            Some(_) => true,
        };
        if mapped && state.entry() == LeafSize::Base && !self.second.access(next, LeafSize::Base) {
            self.walks.push(Miss::new(next, state, Cause::Prefetch));
        }
    }

    /// Adds what a batch took to the counters of its address space.
    fn count(
        &mut self,
        space: SpaceId,
        before: TranslationCounters,
        mut after: TranslationCounters,
        work: Work,
    ) {
        let batch = after.since(&before);
        let translating = batch.walk_cycles() + batch.l2_hits() * self.l2_hit_cycles;
        after.millicycles += batch.accesses * u64::from(work.millicycles_per_access)
            + translating * u64::from(work.waited_permille);
        self.set_counters(space, after);
    }

    fn set_counters(&mut self, space: SpaceId, counters: TranslationCounters) {
        let index = usize::from(space.0);
        if self.counters.len() <= index {
            self.counters
                .resize(index + 1, TranslationCounters::default());
        }
        self.counters[index] = counters;
    }
}

/// Walks that are read at a time.
const GROUP: usize = 4;

/// Counts a walk, and sets its access bit.
#[inline(always)]
fn count_walk(
    mappings: &mut Mappings,
    miss: Miss,
    counters: &mut TranslationCounters,
    sizes: &mut [u64; 3],
) {
    if miss.cause() == Cause::Prefetch {
        counters.prefetches += 1;
        return;
    }
    let state = miss.state();
    // Not by index: a store whose place depends on what was loaded holds up the loads after it.
    sizes[0] += u64::from(state.entry() == LeafSize::Base);
    sizes[1] += u64::from(state.entry() == LeafSize::Huge);
    sizes[2] += u64::from(state.entry() == LeafSize::Giant);
    let was_clear = mappings.mark(miss.page(), state.leaf());
    counters.first_touches += u64::from(was_clear);
}

/// Whether a page can be stored to, where not all of its region can; or why the access faults.
#[cold]
fn check(
    mappings: &Mappings,
    page: u32,
    state: RegionState,
    access: Access,
) -> Result<bool, Fault> {
    let (present, writable) = match state.size() {
        None => (false, false),
        Some(LeafSize::Base) => mappings.page(page),
        Some(_) => (true, false),
    };
    if !present {
        return Err(Fault::Unmapped(access));
    }
    if access.is_store() && !writable {
        return Err(Fault::Protected(access));
    }
    Ok(writable)
}
