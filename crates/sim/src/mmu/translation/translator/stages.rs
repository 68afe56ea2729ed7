//! What becomes of a batch of pages, stage by stage.

use super::Translator;
use crate::mmu::translation::counters::TranslationCounters;
use crate::mmu::translation::lines::Cause;
use crate::mmu::translation::mappings::Mappings;
use crate::mmu::translation::miss::Miss;
use crate::mmu::translation::place::chunk_of;
use crate::mmu::translation::state::LeafSize;

impl Translator {
    /// Takes the pages of a batch through all levels.
    pub(super) fn settle(&mut self, mappings: &mut Mappings, counters: &mut TranslationCounters) {
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
        let loads = self.walker.walk(&self.walks, mappings);
        // Counted in registers.
        let (mut sizes, mut prefetches, mut first_touches) = ([0; 3], 0, 0);
        for miss in &self.walks {
            if miss.cause() == Cause::Prefetch {
                prefetches += 1;
                continue;
            }
            let state = miss.state();
            for (size, count) in sizes.iter_mut().enumerate() {
                *count += u64::from(state.entry() as usize == size);
            }
            first_touches += u64::from(mappings.mark(miss.page(), state.leaf()));
        }
        counters.prefetches += prefetches;
        counters.first_touches += first_touches;
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
}
