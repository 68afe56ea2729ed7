//! Keeps regions that recovery split from being promoted again at once.

use crate::access_map::bucket_of_coverage;
use crate::bloat_recovery::{BloatThreshold, FORGET_UNSEEN, MOST_REGIONS};
use crate::event::Event;
use crate::observation::{Observation, ProcessId, RegionSample};
use crate::page::{PAGES_PER_REGION, RegionAddr};
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// Regions that recovery has split. They may be promoted again once they are populated and used.
/// Otherwise promotion and recovery would undo each other's work for ever. At most 32,768 regions
/// of a process (64 GiB) are remembered.
#[derive(Clone, Debug, Default)]
pub struct RecoveredRegions {
    threshold: BloatThreshold,
    /// When each was split or last sampled.
    regions: HashMap<ProcessId, HashMap<RegionAddr, Duration>>,
}

impl RecoveredRegions {
    /// Uses recovery's `threshold`: a promotion must add fewer zero base pages than that.
    pub fn new(threshold: BloatThreshold) -> Self {
        Self { threshold, regions: HashMap::new() }
    }

    /// Takes in what happened.
    pub fn apply_event(&mut self, now: Duration, event: &Event) {
        if let Event::Recovered { process, region, .. } = *event {
            let regions = self.regions.entry(process).or_default();
            if regions.len() < MOST_REGIONS || regions.contains_key(&region) {
                regions.insert(region, now);
            }
        }
    }

    /// Takes in one round of samples. Forgets processes that are gone, and regions that qualify for
    /// promotion again or are already huge. A region without a sample is kept. It is empty, and one
    /// page written to it must not bring the other 511 back. `forget_expired` ends that.
    pub fn observe(&mut self, observation: &Observation) {
        let (sampled, unread) = (&observation.processes, &observation.unread);
        let there: HashSet<ProcessId> = sampled.iter().map(|s| s.process).collect();
        self.regions.retain(|process, _| there.contains(process) || unread.contains(process));
        for sampled in sampled {
            if let Some(regions) = self.regions.get_mut(&sampled.process) {
                for sample in &sampled.regions {
                    if sample.is_huge() || may_promote_again(self.threshold, sample) {
                        regions.remove(&sample.region);
                    } else if let Some(seen) = regions.get_mut(&sample.region) {
                        *seen = observation.at;
                    }
                }
            }
        }
        self.regions.retain(|_, regions| !regions.is_empty());
    }

    /// Forgets the processes for which `there` is false.
    pub fn retain_processes(&mut self, there: impl Fn(ProcessId) -> bool) {
        self.regions.retain(|process, _| there(*process));
    }

    /// Forgets regions that no sample has shown for 64 minutes: their memory may be unmapped.
    pub fn forget_expired(&mut self, now: Duration) {
        for regions in self.regions.values_mut() {
            regions.retain(|_, seen| now < seen.saturating_add(FORGET_UNSEEN));
        }
    }

    /// Whether this region may be promoted, by the last observation. Always true if recovery did
    /// not split it.
    pub fn may_promote(&self, process: ProcessId, region: RegionAddr) -> bool {
        self.regions.get(&process).is_none_or(|regions| !regions.contains_key(&region))
    }
}

/// A promotion must add fewer zero base pages than the threshold for a split, and the region must
/// have left the lowest bucket (50 base pages).
fn may_promote_again(threshold: BloatThreshold, sample: &RegionSample) -> bool {
    PAGES_PER_REGION.saturating_sub(sample.present) < threshold.zero_pages()
        && bucket_of_coverage(sample.accessed) >= 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{
        at_second, huge_sample, observation, process, recovered_event, region, sample,
    };

    #[test]
    fn a_recovered_region_is_promoted_again_once_populated_and_used() {
        let mut recovered = RecoveredRegions::default();
        recovered.apply_event(at_second(0), &recovered_event(process(1), region(1)));
        assert!(!recovered.may_promote(process(1), region(1)));
        assert!(recovered.may_promote(process(1), region(2)));
        assert!(recovered.may_promote(process(2), region(1)));
        // A region 64 pages short would be split again, and 49 accessed pages are too few.
        for (present, accessed) in [(448, 300), (449, 49), (0, 0)] {
            let seen = RegionSample { present, ..sample(1, accessed) };
            recovered.observe(&observation(&[(1, vec![seen])]));
            let again = recovered.may_promote(process(1), region(1));
            assert!(!again, "{present}, {accessed}");
        }
        let seen = RegionSample { present: 449, ..sample(1, 50) };
        recovered.observe(&observation(&[(1, vec![seen])]));
        assert!(recovered.may_promote(process(1), region(1)));
        assert!(recovered.regions.is_empty());
    }

    #[test]
    fn recovered_regions_are_kept_without_a_sample_and_dropped_with_the_process() {
        let mut recovered = RecoveredRegions::default();
        recovered.apply_event(at_second(0), &recovered_event(process(1), region(1)));
        recovered.apply_event(at_second(0), &recovered_event(process(1), region(2)));
        recovered.apply_event(at_second(0), &recovered_event(process(2), region(1)));
        recovered.observe(&observation(&[(1, vec![huge_sample(2, false)])]));
        assert_eq!(recovered.regions[&process(1)].len(), 1);
        assert_eq!(recovered.regions.len(), 1);
        assert!(!recovered.may_promote(process(1), region(1)));
        // Another program made it huge.
        assert!(recovered.may_promote(process(1), region(2)));
        assert!(recovered.may_promote(process(2), region(1)));
    }

    #[test]
    fn regions_of_memory_that_is_gone_are_forgotten() {
        let mut recovered = RecoveredRegions::default();
        for (pid, index) in [(1, 1), (1, 2), (2, 1)] {
            recovered.apply_event(at_second(0), &recovered_event(process(pid), region(index)));
        }
        let mut round = observation(&[(1, vec![sample(2, 0)]), (2, vec![])]);
        round.at = at_second(3000);
        recovered.observe(&round);
        recovered.forget_expired(at_second(3839));
        assert!(!recovered.may_promote(process(1), region(1)));
        recovered.forget_expired(at_second(3840));
        assert!(recovered.may_promote(process(1), region(1)));
        assert!(!recovered.may_promote(process(1), region(2)), "it was sampled since");
        recovered.retain_processes(|p| p == process(2));
        assert!(recovered.may_promote(process(1), region(2)));
    }

    #[test]
    fn new_addresses_without_end_take_no_memory_without_end() {
        let mut recovered = RecoveredRegions::default();
        for index in 0..MOST_REGIONS as u64 + 1000 {
            recovered.apply_event(at_second(0), &recovered_event(process(1), region(index)));
        }
        assert_eq!(recovered.regions[&process(1)].len(), MOST_REGIONS);
    }
}
