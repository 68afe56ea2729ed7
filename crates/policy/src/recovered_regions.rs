//! Keeps regions that recovery split from being promoted again at once.

use crate::access_map::bucket_of_coverage;
use crate::bloat_recovery::BloatThreshold;
use crate::event::Event;
use crate::observation::{Observation, ProcessId, RegionSample};
use crate::page::{PAGES_PER_REGION, RegionAddr};
use std::collections::{HashMap, HashSet};

/// Regions that recovery has split. They may be promoted again once they are populated and used.
/// Otherwise promotion and recovery would undo each other's work for ever.
#[derive(Clone, Debug, Default)]
pub struct RecoveredRegions {
    threshold: BloatThreshold,
    regions: HashMap<ProcessId, HashSet<RegionAddr>>,
}

impl RecoveredRegions {
    /// Uses recovery's `threshold`: a promotion must add fewer zero base pages than that.
    pub fn new(threshold: BloatThreshold) -> Self {
        Self { threshold, regions: HashMap::new() }
    }

    /// Takes in what happened.
    pub fn apply_event(&mut self, event: &Event) {
        if let Event::Recovered { process, region, .. } = *event {
            self.regions.entry(process).or_default().insert(region);
        }
    }

    /// Takes in one round of samples. Forgets processes that are gone, and regions that qualify for
    /// promotion again or are already huge. A region without a sample is kept. It is empty, and one
    /// page written to it must not bring the other 511 back.
    pub fn observe(&mut self, observation: &Observation) {
        let (sampled, unread) = (&observation.processes, &observation.unread);
        let there: HashSet<ProcessId> = sampled.iter().map(|s| s.process).collect();
        self.regions.retain(|process, _| there.contains(process) || unread.contains(process));
        for sampled in sampled {
            if let Some(regions) = self.regions.get_mut(&sampled.process) {
                let again = |s: &&RegionSample| s.is_huge() || may_promote_again(self.threshold, s);
                for sample in sampled.regions.iter().filter(again) {
                    regions.remove(&sample.region);
                }
            }
        }
        self.regions.retain(|_, regions| !regions.is_empty());
    }

    /// Whether this region may be promoted, by the last observation. Always true if recovery did
    /// not split it.
    pub fn may_promote(&self, process: ProcessId, region: RegionAddr) -> bool {
        self.regions.get(&process).is_none_or(|regions| !regions.contains(&region))
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
    use crate::test_support::{huge_sample, observation, process, recovered_event, region, sample};

    #[test]
    fn a_recovered_region_is_promoted_again_once_populated_and_used() {
        let mut recovered = RecoveredRegions::default();
        recovered.apply_event(&recovered_event(process(1), region(1)));
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
        recovered.apply_event(&recovered_event(process(1), region(1)));
        recovered.apply_event(&recovered_event(process(1), region(2)));
        recovered.apply_event(&recovered_event(process(2), region(1)));
        recovered.observe(&observation(&[(1, vec![huge_sample(2, false)])]));
        assert_eq!(recovered.regions[&process(1)].len(), 1);
        assert_eq!(recovered.regions.len(), 1);
        assert!(!recovered.may_promote(process(1), region(1)));
        // Another program made it huge.
        assert!(recovered.may_promote(process(1), region(2)));
        assert!(recovered.may_promote(process(2), region(1)));
    }
}
