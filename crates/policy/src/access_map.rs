//! Which regions of one process to promote first: HawkEye's `access_map`.

use crate::coverage_averaging::CoverageAveraging;
use crate::file_region::FileRegion;
use crate::observation::RegionSample;
use crate::page::RegionAddr;
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

/// Buckets in an access map (paper, section 3.3).
pub const BUCKET_COUNT: u8 = 10;
/// Width of a bucket, in base pages; the last one is wider (450-512).
const BUCKET_PAGES: u16 = 50;

/// The bucket (0-9) for a coverage in base pages: 0-49 in 0, 50-99 in 1, ..., 450-512 in 9.
pub fn bucket_of_coverage(coverage: u16) -> u8 {
    u8::try_from(coverage / BUCKET_PAGES).unwrap_or(u8::MAX).min(BUCKET_COUNT - 1)
}

/// A region that waits in an access map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingMapRegion {
    /// The region.
    pub region: RegionAddr,
    /// The bucket it waits in (0-9).
    pub bucket: u8,
    /// Averaged coverage, in whole base pages (1-512).
    pub coverage: u16,
    /// Base pages present in the last sample (0-512).
    pub present: u16,
    /// Of shared memory: which part of which file it was in the last sample.
    pub file: Option<FileRegion>,
}

#[derive(Clone, Copy, Debug)]
struct MapEntry {
    average: f64,
    present: u16,
    file: Option<FileRegion>,
    /// Its bucket, or `None` while its averaged coverage rounds to 0.
    bucket: Option<u8>,
    /// Its position in the bucket: the smallest is the head. Kept while the region is taken out, so
    /// that it returns to the same position if its promotion failed.
    position: i64,
    waiting: bool,
}

/// Ten buckets of the regions of one process, by averaged coverage (paper, section 3.3).
///
/// After a sample, a region that rose goes to the head of its new bucket, and one that fell to the
/// tail. A region in the same bucket keeps its position. Regions are taken from the highest bucket
/// down, head to tail. These rules settle what the paper leaves open:
/// - A region that was not there before has risen.
/// - Regions that rise into one bucket by one sample come before all others there, and those that
///   fall after all others, ascending by address. So neighbours are promoted one after the other.
///   The order doesn't reverse from sample to sample.
/// - A region that was not accessed (its average rounds to 0) is remembered but waits in no bucket,
///   because promoting it would gain nothing. When accessed, it rises at least into bucket 0.
/// - A region that was taken returns to its old position if the next sample shows the same bucket.
///
/// A sample of `n` regions costs O(n log n), taking a region O(log n).
#[derive(Clone, Debug, Default)]
pub struct AccessMap {
    average: CoverageAveraging,
    entries: HashMap<RegionAddr, MapEntry>,
    buckets: [BTreeMap<i64, RegionAddr>; BUCKET_COUNT as usize],
    /// The last position given out at a head (descending) and at a tail (ascending).
    head: i64,
    tail: i64,
}

impl AccessMap {
    /// An empty map that averages with `average`.
    pub fn new(average: CoverageAveraging) -> Self {
        Self { average, ..Self::default() }
    }

