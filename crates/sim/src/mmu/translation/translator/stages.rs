//! What becomes of a batch of pages, stage by stage.

use super::Translator;
use crate::mmu::translation::counters::TranslationCounters;
use crate::mmu::translation::lines::Cause;
use crate::mmu::translation::mappings::Mappings;
use crate::mmu::translation::miss::{Each, Kind, Miss, Own, one_kind};
use crate::mmu::translation::place::chunk_of;
use crate::mmu::translation::state::LeafSize;

impl Translator {
    /// Takes the pages of a batch, the first ones of what is held, through all levels.
    pub(super) fn settle(
        &mut self,
        mappings: &mut Mappings,
        pages: usize,
        counters: &mut TranslationCounters,
    ) {
        let missed = self.first.filter(&mut self.misses[..pages]);
        counters.l1_misses += missed as u64;
        let walks = if self.prefetches {
            self.walks.clear();
            for index in 0..missed {
                let miss = self.misses[index];
                let size = miss.state().entry();
                if !self.second.access(miss.page(), size) {
                    self.walks.push(miss);
                }
                if size == LeafSize::Base {
                    self.prefetch(mappings, miss.page());
                }
            }
            &self.walks[..]
        } else {
            let missed = self.second.filter(&mut self.misses[..missed]);
            &self.misses[..missed]
        };
        let loads = self.walker.walk(walks, mappings);
        mark(walks, mappings, counters);
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
}

/// Counts walks, and sets the access bits of what programs walked for.
fn mark(walks: &[Miss], mappings: &mut Mappings, counters: &mut TranslationCounters) {
    match one_kind(walks) {
        Some((state, cause)) if cause != Cause::Prefetch => {
            counters.walks_by_size[state.entry() as usize] += walks.len() as u64;
            counters.first_touches += match state.leaf() {
                LeafSize::Base => mark_each(&Each::<0>(cause), walks, mappings),
                LeafSize::Huge => mark_each(&Each::<1>(cause), walks, mappings),
                LeafSize::Giant => mark_each(&Each::<2>(cause), walks, mappings),
            };
        }
        _ => {
            for walk in walks {
                if walk.cause() == Cause::Prefetch {
                    counters.prefetches += 1;
                } else {
                    counters.walks_by_size[walk.state().entry() as usize] += 1;
                }
            }
            counters.first_touches += mark_each(&Own, walks, mappings);
        }
    }
}

/// Sets access bits; so many were clear.
#[inline(never)]
fn mark_each(kind: &impl Kind, walks: &[Miss], mappings: &mut Mappings) -> u64 {
    let made = walks
        .iter()
        .filter(|walk| kind.cause(**walk) != Cause::Prefetch);
    mappings.mark_each(made.map(|walk| (walk.page(), kind.leaf(*walk))))
}
