//! Memory that a promotion would copy: pages that other processes also map.

use crate::event::Event;
use crate::observation::{Observation, ProcessId, RegionSample};
use crate::page::{PAGES_PER_REGION, RegionAddr};
use crate::refusal_cooldown::RefusalCooldown;
use std::collections::HashMap;
use std::time::Duration;

/// Base pages of a region that a promotion may copy although other processes also map them.
///
/// The kernel copies every page of a region that it makes huge, and the other processes keep the
/// old ones. One page in a hundred is an acceptable price for a region that is otherwise private.
pub const MAX_SHARED_PAGES: u16 = PAGES_PER_REGION / 100;

/// Regions with shared pages: what their promotion takes, and which are passed over.
#[derive(Clone, Debug)]
pub struct SharedRegions {
    /// Pages that may be shared, by the last observation.
    maybe_shared: HashMap<ProcessId, HashMap<RegionAddr, u16>>,
    cooldown: RefusalCooldown,
    /// Pages that were shared when a region was passed over.
    found: HashMap<(ProcessId, RegionAddr), u16>,
}

impl SharedRegions {
    /// A region is checked again after this time, because the other process may have ended. Each
    /// further pause is twice as long, up to 16 times this one.
    pub const FIRST_PAUSE: Duration = Duration::from_secs(10);

    /// Takes in what happened.
    pub fn apply_event(&mut self, now: Duration, event: &Event) {
        match *event {
            Event::Shared { process, region, pages } => {
                self.cooldown.record_refusal(process, region, now);
                self.found.insert((process, region), pages);
            }
            Event::Promoted { process, region, .. } => {
                self.cooldown.forget_refusals(process, region);
                self.found.remove(&(process, region));
            }
            _ => {}
        }
    }

    /// Takes in one round of samples. The state of processes that were not read stays.
    pub fn observe(&mut self, observation: &Observation) {
        let unread = &observation.unread;
        self.maybe_shared.retain(|process, _| unread.contains(process));
        for sampled in &observation.processes {
            let shared = |sample: &&RegionSample| sample.maybe_shared > 0 && !sample.is_huge();
            let shared = sampled.regions.iter().filter(shared);
            let regions: HashMap<_, _> = shared.map(|s| (s.region, s.maybe_shared)).collect();
            if !regions.is_empty() {
                self.maybe_shared.insert(sampled.process, regions);
            }
        }
    }

    /// Base pages that a promotion of the region may copy, and so allocate.
    pub fn copied_pages_upper_bound(&self, process: ProcessId, region: RegionAddr) -> u16 {
        let regions = self.maybe_shared.get(&process);
        let pages = regions.and_then(|regions| regions.get(&region)).copied();
        pages.unwrap_or(0).min(MAX_SHARED_PAGES)
    }

    /// Whether the region may be tried.
    pub fn may_promote(&self, process: ProcessId, region: RegionAddr, now: Duration) -> bool {
        self.cooldown.allows(process, region, now)
    }

    /// How many pages of a region are shared, and until when it is left alone; `None` if it is not.
    pub fn shared_pages_and_pause_end(
        &self,
        process: ProcessId,
        region: RegionAddr,
        now: Duration,
    ) -> Option<(u16, Duration)> {
        let until = self.cooldown.cooling_until(process, region, now)?;
        Some((*self.found.get(&(process, region))?, until))
    }

    /// Forgets the processes for which `there` is false.
    pub fn retain_processes(&mut self, there: impl Fn(ProcessId) -> bool) {
        self.maybe_shared.retain(|process, _| there(*process));
        self.found.retain(|(process, _), _| there(*process));
        self.cooldown.retain_processes(there);
    }

    /// Forgets old findings.
    pub fn forget_expired(&mut self, now: Duration) {
        self.cooldown.forget_expired(now);
        let cooldown = &self.cooldown;
        self.found.retain(|(process, region), _| !cooldown.allows(*process, *region, now));
    }
}

impl Default for SharedRegions {
    fn default() -> Self {
        Self {
            maybe_shared: HashMap::new(),
            cooldown: RefusalCooldown::new(Self::FIRST_PAUSE),
            found: HashMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{
        at_second, huge_sample, observation, process, promoted_event, region, sample,
    };

    fn shared(index: u64, maybe_shared: u16) -> RegionSample {
        RegionSample { maybe_shared, ..sample(index, 1) }
    }

    #[test]
    fn copies_of_shared_pages_count_and_stay_within_the_limit() {
        let mut regions = SharedRegions::default();
        let whole_huge = RegionSample { maybe_shared: 512, ..huge_sample(4, true) };
        let seen = vec![shared(1, 0), shared(2, 3), shared(3, 512), whole_huge];
        regions.observe(&observation(&[(1, seen)]));
        let copied = |regions: &SharedRegions, index| {
            regions.copied_pages_upper_bound(process(1), region(index))
        };
        let pages = [1, 2, 3, 4].map(|index| copied(&regions, index));
        assert_eq!(pages, [0, 3, MAX_SHARED_PAGES, 0]);
        // Not read: as before. Read again: the new state. Gone: nothing.
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
    fn shared_regions_are_checked_ever_less_often() {
        let mut regions = SharedRegions::default();
        let (p, r) = (process(1), region(1));
        let mut now = at_second(100);
        let shared = |pages| Event::Shared { process: p, region: r, pages };
        for seconds in [10, 20, 40, 80, 160, 160] {
            assert!(regions.may_promote(p, r, now));
            regions.apply_event(now, &shared(400));
            let before = now;
            now += at_second(seconds);
            assert_eq!(regions.shared_pages_and_pause_end(p, r, before), Some((400, now)));
            assert!(!regions.may_promote(p, r, now - Duration::from_nanos(1)));
        }
        assert_eq!(regions.shared_pages_and_pause_end(p, r, now), None);
        regions.apply_event(now, &promoted_event(p, r));
        regions.apply_event(now, &shared(6));
        assert!(regions.may_promote(p, r, now + at_second(10)), "the pauses start over");
        regions.forget_expired(now + at_second(1));
        assert_eq!(regions.found.len(), 1);
        regions.forget_expired(now + at_second(11));
        assert!(regions.found.is_empty());
        regions.apply_event(now, &shared(6));
        regions.retain_processes(|process| process != p);
        assert!(regions.found.is_empty() && regions.may_promote(p, r, now));
    }
}
