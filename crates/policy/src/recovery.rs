//! In which order huge pages are searched for bloat, and what is done about it.

mod owner;

use crate::error::SettingError;
use crate::event::Event;
use crate::observation::{Observation, ProcessId};
use crate::page::{PAGES_PER_REGION, PageOrder, RegionAddr};
use crate::reason::Reason;
use crate::watermarks::Shortage;
use owner::Owner;
use serde::Serialize;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

/// From how many zero base pages on a huge page is split (paper, section 3.2: "a threshold").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BloatThreshold(u16);

impl BloatThreshold {
    /// Split at or above `zero_pages` zero base pages (1-512).
    pub fn new(zero_pages: u16) -> Result<Self, SettingError> {
        if (1..=PAGES_PER_REGION).contains(&zero_pages) {
            Ok(Self(zero_pages))
        } else {
            let setting = "bloat threshold (zero base pages)";
            Err(SettingError::new(
                setting,
                zero_pages,
                "at least 1 and at most 512",
            ))
        }
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

/// What recovery can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoverySettings {
    /// When to split.
    pub threshold: BloatThreshold,
    /// How long a huge page that was scanned is not scanned again (60 s).
    pub rescan_after: Duration,
}

impl Default for RecoverySettings {
    fn default() -> Self {
        Self {
            threshold: BloatThreshold::default(),
            rescan_after: Duration::from_secs(60),
        }
    }
}

/// Memory is over the mark at which it is recovered, and the huge page holds this many zero base
/// pages.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "rule", rename = "bloat")]
struct BloatReason {
    /// Zero-filled base pages found.
    zero_pages: u16,
    /// Split at or above this many.
    threshold: u16,
    /// Memory in use, per cent, of what is short of it.
    used_percent: f64,
    /// The share above which recovery started, per cent: the high watermark, or less while use grows
    /// fast.
    start_percent: f64,
    /// How fast use grows, bytes per second.
    growth_bytes_per_s: u64,
}

impl fmt::Display for BloatReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            zero_pages,
            threshold,
            used_percent,
            start_percent,
            growth_bytes_per_s,
        } = self;
        write!(
            f,
            "{zero_pages} zero base pages (threshold {threshold}) with {used_percent:.0} % of memory in use, growing by {} MB/s (recovered from {start_percent:.0} % on)",
            growth_bytes_per_s / 1_000_000
        )
    }
}

/// A huge page to scan for zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanTarget {
    /// Whose.
    pub process: ProcessId,
    /// Which.
    pub region: RegionAddr,
    /// Whether it was accessed in the last window.
    pub accessed: bool,
}

/// Chooses the huge pages to scan for zero base pages, and judges what was found (paper,
/// section 3.2).
///
/// The process with the lowest overhead comes first: it loses least. Where the overhead of some
/// processes isn't known, these count as equal to the mean of the others. Among processes of equal
/// overhead, and within one, huge pages that were not accessed come first; then the order is that of
/// arrival, then that of addresses. How fast to scan is for the caller to say.
#[derive(Clone, Debug)]
pub struct RecoveryPlanner {
    settings: RecoverySettings,
    /// First come first.
    owners: Vec<Owner>,
    /// Known overheads, in per cent of cycles.
    overheads: HashMap<ProcessId, f64>,
}

impl RecoveryPlanner {
    /// Knows no huge page yet.
    pub fn new(settings: RecoverySettings) -> Self {
        Self {
            settings,
            owners: Vec::new(),
            overheads: HashMap::new(),
        }
    }

    /// Takes in one round of samples: which huge pages there are, and which were accessed. Processes
    /// and huge pages that are missing from it are forgotten.
    pub fn observe(&mut self, observation: &Observation) {
        let mut known: HashMap<ProcessId, Owner> =
            self.owners.drain(..).map(|o| (o.process, o)).collect();
        for sampled in &observation.processes {
            let before = known.remove(&sampled.process);
            self.owners.push(Owner::sampled(sampled, before));
        }
        let unread = observation.unread.iter();
        self.owners
            .extend(unread.filter_map(|process| known.remove(process)));
        let there: HashSet<ProcessId> = self.owners.iter().map(|o| o.process).collect();
        self.overheads.retain(|p, _| there.contains(p));
    }

