//! The huge pages of one process, in the order in which they are scanned.

use crate::observation::{CoverageSource, ProcessSample};
use crate::page::RegionAddr;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
struct QueuedHugePage {
    accessed: bool,
    /// When it was last scanned, while that still keeps it from another scan.
    resting_since: Option<Duration>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ZeroScanQueue {
    /// Its overhead, in per cent of cycles, if known.
    pub(super) overhead_percent: Option<f64>,
    pages: HashMap<RegionAddr, QueuedHugePage>,
    /// Pages to scan: not accessed first, then by address.
    waiting: BTreeSet<(bool, RegionAddr)>,
    /// Scanned pages, the longest ago first. An entry is skipped when its page is gone or was
    /// scanned again.
    resting: VecDeque<(Duration, RegionAddr)>,
}

impl ZeroScanQueue {
    /// Replaces the pages by those of a sample. Pages that rest go on resting.
    pub(super) fn observe(&mut self, sampled: &ProcessSample) {
        let before = std::mem::take(&mut self.pages);
        self.waiting.clear();
        for sample in sampled.regions.iter().filter(|s| s.is_huge()) {
            let known = before.get(&sample.region);
            let resting_since = known.and_then(|page| page.resting_since);
            let accessed = match (sampled.source, known) {
                // A sample of the population says nothing about accesses.
                (CoverageSource::Population, Some(page)) => page.accessed,
                _ => sample.accessed > 0,
            };
            self.pages.insert(sample.region, QueuedHugePage { accessed, resting_since });
            if resting_since.is_none() {
                self.waiting.insert((accessed, sample.region));
            }
        }
    }

    pub(super) fn next_huge_page_to_scan(&self) -> Option<(bool, RegionAddr)> {
        self.waiting.first().copied()
    }

    pub(super) fn add_or_update_page(&mut self, region: RegionAddr, accessed: bool) {
        let page =
            self.pages.entry(region).or_insert(QueuedHugePage { accessed, resting_since: None });
        self.waiting.remove(&(page.accessed, region));
        page.accessed = accessed;
        if page.resting_since.is_none() {
            self.waiting.insert((accessed, region));
        }
    }

    pub(super) fn remove_page(&mut self, region: RegionAddr) {
        if let Some(page) = self.pages.remove(&region) {
            self.waiting.remove(&(page.accessed, region));
        }
    }

    pub(super) fn requeue_rested_pages(&mut self, now: Duration, rescan_after: Duration) {
        while let Some((since, region)) = self.resting.front().copied() {
            if now < since.saturating_add(rescan_after) {
                break;
            }
            self.resting.pop_front();
            if let Some(page) = self.pages.get_mut(&region) {
                if page.resting_since == Some(since) {
                    page.resting_since = None;
                    self.waiting.insert((page.accessed, region));
                }
            }
        }
    }

    pub(super) fn mark_scanned(&mut self, accessed: bool, region: RegionAddr, now: Duration) {
        self.waiting.remove(&(accessed, region));
        if let Some(page) = self.pages.get_mut(&region) {
            page.resting_since = Some(now);
        }
        self.resting.push_back((now, region));
    }
}
