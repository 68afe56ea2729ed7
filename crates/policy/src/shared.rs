//! Memory that a promotion would copy: pages that other processes map too.

use crate::cooldown::Cooldown;
use crate::event::Event;
use crate::observation::{Observation, ProcessId, RegionSample};
use crate::page::{PAGES_PER_REGION, RegionAddr};
use std::collections::HashMap;
use std::time::Duration;

/// Base pages of a region that a promotion may copy although other processes map them too.
///
/// The kernel copies every page of a region that it makes huge, and the other processes keep the
/// old ones. One page in a hundred is the price of a region that is otherwise private.
pub const MAX_SHARED_PAGES: u16 = PAGES_PER_REGION / 100;

/// Regions with shared pages: what their promotion takes, and which ones are passed over.
#[derive(Clone, Debug)]
pub struct SharedRegions {
    /// Pages that may be shared, by the last observation.
    maybe_shared: HashMap<ProcessId, HashMap<RegionAddr, u16>>,
    cooldown: Cooldown,
    /// Pages that were shared when a region was passed over.
    found: HashMap<(ProcessId, RegionAddr), u16>,
}

impl SharedRegions {
    /// A region is looked at again after this time, and after twice as long each further time, up
    /// to 16 times: the other process may have ended.
    pub const FIRST_PAUSE: Duration = Duration::from_secs(10);

    /// Takes in what happened.
    pub fn apply(&mut self, now: Duration, event: &Event) {
        match *event {
            Event::Shared {
                process,
                region,
                pages,
            } => self.pass_over(process, region, pages, now),
            Event::Promoted {
                process, region, ..
            } => self.forget(process, region),
            _ => {}
        }
    }

    /// Takes in one round of samples. What is known of processes that were not read stays.
    pub fn observe(&mut self, observation: &Observation) {
        let mut before = std::mem::take(&mut self.maybe_shared);
        for process in &observation.unread {
            if let Some(regions) = before.remove(process) {
                self.maybe_shared.insert(*process, regions);
            }
        }
        for sampled in &observation.processes {
            let shared = |sample: &&RegionSample| sample.maybe_shared > 0 && !sample.is_huge();
            let shared = sampled.regions.iter().filter(shared);
            let regions: HashMap<_, _> = shared.map(|s| (s.region, s.maybe_shared)).collect();
            if !regions.is_empty() {
                self.maybe_shared.insert(sampled.process, regions);
            }
        }
    }

    /// Base pages that a promotion of the region may copy: memory that it takes.
    pub fn copied_pages(&self, process: ProcessId, region: RegionAddr) -> u16 {
        let regions = self.maybe_shared.get(&process);
        let pages = regions.and_then(|regions| regions.get(&region)).copied();
        pages.unwrap_or(0).min(MAX_SHARED_PAGES)
    }

    /// The region was found to have more than [`MAX_SHARED_PAGES`]: this many.
    fn pass_over(&mut self, process: ProcessId, region: RegionAddr, pages: u16, now: Duration) {
        self.cooldown.refuse(process, region, now);
        self.found.insert((process, region), pages);
    }

    /// Whether the region may be tried.
    pub fn may_promote(&self, process: ProcessId, region: RegionAddr, now: Duration) -> bool {
        self.cooldown.allows(process, region, now)
    }

    /// How many pages of a region are shared, and until when it is left alone, if it is.
    pub fn passed_over(
        &self,
        process: ProcessId,
        region: RegionAddr,
        now: Duration,
    ) -> Option<(u16, Duration)> {
        let until = self.cooldown.until(process, region, now)?;
        Some((*self.found.get(&(process, region))?, until))
    }

    /// Regions of a process that are left alone because of shared pages.
    pub fn passed_over_in(&self, process: ProcessId, now: Duration) -> usize {
        let left_alone = |(whose, region): &&(ProcessId, RegionAddr)| {
            *whose == process && !self.cooldown.allows(process, *region, now)
        };
        self.found.keys().filter(left_alone).count()
    }