    /// Told how much of its cycles a process spends in page walks, in per cent (0-100); `None`, or
    /// what is not a number: not known. Kept until the process is gone.
    pub fn set_overhead(&mut self, process: ProcessId, overhead_percent: Option<f64>) {
        match overhead_percent.filter(|o| o.is_finite()) {
            Some(overhead) => self.overheads.insert(process, overhead),
            None => self.overheads.remove(&process),
        };
    }

    /// Takes in what happened since the last observation.
    pub fn apply(&mut self, event: &Event) {
        match *event {
            // Smaller pages are no bloat to be split, larger ones were huge before.
            Event::Promoted {
                process,
                region,
                order: PageOrder::HUGE,
                ..
            } => self.add(process, region),
            // One that the kernel did not split is held by somebody who lets go soon: it does not
            // rest like one that is not worth it, but waits to be listed again.
            Event::Recovered {
                process, region, ..
            }
            | Event::NotSplit { process, region } => self.remove(process, region),
            _ => {}
        }
    }

    /// It counts as accessed, for that is why it was promoted.
    fn add(&mut self, process: ProcessId, region: RegionAddr) {
        match self.owners.iter_mut().find(|o| o.process == process) {
            Some(owner) => owner.add(region, true),
            None => {
                let mut owner = Owner::new(process);
                owner.add(region, true);
                self.owners.push(owner);
            }
        }
    }

    fn remove(&mut self, process: ProcessId, region: RegionAddr) {
        if let Some(owner) = self.owners.iter_mut().find(|o| o.process == process) {
            owner.remove(region);
        }
    }

    /// The next huge page to scan among the processes for which `allowed` is true. From `now` on it
    /// rests for `rescan_after`, whatever comes of the scan.
    pub fn next(
        &mut self,
        now: Duration,
        allowed: impl Fn(ProcessId) -> bool,
    ) -> Option<ScanTarget> {
        let unknown = self.mean_overhead();
        let mut best: Option<(f64, bool, RegionAddr, &mut Owner)> = None;
        for owner in self.owners.iter_mut().filter(|o| allowed(o.process)) {
            owner.wake(now, self.settings.rescan_after);
            let Some((accessed, region)) = owner.first() else {
                continue;
            };
            let overhead = self
                .overheads
                .get(&owner.process)
                .copied()
                .unwrap_or(unknown);
            // The first of equals stays: first come first.
            let better = best
                .as_ref()
                .is_none_or(|(best_overhead, best_accessed, ..)| {
                    overhead
                        .total_cmp(best_overhead)
                        .then(accessed.cmp(best_accessed))
                        == Ordering::Less
                });
            if better {
                best = Some((overhead, accessed, region, owner));
            }
        }
        let (_, accessed, region, owner) = best?;
        owner.scan(accessed, region, now);
        Some(ScanTarget {
            process: owner.process,
            region,
            accessed,
        })
    }

    /// Whether a huge page with `zero_pages` zero base pages (0-512) is to be split, and why.
    /// `shortage` is why memory is recovered, for the record.
    pub fn judge(&self, zero_pages: u16, shortage: Shortage) -> Option<Reason> {
        let threshold = self.settings.threshold.zero_pages();
        (zero_pages >= threshold).then(|| {
            Reason::new(BloatReason {
                zero_pages,
                threshold,
                used_percent: shortage.used_percent,
                start_percent: shortage.start_percent,
                growth_bytes_per_s: shortage.growth_bytes_per_s,
            })
        })
    }

    /// From how many zero base pages on a huge page is split: a scan needn't count further.
    pub fn threshold(&self) -> BloatThreshold {
        self.settings.threshold
    }

    /// Huge pages known of, in all processes.
    pub fn huge_pages(&self) -> usize {
        self.owners.iter().map(Owner::huge_pages).sum()
    }

    /// What a process of unknown overhead counts as, in per cent.
    fn mean_overhead(&self) -> f64 {
        let known = self.overheads.len().max(1) as f64;
        self.overheads.values().sum::<f64>() / known
    }
}

#[cfg(test)]
mod tests;
