//! The access map by examples, and against a plain model of the paper: lists, moved region by
//! region.

use super::*;
use crate::test_support::{huge_sample, region, sample};
use proptest::prelude::*;

fn newest_window_only() -> AccessMap {
    AccessMap::new(crate::test_support::newest_window_averaging())
}

fn waiting_in_all(map: &AccessMap) -> usize {
    (0..BUCKET_COUNT).map(|bucket| map.count_waiting_in_bucket(bucket)).sum()
}

fn order(map: &AccessMap, bucket: u8) -> Vec<RegionAddr> {
    map.waiting_regions_in_bucket(bucket).map(|c| c.region).collect()
}

#[test]
fn buckets_are_linear() {
    let edges = [(0, 0), (49, 0), (50, 1), (99, 1), (449, 8), (450, 9), (512, 9), (u16::MAX, 9)];
    for (coverage, bucket) in edges {
        assert_eq!(bucket_of_coverage(coverage), bucket, "{coverage}");
    }
}

#[test]
fn the_average_decides_not_the_newest_window() -> Result<(), crate::SettingError> {
    let mut map = AccessMap::new(CoverageAveraging::new(0.4)?);
    map.observe(&[sample(1, 500)]);
    map.observe(&[sample(1, 0)]);
    let highest = map.pop_from_highest_bucket().map(|c| (c.bucket, c.coverage));
    assert_eq!(highest, Some((6, 300)));
    Ok(())
}

#[test]
fn taken_regions_return_to_their_place() {
    let mut map = newest_window_only();
    let samples = [sample(1, 100), sample(2, 100), sample(3, 500)];
    map.observe(&samples);
    assert_eq!(map.pop_from_highest_bucket().map(|c| c.region), Some(region(3)));
    assert_eq!(map.pop_from_highest_bucket().map(|c| c.region), Some(region(1)));
    assert_eq!(waiting_in_all(&map), 1);
    map.observe(&samples);
    assert_eq!(order(&map, 2), [region(1), region(2)]);
    assert_eq!(order(&map, 9), [region(3)]);
}

#[test]
fn removed_regions_are_forgotten() {
    let mut map = newest_window_only();
    map.observe(&[sample(1, 100), sample(2, 90)]);
    map.remove(region(1));
    map.remove(region(7));
    assert_eq!(waiting_in_all(&map), 1);
    map.observe(&[sample(1, 100), sample(2, 100)]);
    assert_eq!(order(&map, 2), [region(1), region(2)]);
}

#[test]
fn unsorted_and_duplicate_samples_do_no_harm() {
    let mut map = newest_window_only();
    map.observe(&[sample(2, 100), sample(1, 100), sample(2, 300)]);
    assert_eq!(order(&map, 2), [region(1), region(2)]);
    assert_eq!(waiting_in_all(&map), 2);
}

fn region_of(index: u64, accessed: u16, is_huge: bool) -> RegionSample {
    if is_huge { huge_sample(index, accessed > 0) } else { sample(index, accessed) }
}

fn any_sample() -> impl Strategy<Value = BTreeMap<u64, (u16, bool)>> {
    let coverage = prop_oneof![Just(0u16), 0u16..=512];
    prop::collection::btree_map(0u64..40, (coverage, prop::bool::weighted(0.1)), 0..40)
}

/// Lists of regions, head first.
#[derive(Default)]
struct ReferenceMap {
    buckets: [Vec<RegionAddr>; BUCKET_COUNT as usize],
    /// The bucket of each region, or its last one.
    of: BTreeMap<RegionAddr, Option<u8>>,
}

