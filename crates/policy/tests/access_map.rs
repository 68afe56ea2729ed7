//! The access map against a plain model of what the paper says: lists, moved region by region.

use hawkeye_policy::access_map::{BUCKETS, bucket_of};
use hawkeye_policy::{
    AccessMap, CoverageAverage, HUGE_PAGE_BYTES, PageOrder, RegionAddr, RegionSample,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn region(index: u64) -> RegionAddr {
    RegionAddr::containing(index * HUGE_PAGE_BYTES)
}

fn sample(index: u64, accessed: u16, huge: bool) -> RegionSample {
    RegionSample {
        accessed,
        runs: 1,
        order: PageOrder::of_region(huge),
        ..RegionSample::untouched(region(index))
    }
}

/// What is in one sample: coverage and hugeness by region.
fn any_sample() -> impl Strategy<Value = BTreeMap<u64, (u16, bool)>> {
    let coverage = prop_oneof![Just(0u16), 0u16..=512];
    prop::collection::btree_map(0u64..40, (coverage, prop::bool::weighted(0.1)), 0..40)
}

/// Lists of regions, head first.
#[derive(Default)]
struct Model {
    buckets: [Vec<RegionAddr>; BUCKETS as usize],
    /// Where each region is, or was last.
    of: BTreeMap<RegionAddr, Option<u8>>,
}

impl Model {
    fn observe(&mut self, samples: &[RegionSample]) {
        let there: BTreeMap<_, _> = samples
            .iter()
            .filter(|s| !s.is_huge())
            .map(|s| (s.region, s.accessed))
            .collect();
        self.of.retain(|region, _| there.contains_key(region));
        let mut risen = Vec::new();
        for (region, accessed) in &there {
            let to = (*accessed > 0).then(|| bucket_of(*accessed));
            let from = self.of.insert(*region, to);
            if from == Some(to) {
                continue;
            }
            for bucket in &mut self.buckets {
                bucket.retain(|r| r != region);
            }
            match to {
                Some(to) if from.flatten() > Some(to) => {
                    self.buckets[usize::from(to)].push(*region);
                }
                Some(to) => risen.push((to, *region)),
                None => {}
            }
        }
        for bucket in &mut self.buckets {
            bucket.retain(|r| there.contains_key(r));
        }
        for (to, region) in risen.into_iter().rev() {
            self.buckets[usize::from(to)].insert(0, region);
        }
    }
}

fn contents(map: &AccessMap) -> Vec<Vec<RegionAddr>> {
    (0..BUCKETS)
        .map(|b| map.bucket(b).map(|c| c.region).collect())
        .collect()
}

proptest! {
    #[test]
    fn is_as_the_model_says(rounds in prop::collection::vec(any_sample(), 1..12)) {
        let mut map = AccessMap::new(CoverageAverage::new(1.0)?);
        let mut model = Model::default();
        for round in rounds {
            let samples: Vec<_> = round.iter().map(|(i, (c, h))| sample(*i, *c, *h)).collect();
            map.observe(&samples);
            model.observe(&samples);
            prop_assert_eq!(contents(&map), model.buckets.to_vec());
        }
    }

    /// Between pops, removals and samples no region is lost or there twice, and what is popped comes
    /// by bucket, highest first.
    #[test]
    fn loses_and_doubles_nothing(
        rounds in prop::collection::vec((any_sample(), 0usize..50, 0u64..40), 1..12),
        weight in 0.05..=1.0f64,
    ) {
        let mut map = AccessMap::new(CoverageAverage::new(weight)?);
        for (round, pops, removed) in rounds {
            let samples: Vec<_> = round.iter().map(|(i, (c, h))| sample(*i, *c, *h)).collect();
            map.observe(&samples);
            let mut waiting: Vec<_> = contents(&map).concat();
            waiting.sort();
            prop_assert!(waiting.is_sorted_by(|a, b| a < b), "a region waits twice");
            prop_assert_eq!(waiting.len(), map.waiting());
            for s in &samples {
                let waits = waiting.binary_search(&s.region).is_ok();
                prop_assert!(!(waits && s.is_huge()));
                // An accessed region's average is at least `weight` of a page.
                prop_assert!(waits || s.is_huge() || f64::from(s.accessed) * weight < 0.5 + 1e-9);
            }
            prop_assert!(waiting.iter().all(|r| samples.iter().any(|s| s.region == *r)));

            let was_waiting = map.bucket(0).chain((1..BUCKETS).flat_map(|b| map.bucket(b)));
            let removed_waited = was_waiting.into_iter().any(|c| c.region == region(removed));
            let before = map.waiting();
            map.remove(region(removed));
            prop_assert_eq!(map.waiting(), before - usize::from(removed_waited));
            prop_assert!(!map.remove(region(removed)), "can't be removed twice");

            let expected = pops.min(map.waiting());
            let left = map.waiting() - expected;
            let mut last = BUCKETS;
            for _ in 0..expected {
                let peeked = map.peek();
                let popped = map.pop_highest();
                prop_assert_eq!(peeked, popped);
                let Some(popped) = popped else { break };
                prop_assert!(popped.bucket <= last);
                prop_assert_eq!(bucket_of(popped.coverage), popped.bucket);
                prop_assert!(waiting.binary_search(&popped.region).is_ok());
                last = popped.bucket;
            }
            prop_assert_eq!(map.waiting(), left);
        }
    }
}

/// 500,000 regions (1 TB) must not be a problem: a few seconds even without optimisation, where
/// anything quadratic would take hours.
#[test]
fn half_a_million_regions() -> Result<(), hawkeye_policy::SettingError> {
    let mut map = AccessMap::new(CoverageAverage::new(1.0)?);
    let round = |by: u64| -> Vec<RegionSample> {
        (0..500_000)
            .map(|i| sample(i, ((i * by) % 513) as u16, false))
            .collect()
    };
    map.observe(&round(7));
    map.observe(&round(11));
    let waiting = map.waiting();
    let mut popped = 0;
    while let Some(candidate) = map.pop_highest() {
        map.remove(candidate.region);
        popped += 1;
    }
    assert_eq!(popped, waiting);
    Ok(())
}
