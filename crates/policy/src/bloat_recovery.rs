//! The order in which huge pages are searched for bloat, and what happens to them.

mod zero_scan_queue;

use crate::event::Event;
use crate::observation::{Observation, ProcessId};
use crate::page::{PAGES_PER_REGION, PageOrder, RegionAddr};
use crate::process_states::ProcessStates;
use crate::reason::Reason;
use crate::setting_error::SettingError;
use crate::watermarks::MemoryShortage;
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use zero_scan_queue::ZeroScanQueue;

/// Number of zero base pages at which a huge page is split (paper, section 3.2: "a threshold").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BloatThreshold(u16);

impl BloatThreshold {
    /// Splits at `zero_pages` zero base pages or more (1-512).
    pub fn new(zero_pages: u16) -> Result<Self, SettingError> {
        let fits = (1..=PAGES_PER_REGION).contains(&zero_pages);
        let setting = "bloat threshold (zero base pages)";
        SettingError::error_unless_valid(fits, setting, zero_pages, "at least 1 and at most 512")?;
        Ok(Self(zero_pages))
    }

    /// Zero base pages (1-512).
    pub fn zero_pages(self) -> u16 {
        self.0
    }
}

impl Default for BloatThreshold {
    /// 64 zero base pages: an eighth of a huge page. The paper gives no figure.
    fn default() -> Self {
        Self(64)
    }
}

const RESCAN_AFTER: Duration = Duration::from_secs(60);

/// Memory is over the mark at which recovery starts, and the huge page holds this many zero base
/// pages.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "rule", rename = "bloat")]
struct BloatSplitReason {
    zero_pages: u16,
    /// Split at or above this many.
    threshold: u16,
    /// Share in use of the memory that is short, in per cent.
    used_percent: f64,
    /// Per cent: the high watermark, or less while use grows fast.
    start_percent: f64,
    /// Growth of use, in bytes per second.
    growth_bytes_per_s: u64,
}

impl fmt::Display for BloatSplitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { zero_pages, threshold, used_percent, start_percent, growth_bytes_per_s } = self;
        write!(
            f,
            "{zero_pages} zero base pages (threshold {threshold}) with {used_percent:.0} % of memory in use, growing by {} MB/s (recovery starts at {start_percent:.0} %)",
            growth_bytes_per_s / 1_000_000
        )
    }
}

/// Chooses the huge pages to scan for zero base pages, and judges what was found (paper,
/// section 3.2).
///
/// The process with the lowest overhead comes first, because it loses least. A process of unknown
/// overhead counts with the mean of the others. Among processes of equal overhead, and within one,
/// huge pages that were not accessed come first. Then come order of arrival and order of address.
/// The caller decides how fast to scan.
#[derive(Clone, Debug)]
pub struct RecoveryPlanner {
    threshold: BloatThreshold,
    owners: ProcessStates<ZeroScanQueue>,
}

impl RecoveryPlanner {
    /// A planner with this threshold that knows no huge page yet.
    pub fn new(threshold: BloatThreshold) -> Self {
        Self { threshold, owners: ProcessStates::default() }
    }

    /// Takes in one round of samples: which huge pages exist, and which were accessed. Processes
    /// and huge pages that are missing from it are forgotten.
    pub fn observe(&mut self, observation: &Observation) {
        for (sample, queue) in self.owners.states_to_update(observation, ZeroScanQueue::default) {
            queue.observe(sample);
        }
    }

    /// Sets the share of its cycles that a process spends in page walks, in per cent (0-100).
    /// `None` or NaN: not known. Kept until the process is gone.
    pub fn set_process_overhead(&mut self, process: ProcessId, overhead_percent: Option<f64>) {
        if let Some(owner) = self.owners.get_mut(process) {
            owner.overhead_percent = overhead_percent.filter(|o| o.is_finite());
        }
    }

    /// Takes in what happened since the last observation.
    pub fn apply_event(&mut self, event: &Event) {
        match *event {
            // Smaller pages are no bloat to split, and larger ones were huge before.
            Event::Promoted { process, region, order: PageOrder::HUGE, .. } => {
                // It counts as accessed, because that is why it was promoted.
                if let Some(owner) = self.owners.get_mut(process) {
                    owner.add_or_update_page(region, true);
                } else {
                    let mut owner = ZeroScanQueue::default();
                    owner.add_or_update_page(region, true);
                    self.owners.push(process, owner);
                }
            }
            // A page that the kernel did not split is held elsewhere for a short time. It does not
            // rest like a page that is not worth a split, but waits for the next listing.
            Event::Recovered { process, region, .. } | Event::NotSplit { process, region } => {
                if let Some(owner) = self.owners.get_mut(process) {
                    owner.remove_page(region);
                }
            }
            _ => {}
        }
    }

    /// The next huge page to scan among the processes for which `allowed` is true. From `now` on it
    /// rests for a minute, whatever the scan finds.
    pub fn take_next_huge_page_to_scan(
        &mut self,
        now: Duration,
        allowed: impl Fn(ProcessId) -> bool,
    ) -> Option<(ProcessId, RegionAddr)> {
        let unknown = self.mean_overhead();
        let owners = self.owners.iter_mut();
        let first = owners
            .filter(|(process, _)| allowed(*process))
            .filter_map(|(process, owner)| {
                owner.requeue_rested_pages(now, RESCAN_AFTER);
                let (accessed, region) = owner.next_huge_page_to_scan()?;
                let overhead = owner.overhead_percent.unwrap_or(unknown);
                Some((overhead, accessed, region, process, owner))
            })
            // Of equal ones the first stays: first come, first served.
            .min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (_, accessed, region, process, owner) = first?;
        owner.mark_scanned(accessed, region, now);
        Some((process, region))
    }

    /// Whether a huge page with `zero_pages` zero base pages (0-512) should be split, and why.
    /// `shortage` is the cause of the recovery, for the record.
    pub fn split_reason(&self, zero_pages: u16, shortage: MemoryShortage) -> Option<Reason> {
        let threshold = self.threshold.zero_pages();
        (zero_pages >= threshold).then(|| {
            Reason::new(BloatSplitReason {
                zero_pages,
                threshold,
                used_percent: shortage.used_percent,
                start_percent: shortage.start_percent,
                growth_bytes_per_s: shortage.growth_bytes_per_s,
            })
        })
    }

    /// Number of zero base pages at which a huge page is split. A scan need not count further.
    pub fn threshold(&self) -> BloatThreshold {
        self.threshold
    }

    /// The assumed overhead of a process of unknown overhead, in per cent.
    fn mean_overhead(&self) -> f64 {
        let known = || self.owners.iter().filter_map(|o| o.overhead_percent);
        known().sum::<f64>() / known().count().max(1) as f64
    }
}

#[cfg(test)]
mod tests;
