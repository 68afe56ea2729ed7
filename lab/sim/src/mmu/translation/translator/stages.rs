//! The stages of a batch of pages.

use super::Translator;
use crate::mmu::translation::dense_page_numbers::chunk_of_page;
use crate::mmu::translation::mappings::{AccessBitMask, Mappings, PageGroupState};
use crate::mmu::translation::missed_pages::{
    MissedPage, MixedWalks, UniformKind, UniformWalks, WalkCause, WalkKind, uniform_kind,
};
use crate::mmu::translation::sizes::{EntrySize, LeafSize};
use crate::mmu::translation::table_caches::WalkLoadCounts;
use crate::mmu::translation::translation_counters::TranslationCounters;
use crate::mmu::translation::walker::Walker;

impl Translator {
    /// Takes a batch, the first `pages` of `misses`, through all levels.
    pub(super) fn process_batch(
        &mut self,
        mappings: &mut Mappings,
        pages: usize,
        counters: &mut TranslationCounters,
    ) {
        let orders = mappings.orders;
        let kind = uniform_kind(&self.misses[..pages]);
        let collected = &mut self.misses[..pages];
        let missed = self.first.access_and_retain_l1_misses(collected, kind, mappings.l1_orders);
        counters.l1_misses += missed as u64;
        let kind = kind.or_else(|| uniform_kind(&self.misses[..missed]));
        let (walks, kind) = if self.prefetches {
            self.walks.clear();
            for index in 0..missed {
                let miss = self.misses[index];
                let size = miss.state().entry_size();
                if !self.second.access(miss.page(), size, orders) {
                    self.walks.push(miss);
                }
                if size == EntrySize::Base {
                    self.prefetch_next_page(mappings, miss.page());
                }
            }
            (&self.walks[..], uniform_kind(&self.walks))
        } else {
            let missed =
                self.second.access_and_retain_l2_misses(&mut self.misses[..missed], kind, orders);
            let walks = &self.misses[..missed];
            (walks, kind.or_else(|| uniform_kind(walks)))
        };
        let loads = self.walker.walk_batch(walks, kind, mappings);
        add_load_counts(&self.walker, &loads, counters);
        count_walks_and_mark_pages(walks, kind, mappings, counters);
    }

    /// Takes the first page, which is in a group that the processor does not see as one yet,
    /// through all levels. Its old entry may still be in the TLB; after a walk the processor may
    /// see the group as one.
    pub(super) fn process_uncoalesced_page(
        &mut self,
        mappings: &mut Mappings,
        counters: &mut TranslationCounters,
    ) {
        let (miss, orders, l1_orders) = (self.misses[0], mappings.orders, mappings.l1_orders);
        let page = miss.page();
        let first = self.first.tlb_part_for_size_mut(EntrySize::Base);
        let sizes = [EntrySize::BaseGroup, EntrySize::Base];
        if sizes
            .iter()
            .any(|size| first.access_if_present(l1_orders.entry_number(page, *size), *size))
        {
            return;
        }
        counters.l1_misses += 1;
        let known =
            sizes.into_iter().find(|size| self.second.access_if_present(page, *size, orders));
        let size = known.unwrap_or_else(|| {
            let loads = self.walker.walk_batch(&[miss], uniform_kind(&[miss]), mappings);
            add_load_counts(&self.walker, &loads, counters);
            let mark = mappings.marks[EntrySize::Base as usize];
            counters.first_touches += mappings.mark_pages_accessed([(page, 0, mark)].into_iter());
            let size = if mappings.update_group_if_completed(page) {
                EntrySize::BaseGroup
            } else {
                EntrySize::Base
            };
            counters.walks_by_size[size as usize] += 1;
            self.second.access(page, size, orders);
            size
        });
        first.access(l1_orders.entry_number(page, size), size);
    }

    /// Walks for the page after two misses on neighbours, if it is mapped and not in the TLB.
    fn prefetch_next_page(&mut self, mappings: &Mappings, page: u32) {
        let follows = self.missed_last.wrapping_add(1) == page;
        self.missed_last = page;
        let next = page.wrapping_add(1);
        // Not across a boundary of 1 GiB, where the next piece may belong elsewhere.
        let chunk = chunk_of_page(page);
        if !follows || chunk_of_page(page.wrapping_sub(1)) != chunk || chunk_of_page(next) != chunk
        {
            return;
        }
        let state = mappings.region_state(next);
        let mapped = match state.size() {
            None => false,
            Some(LeafSize::Base) => mappings.page_permissions(next).0,
            Some(_) => true,
        };
        let alone = !state.has_some_groups()
            || state.host() == EntrySize::Base
            || mappings.page_group_state(next) == PageGroupState::None;
        let orders = mappings.orders;
        if mapped
            && alone
            && state.entry_size() == EntrySize::Base
            && !self.second.access(next, EntrySize::Base, orders)
        {
            self.walks.push(MissedPage::new(next, state, WalkCause::Prefetch));
        }
    }
}

fn add_load_counts(walker: &Walker, loads: &WalkLoadCounts, counters: &mut TranslationCounters) {
    counters.load_walk_cycles += walker.sum_load_cycles(&loads[WalkCause::Load as usize]);
    counters.store_walk_cycles += walker.sum_load_cycles(&loads[WalkCause::Store as usize]);
    for (level, count) in counters.walk_loads.iter_mut().enumerate() {
        *count += loads.iter().map(|of_cause| of_cause[level]).sum::<u64>();
    }
}

fn count_walks_and_mark_pages(
    walks: &[MissedPage],
    kind: UniformKind,
    mappings: &mut Mappings,
    counters: &mut TranslationCounters,
) {
    match kind {
        Some((state, cause)) if cause != WalkCause::Prefetch => {
            counters.walks_by_size[state.entry_size() as usize] += walks.len() as u64;
            let (mark, single) =
                (mappings.marks[state.own_entry_size() as usize], |_| AccessBitMask::SINGLE);
            counters.first_touches += match state.own_entry_size() {
                EntrySize::Base => {
                    mark_batch_accessed(&UniformWalks::<0>(cause), walks, mappings, single)
                }
                EntrySize::Huge => {
                    mark_batch_accessed(&UniformWalks::<1>(cause), walks, mappings, single)
                }
                EntrySize::Giant => {
                    mark_batch_accessed(&UniformWalks::<2>(cause), walks, mappings, single)
                }
                EntrySize::BaseGroup => {
                    mark_batch_accessed(&UniformWalks::<0>(cause), walks, mappings, |_| mark)
                }
                EntrySize::HugeGroup => {
                    mark_batch_accessed(&UniformWalks::<1>(cause), walks, mappings, |_| mark)
                }
            };
        }
        _ => {
            for walk in walks {
                if walk.cause() == WalkCause::Prefetch {
                    counters.prefetches += 1;
                } else {
                    counters.walks_by_size[walk.state().entry_size() as usize] += 1;
                }
            }
            let marks = mappings.marks;
            let mark = |walk: MissedPage| marks[walk.state().own_entry_size() as usize];
            counters.first_touches += mark_batch_accessed(&MixedWalks, walks, mappings, mark);
        }
    }
}

#[inline(never)]
fn mark_batch_accessed(
    kind: &impl WalkKind,
    walks: &[MissedPage],
    mappings: &mut Mappings,
    mark: impl Fn(MissedPage) -> AccessBitMask,
) -> u64 {
    let made = walks.iter().filter(|walk| kind.cause(**walk) != WalkCause::Prefetch);
    mappings.mark_pages_accessed(made.map(|walk| (walk.page(), kind.leaf(*walk), mark(*walk))))
}