    /// Takes in one sample of the whole process. Regions that are huge or missing from it are
    /// forgotten. Of several samples with one address the first counts.
    pub fn observe(&mut self, samples: &[RegionSample]) {
        let mut known = std::mem::take(&mut self.entries);
        let mut entries = HashMap::with_capacity(samples.len());
        let mut risen = Vec::new();
        for sample in samples.iter().filter(|s| !s.is_huge()) {
            let region = sample.region;
            let Entry::Vacant(vacant) = entries.entry(region) else { continue };
            let before = known.remove(&region);
            let average =
                self.average.average_after_window(before.map(|e| e.average), sample.accessed);
            let coverage = CoverageAveraging::round_to_pages(average);
            let bucket = (coverage > 0).then(|| bucket_of_coverage(coverage));
            let mut entry = MapEntry {
                average,
                present: sample.present,
                file: sample.file,
                bucket,
                position: before.map_or(0, |e| e.position),
                waiting: bucket.is_some(),
            };
            match before {
                Some(before) if before.bucket == bucket => self.add_to_bucket(region, &entry),
                Some(before) => {
                    self.remove_from_bucket(&before);
                    if bucket < before.bucket {
                        self.tail += 1;
                        entry.position = self.tail;
                        self.add_to_bucket(region, &entry);
                    } else {
                        risen.push(region);
                    }
                }
                None => risen.push(region),
            }
            vacant.insert(entry);
        }
        for gone in known.values() {
            self.remove_from_bucket(gone);
        }
        // Each goes to the head, the lowest address last: it ends up first.
        risen.sort_unstable_by_key(|region| Reverse(*region));
        for region in risen {
            if let Some(entry) = entries.get_mut(&region) {
                self.head -= 1;
                entry.position = self.head;
                self.add_to_bucket(region, entry);
            }
        }
        self.entries = entries;
    }

    /// The highest bucket in which a region waits (0-9).
    pub fn highest_bucket(&self) -> Option<u8> {
        (0..BUCKET_COUNT).rev().find(|b| self.count_waiting_in_bucket(*b) > 0)
    }

    /// Takes the head of the highest bucket in which a region waits. The region waits again only
    /// after a sample that still shows it.
    pub fn pop_from_highest_bucket(&mut self) -> Option<WaitingMapRegion> {
        let taken = self.waiting_regions_in_bucket(self.highest_bucket()?).next()?;
        let entry = self.entries.get_mut(&taken.region)?;
        entry.waiting = false;
        self.buckets[usize::from(taken.bucket)].remove(&entry.position);
        Some(taken)
    }

    /// Forgets a region that is huge now, and its average.
    pub fn remove(&mut self, region: RegionAddr) {
        if let Some(removed) = self.entries.remove(&region) {
            self.remove_from_bucket(&removed);
        }
    }

    /// The regions that wait in a bucket (0-9), head to tail.
    fn waiting_regions_in_bucket(&self, bucket: u8) -> impl Iterator<Item = WaitingMapRegion> + '_ {
        let waiting = self.buckets[usize::from(bucket)].values();
        waiting.filter_map(|region| self.find_waiting_region(*region))
    }

    /// The region as a candidate; `None` where it doesn't wait.
    pub fn find_waiting_region(&self, region: RegionAddr) -> Option<WaitingMapRegion> {
        let entry = self.entries.get(&region).filter(|e| e.waiting)?;
        Some(WaitingMapRegion {
            region,
            bucket: entry.bucket?,
            coverage: CoverageAveraging::round_to_pages(entry.average),
            present: entry.present,
            file: entry.file,
        })
    }

    /// Number of regions that wait in a bucket (0-9).
    fn count_waiting_in_bucket(&self, bucket: u8) -> usize {
        self.buckets[usize::from(bucket)].len()
    }

    /// Number of regions that are taken before this one.
    pub fn count_regions_ahead_of(&self, candidate: &WaitingMapRegion) -> u64 {
        let higher =
            (candidate.bucket + 1..BUCKET_COUNT).map(|bucket| self.count_waiting_in_bucket(bucket));
        let here = self.buckets[usize::from(candidate.bucket)].values();
        let here = here.take_while(|r| **r != candidate.region).count();
        (higher.sum::<usize>() + here) as u64
    }

    fn add_to_bucket(&mut self, region: RegionAddr, entry: &MapEntry) {
        if let Some(bucket) = entry.bucket {
            self.buckets[usize::from(bucket)].insert(entry.position, region);
        }
    }

    fn remove_from_bucket(&mut self, entry: &MapEntry) {
        if let Some(bucket) = entry.bucket.filter(|_| entry.waiting) {
            self.buckets[usize::from(bucket)].remove(&entry.position);
        }
    }
}

#[cfg(test)]
mod tests;
