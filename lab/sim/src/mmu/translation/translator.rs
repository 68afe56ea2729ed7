//! A core that translates addresses.
//!
//! Nothing that a later stage does changes what an earlier one decides: which pages the first TLB level
//! misses depends on the accesses alone, which of those the second misses on the former, and so on. So
//! a batch goes through one stage after the other, each with its tables hot and its branches foreseen,
//! and the result is that of access by access.

mod entering;
mod stages;

use super::access::{Access, Sweep};
use super::counters::TranslationCounters;
use super::mappings::Mappings;
use super::miss::{BATCH, MAX_WALKS, Miss, Window};
use super::outcome::{Done, Swept};
use super::sizes::{EntrySize, Orders};
use super::space_id::SpaceId;
use super::spec::{TranslatorSpec, Work};
use super::tlb::{FirstLevel, SecondLevel, is_in};
use super::walker::Walker;
use crate::mmu::{L1Tlb, MmuError, Shape};
use entering::find;
use std::ops::Range;

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
    /// Pages of the batch under way, and room for more; then what the first level missed of them, and so on.
    misses: Vec<Miss>,
    /// What the second level missed, where others are walked for beforehand.
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
            misses: vec![Miss::NONE; BATCH],
            walks: Vec::with_capacity(MAX_WALKS),
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
        let (mut done, mut fault) = (0, None);
        while done < accesses.len() && fault.is_none() {
            let entered = self.enter(mappings, space, &accesses[done..], &mut window);
            if entered.seeming {
                self.settle_seeming(mappings, &mut counters);
            } else {
                self.settle(mappings, entered.pages, &mut counters);
            }
            (done, fault) = (done + entered.accesses, entered.fault);
        }
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
        let mut pages = 0;
        'sweeps: for sweep in sweeps {
            while swept.of_next < sweep.count {
                let access = sweep.access(swept.of_next);
                if !window.holds(access) {
                    if pages == BATCH {
                        self.settle(mappings, pages, &mut counters);
                        pages = 0;
                    }
                    let found = match find(mappings, mappings.blocks(space), access) {
                        Ok(found) => found,
                        Err(why) => {
                            swept.fault = Some(why);
                            break 'sweeps;
                        }
                    };
                    (self.misses[pages], window) = (found.miss, found.window);
                    pages += 1;
                    if found.seeming {
                        self.settle(mappings, pages - 1, &mut counters);
                        self.misses[0] = found.miss;
                        self.settle_seeming(mappings, &mut counters);
                        pages = 0;
                    }
                }
                let here = sweep.before(access.address(), window.end(access));
                let here = here.min(sweep.count - swept.of_next);
                swept.of_next += here;
                counters.accesses += here;
            }
            swept.sweeps += 1;
            swept.of_next = 0;
        }
        self.settle(mappings, pages, &mut counters);
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
        let keep = |orders: Orders| {
            let (places, addresses) = (mappings.places(), &addresses);
            move |number: u32, size: EntrySize| {
                !is_in(places, orders, (number, size), space.0, addresses)
            }
        };
        self.first.retain(keep(mappings.l1_orders()));
        self.second.retain(keep(mappings.orders()));
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