impl ReferenceMap {
    fn observe(&mut self, samples: &[RegionSample]) {
        let there: BTreeMap<_, _> =
            samples.iter().filter(|s| !s.is_huge()).map(|s| (s.region, s.accessed)).collect();
        self.of.retain(|region, _| there.contains_key(region));
        let mut risen = Vec::new();
        for (region, accessed) in &there {
            let to = (*accessed > 0).then(|| bucket_of_coverage(*accessed));
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
    (0..BUCKET_COUNT).map(|b| order(map, b)).collect()
}

proptest! {
    #[test]
    fn access_map_behaves_as_the_model(rounds in prop::collection::vec(any_sample(), 1..12)) {
        let mut map = AccessMap::new(CoverageAveraging::new(1.0)?);
        let mut model = ReferenceMap::default();
        for round in rounds {
            let samples: Vec<_> = round.iter().map(|(i, (c, h))| region_of(*i, *c, *h)).collect();
            map.observe(&samples);
            model.observe(&samples);
            prop_assert_eq!(contents(&map), model.buckets.to_vec());
        }
    }

    /// Through pops, removals and samples no region is lost or present twice. Popped regions come
    /// by bucket, highest first.
    #[test]
    fn access_map_loses_and_duplicates_no_region(
        rounds in prop::collection::vec((any_sample(), 0usize..50, 0u64..40), 1..12),
        weight in 0.05..=1.0f64,
    ) {
        let mut map = AccessMap::new(CoverageAveraging::new(weight)?);
        for (round, pops, removed) in rounds {
            let samples: Vec<_> = round.iter().map(|(i, (c, h))| region_of(*i, *c, *h)).collect();
            map.observe(&samples);
            let mut waiting: Vec<_> = contents(&map).concat();
            waiting.sort();
            prop_assert!(waiting.is_sorted_by(|a, b| a < b), "a region waits twice");
            prop_assert_eq!(waiting.len(), waiting_in_all(&map));
            for s in &samples {
                let waits = waiting.binary_search(&s.region).is_ok();
                prop_assert!(!(waits && s.is_huge()));
                // An accessed region's average is at least `weight` of a page.
                prop_assert!(waits || s.is_huge() || f64::from(s.accessed) * weight < 0.5 + 1e-9);
            }
            prop_assert!(waiting.iter().all(|r| samples.iter().any(|s| s.region == *r)));

            let was_waiting = map.waiting_regions_in_bucket(0).chain((1..BUCKET_COUNT).flat_map(|b| map.waiting_regions_in_bucket(b)));
            let removed_waited = was_waiting.into_iter().any(|c| c.region == region(removed));
            let before = waiting_in_all(&map);
            map.remove(region(removed));
            prop_assert_eq!(waiting_in_all(&map), before - usize::from(removed_waited));
            map.remove(region(removed));
            prop_assert_eq!(waiting_in_all(&map), before - usize::from(removed_waited));

            let expected = pops.min(waiting_in_all(&map));
            let left = waiting_in_all(&map) - expected;
            let mut last = BUCKET_COUNT;
            for _ in 0..expected {
                let Some(popped) = map.pop_from_highest_bucket() else { break };
                prop_assert!(popped.bucket <= last);
                prop_assert_eq!(bucket_of_coverage(popped.coverage), popped.bucket);
                prop_assert!(waiting.binary_search(&popped.region).is_ok());
                last = popped.bucket;
            }
            prop_assert_eq!(waiting_in_all(&map), left);
        }
    }
}

/// 500,000 regions (1 TB) take a few seconds; anything quadratic would take hours.
#[test]
fn an_access_map_holds_half_a_million_regions() -> Result<(), crate::SettingError> {
    let mut map = AccessMap::new(CoverageAveraging::new(1.0)?);
    let round = |by: u64| -> Vec<RegionSample> {
        (0..500_000).map(|i| sample(i, ((i * by) % 513) as u16)).collect()
    };
    map.observe(&round(7));
    map.observe(&round(11));
    let waiting = waiting_in_all(&map);
    let mut popped = 0;
    while let Some(candidate) = map.pop_from_highest_bucket() {
        map.remove(candidate.region);
        popped += 1;
    }
    assert_eq!(popped, waiting);
    Ok(())
}
