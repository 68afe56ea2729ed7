//! The page walkers of a core, and when they are at work.

use super::resource_slots::ResourceSlots;
use super::two_level_tlb::TlbEntryId;

/// State of the walkers. All times are in cycles since the start.
#[derive(Clone, Debug)]
pub(crate) struct PageWalkers {
    walks: ResourceSlots<TlbEntryId>,
    /// Time up to which active cycles are counted. No walk begins before it any more.
    counted_until: f64,
    active_cycles: f64,
    pub(crate) pending_cycles: f64,
}

impl PageWalkers {
    pub(crate) fn new(count: u32) -> Self {
        Self {
            walks: ResourceSlots::new(count),
            counted_until: 0.0,
            active_cycles: 0.0,
            pending_cycles: 0.0,
        }
    }

    /// When a walk for this entry under way at `start` will be done; `start` if there is none.
    #[inline]
    pub(crate) fn end_of_walk_for(&self, entry: TlbEntryId, start: f64) -> f64 {
        self.walks.end_of_work_on(entry, start)
    }

    /// Walks for an entry as soon after `start` as a walker is free, and returns when the walk is
    /// done. `walk` gets the start time of the walk and returns its end. No later call has a
    /// `start` before `entered`, which never decreases.
    #[inline]
    pub(crate) fn walk(
        &mut self,
        entry: TlbEntryId,
        entered: f64,
        start: f64,
        walk: impl FnOnce(f64) -> f64,
    ) -> f64 {
        self.active_cycles += self.active_walk_cycles_between(self.counted_until, entered);
        self.counted_until = entered;
        self.walks.drop_work_before(entered);
        let begin = self.walks.first_free_time(start);
        let done = walk(begin);
        self.walks.add_busy_span(entry, begin, done);
        self.pending_cycles += done - begin;
        done
    }

    pub(crate) fn active_cycles(&self) -> f64 {
        self.active_cycles + self.active_walk_cycles_between(self.counted_until, f64::INFINITY)
    }

    /// The same between two times, for the walks that are not over.
    fn active_walk_cycles_between(&self, from: f64, until: f64) -> f64 {
        let mut counted = from;
        let mut cycles = 0.0;
        let walks = self.walks.spans.iter();
        for walk in walks.take_while(|walk| walk.begin < until) {
            let (begin, done) = (walk.begin.max(counted), walk.end.min(until));
            cycles += (done - begin).max(0.0);
            counted = counted.max(done);
        }
        cycles
    }
}

#[cfg(test)]
mod tests {
    use super::super::translation::EntrySize;
    use super::*;
    use proptest::prelude::*;

    fn page(number: u32) -> TlbEntryId {
        TlbEntryId { number, size: EntrySize::Base }
    }

    #[test]
    fn two_walkers_overlap_and_a_third_walk_waits() {
        let mut walkers = PageWalkers::new(2);
        let mut walk =
            |page: TlbEntryId, start: f64| walkers.walk(page, start, start, |begin| begin + 100.0);
        assert_eq!(walk(page(1), 0.0), 100.0);
        assert_eq!(walk(page(2), 10.0), 110.0);
        assert_eq!(walk(page(3), 20.0), 200.0);
        assert_eq!(walk(page(4), 500.0), 600.0);
        assert_eq!(walkers.pending_cycles, 400.0);
        assert_eq!(walkers.active_cycles(), 300.0);
        assert_eq!(walkers.end_of_walk_for(page(4), 550.0), 600.0, "under way");
        assert_eq!(walkers.end_of_walk_for(page(4), 650.0), 650.0, "done");
        assert_eq!(walkers.end_of_walk_for(page(9), 550.0), 550.0, "none");
    }

    proptest! {
        /// Compared with every cycle counted by itself.
        #[test]
        fn time_at_work_is_counted_once(
            walks in proptest::collection::vec((0u32..50, 0u32..200, 1u32..60), 1..60),
            count in 1u32..4,
        ) {
            let mut walkers = PageWalkers::new(count);
            let mut at_work = std::collections::BTreeSet::new();
            let (mut entered, mut pending) = (0, 0);
            for (later, after, length) in walks {
                entered += later;
                let (start, mut begun) = (entered + after, 0.0);
                walkers.walk(page(1), f64::from(entered), f64::from(start), |begin| {
                    begun = begin;
                    begin + f64::from(length)
                });
                prop_assert!(begun >= f64::from(start));
                at_work.extend(begun as u32..begun as u32 + length);
                pending += length;
                prop_assert_eq!(walkers.active_cycles(), at_work.len() as f64);
                prop_assert_eq!(walkers.pending_cycles, f64::from(pending));
            }
        }
    }
}