    /// The region was promoted: it is not shared any more.
    fn forget(&mut self, process: ProcessId, region: RegionAddr) {
        self.cooldown.succeed(process, region);
        self.found.remove(&(process, region));
    }

    /// Forgets the processes for which `there` is false.
    pub fn retain_processes(&mut self, there: impl Fn(ProcessId) -> bool) {
        self.maybe_shared.retain(|process, _| there(*process));
        self.found.retain(|(process, _), _| there(*process));
        self.cooldown.retain_processes(there);
    }

    /// Forgets what was found long ago.
    pub fn expire(&mut self, now: Duration) {
        self.cooldown.expire(now);
        let cooldown = &self.cooldown;
        self.found
            .retain(|(process, region), _| !cooldown.allows(*process, *region, now));
    }
}

impl Default for SharedRegions {
    fn default() -> Self {
        Self {
            maybe_shared: HashMap::new(),
            cooldown: Cooldown::new(Self::FIRST_PAUSE),
            found: HashMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, huge, observation, process, region, sample};

    fn shared(index: u64, maybe_shared: u16) -> RegionSample {
        RegionSample {
            maybe_shared,
            ..sample(index, 1)
        }
    }

    #[test]
    fn the_limit_is_at_most_one_page_in_a_hundred() {
        let percent = f64::from(MAX_SHARED_PAGES) * 100.0 / f64::from(PAGES_PER_REGION);
        assert!(percent > 0.0 && percent <= 1.0, "{percent}");
    }

    #[test]
    fn a_promotion_takes_memory_for_what_it_copies_and_never_more_than_the_limit() {
        let mut regions = SharedRegions::default();
        let whole_huge = RegionSample {
            maybe_shared: 512,
            ..huge(4, true)
        };
        let seen = vec![shared(1, 0), shared(2, 3), shared(3, 512), whole_huge];
        regions.observe(&observation(&[(1, seen)]));
        let copied =
            |regions: &SharedRegions, index| regions.copied_pages(process(1), region(index));
        let pages = [1, 2, 3, 4].map(|index| copied(&regions, index));
        assert_eq!(pages, [0, 3, MAX_SHARED_PAGES, 0]);
        // Not read: as before. Read again: as it is now. Gone: nothing.
        let mut unread = observation(&[]);
        unread.unread.push(process(1));
        regions.observe(&unread);
        assert_eq!(copied(&regions, 2), 3);
        regions.observe(&observation(&[(1, vec![shared(2, 1)])]));
        assert_eq!([copied(&regions, 2), copied(&regions, 3)], [1, 0]);
        regions.observe(&observation(&[]));
        assert_eq!(copied(&regions, 2), 0);
    }

    #[test]
    fn what_is_shared_is_looked_at_again_ever_more_seldom() {
        let mut regions = SharedRegions::default();
        let (p, r) = (process(1), region(1));
        let mut now = at(100);
        for seconds in [10, 20, 40, 80, 160, 160] {
            assert!(regions.may_promote(p, r, now));
            regions.pass_over(p, r, 400, now);
            let before = now;
            now += at(seconds);
            assert_eq!(regions.passed_over(p, r, before), Some((400, now)));
            assert!(!regions.may_promote(p, r, now - Duration::from_nanos(1)));
            assert_eq!(regions.passed_over_in(p, before), 1);
            assert_eq!(regions.passed_over_in(process(2), before), 0);
        }
        assert_eq!(regions.passed_over(p, r, now), None);
        regions.forget(p, r);
        regions.pass_over(p, r, 6, now);
        assert!(regions.may_promote(p, r, now + at(10)), "it starts over");
        regions.expire(now + at(1));
        assert_eq!(regions.passed_over_in(p, now + at(1)), 1);
        regions.expire(now + at(11));
        assert!(regions.found.is_empty());
        regions.pass_over(p, r, 6, now);
        regions.retain_processes(|process| process != p);
        assert!(regions.found.is_empty() && regions.may_promote(p, r, now));
    }
}
