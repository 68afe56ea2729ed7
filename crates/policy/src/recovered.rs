//! Keeping what recovery split from being promoted again at once.

use crate::access_map::bucket_of;
use crate::event::Event;
use crate::observation::{Observation, ProcessId, RegionSample};
use crate::page::{PAGES_PER_REGION, RegionAddr};
use crate::recovery::BloatThreshold;
use std::collections::{HashMap, HashSet};

/// Regions that recovery has split. They may be promoted again once they are populated and used:
/// otherwise promotion and recovery would undo each other's work for ever.
#[derive(Clone, Debug)]
pub struct RecoveredRegions {
    threshold: BloatThreshold,
    regions: HashMap<ProcessId, HashSet<RegionAddr>>,
}

impl RecoveredRegions {
    /// `threshold` is that of recovery: a promotion must not add as many zero base pages.
    pub fn new(threshold: BloatThreshold) -> Self {
        Self {
            threshold,
            regions: HashMap::new(),
        }
    }

    /// Takes in what happened.
    pub fn apply(&mut self, event: &Event) {
        if let Event::Recovered {
            process, region, ..
        } = *event
        {
            self.regions.entry(process).or_default().insert(region);
        }
    }

    /// Takes in one round of samples: forgets processes that are gone, and regions that qualify for
    /// promotion again or are huge already. A region without a sample is kept: it has nothing in it,
    /// and one page written to it must not bring the other 511 back.
    pub fn observe(&mut self, observation: &Observation) {
        let mut before = std::mem::take(&mut self.regions);
        for sampled in &observation.processes {
            let Some(mut regions) = before.remove(&sampled.process) else {
                continue;
            };
            for sample in &sampled.regions {
                if sample.is_huge() || self.qualifies(sample) {
                    regions.remove(&sample.region);
                }
            }
            if !regions.is_empty() {
                self.regions.insert(sampled.process, regions);
            }
        }
        for process in &observation.unread {
            if let Some(regions) = before.remove(process) {
                self.regions.insert(*process, regions);
            }
        }
    }

    /// Whether this region may be promoted, by the last observation. Always, if recovery didn't split
    /// it.
    pub fn may_promote(&self, process: ProcessId, region: RegionAddr) -> bool {
        self.regions
            .get(&process)
            .is_none_or(|regions| !regions.contains(&region))
    }

    /// Whether a region that was split is worth a huge page again: promotion would add fewer zero
    /// base pages than would have it split again, and the region was accessed enough to leave the
    /// lowest bucket (50 base pages).
    pub fn qualifies(&self, sample: &RegionSample) -> bool {
        PAGES_PER_REGION.saturating_sub(sample.present) < self.threshold.zero_pages()
            && bucket_of(sample.accessed) >= 1
    }

    /// How many regions are remembered.
    pub fn len(&self) -> usize {
        self.regions.values().map(HashSet::len).sum()
    }

    /// Whether no region is remembered.
    pub fn is_empty(&self) -> bool {
        self.regions.values().all(HashSet::is_empty)
    }
}

impl Default for RecoveredRegions {
    fn default() -> Self {
        Self::new(BloatThreshold::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{huge, observation, process, region, sample, split};

    #[test]
    fn promoted_again_when_populated_and_used() {
        let mut recovered = RecoveredRegions::default();
        recovered.apply(&split(process(1), region(1)));
        assert!(!recovered.may_promote(process(1), region(1)));
        assert!(recovered.may_promote(process(1), region(2)));
        assert!(recovered.may_promote(process(2), region(1)));
        // 64 pages short would be split again; 49 accessed are too few.
        for (present, accessed) in [(448, 300), (449, 49), (0, 0)] {
            let seen = RegionSample {
                present,
                ..sample(1, accessed)
            };
            recovered.observe(&observation(&[(1, vec![seen])]));
            assert!(
                !recovered.may_promote(process(1), region(1)),
                "{present}, {accessed}"
            );
        }
        let seen = RegionSample {
            present: 449,
            ..sample(1, 50)
        };
        recovered.observe(&observation(&[(1, vec![seen])]));
        assert!(recovered.may_promote(process(1), region(1)));
        assert!(recovered.is_empty());
    }

    #[test]
    fn kept_without_a_sample_forgotten_with_the_process() {
        let mut recovered = RecoveredRegions::default();
        recovered.apply(&split(process(1), region(1)));
        recovered.apply(&split(process(1), region(2)));
        recovered.apply(&split(process(2), region(1)));
        recovered.observe(&observation(&[(1, vec![huge(2, false)])]));
        assert_eq!(recovered.len(), 1);
        assert!(!recovered.may_promote(process(1), region(1)));
        assert!(
            recovered.may_promote(process(1), region(2)),
            "huge again by other hands"
        );
        assert!(recovered.may_promote(process(2), region(1)));
    }
}
