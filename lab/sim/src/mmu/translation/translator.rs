//! A core that translates addresses.
//!
//! A later stage never changes what an earlier one decides. The accesses alone determine which
//! pages the first TLB level misses; those alone determine which the second misses, and so on. So a
//! batch goes through one stage after the other. Each stage has its tables in the cache and
//! predictable branches, and the result equals that of access by access.

mod batch_entry;
mod stages;

use super::access::Access;
use super::batch_result::BatchResult;
use super::mappings::Mappings;
use super::missed_pages::{BATCH, LastEntryWindow, MAX_WALKS, MissedPage};
use super::sizes::{EntryOrders, EntrySize};
use super::tlb_levels::{FirstLevelTlb, SecondLevelTlb, entry_overlaps};
use super::translation_counters::TranslationCounters;
use super::translator_spec::{ProgramWork, TranslatorSpec};
use super::walker::Walker;
use crate::mmu::{L1TlbSpec, MmuError, SetShape};
use std::ops::Range;

/// One core: its TLBs, its walker and its counters.
#[derive(Clone, Debug)]
pub struct Translator {
    first: FirstLevelTlb,
    second: SecondLevelTlb,
    walker: Walker,
    l2_hit_cycles: u64,
    prefetches: bool,
    missed_last: u32,
    /// Pages of the current batch, with spare room; after a level those that it missed.
    misses: Vec<MissedPage>,
    /// Pages that the second level missed, if there are prefetches.
    walks: Vec<MissedPage>,
    counters: TranslationCounters,
}

impl Translator {
    /// A core with empty TLBs and caches.
    ///
    /// # Errors
    /// A processor that can't be built, a share of page tables that is not 1-100 %, or a TLB with
    /// two sets: see [`MmuError`].
    pub fn new(spec: &TranslatorSpec) -> Result<Self, MmuError> {
        let processor = &spec.processor;
        processor.check()?;
        let refuse =
            |part, allowed| MmuError::Processor { processor: processor.name, part, allowed };
        if !(1..=100).contains(&spec.page_table_share_percent) {
            return Err(refuse("the share of page tables in its caches", "1 to 100 %"));
        }
        let base = match processor.l1_tlb {
            L1TlbSpec::Split { base, .. } => base,
            L1TlbSpec::Shared(shape) => shape,
        };
        // The set must give the bits that a tag has no room for.
        let few_sets = |shape: SetShape| shape.sets().unwrap_or(0) < 4;
        let small = |shape: SetShape| {
            few_sets(shape) && (shape.entries != shape.ways || !(17..=255).contains(&shape.ways))
        };
        if [base, processor.l2_tlb.shape].into_iter().any(small) {
            return Err(refuse("each TLB", "of 4 or more sets, or of 1 with 17 to 255 entries"));
        }
        Ok(Self {
            first: FirstLevelTlb::new(processor.l1_tlb),
            second: SecondLevelTlb::new(processor.l2_tlb),
            walker: Walker::new(spec),
            l2_hit_cycles: u64::from(processor.l2_tlb.hit_cycles),
            prefetches: spec.next_page_prefetch,
            missed_last: u32::MAX,
            misses: vec![MissedPage::NONE; BATCH],
            walks: Vec::with_capacity(MAX_WALKS),
            counters: TranslationCounters::default(),
        })
    }

    /// Makes accesses, up to the first that faults.
    pub fn translate(
        &mut self,
        mappings: &mut Mappings,
        accesses: &[Access],
        work: ProgramWork,
    ) -> BatchResult {
        let mut counters = self.counters;
        let mut window = LastEntryWindow::NONE;
        let (mut done, mut fault) = (0, None);
        while done < accesses.len() && fault.is_none() {
            let collected = self.collect_batch(mappings, &accesses[done..], &mut window);
            if collected.incomplete_group {
                self.process_uncoalesced_page(mappings, &mut counters);
            } else {
                self.process_batch(mappings, collected.pages, &mut counters);
            }
            (done, fault) = (done + collected.accesses, collected.fault);
        }
        counters.accesses += done as u64;
        self.add_batch_counts(counters, work);
        BatchResult { accesses: done, fault }
    }

    /// Counts so far.
    pub fn counters(&self) -> TranslationCounters {
        self.counters
    }

    /// Drops the pages that have bytes at these addresses, and all upper entries, as a shoot-down
    /// does (Intel SDM, volume 3A, 4.10.4.1: INVLPG "invalidates all entries in all
    /// paging-structure caches"). It takes a pass over the simulated TLBs: pass ranges, not pages.
    pub fn invalidate(&mut self, mappings: &Mappings, addresses: Range<u64>) {
        let keep = |orders: EntryOrders| {
            let (places, addresses) = (&mappings.places[..], &addresses);
            move |number: u32, size: EntrySize| {
                !entry_overlaps(places, orders, (number, size), addresses)
            }
        };
        self.first.retain(keep(mappings.l1_orders));
        self.second.retain(keep(mappings.orders));
        self.walker.clear();
    }

    /// Drops all pages and upper entries, but no host translations.
    pub fn invalidate_all(&mut self) {
        self.first.retain(|_, _| false);
        self.second.retain(|_, _| false);
        self.walker.clear();
    }

    /// Drops everything, host translations too (INVEPT): the host changed its mapping.
    pub fn invalidate_all_and_host(&mut self) {
        self.invalidate_all();
        self.walker.clear_host();
    }

    fn add_batch_counts(&mut self, mut after: TranslationCounters, work: ProgramWork) {
        let batch = after.since(&self.counters);
        let translating = batch.walk_cycles() + batch.l2_hits() * self.l2_hit_cycles;
        after.millicycles += batch.accesses * u64::from(work.millicycles_per_access)
            + translating * u64::from(work.waited_permille);
        self.counters = after;
    }
}
