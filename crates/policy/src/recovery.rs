//! In which order huge pages are searched for bloat, and what is done about it.

use crate::error::SettingError;
use crate::observation::{CoverageSource, Observation, ProcessId};
use crate::page::{PAGES_PER_REGION, RegionAddr};
use crate::plan::Reason;
use crate::watermarks::Shortage;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
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

#[derive(Clone, Copy, Debug)]
struct HugePage {
    accessed: bool,
    /// When it was last scanned, while that keeps it from being scanned again.
    resting_since: Option<Duration>,
}

/// The huge pages of one process.
#[derive(Clone, Debug)]
struct Owner {
    process: ProcessId,
    pages: HashMap<RegionAddr, HugePage>,
    /// Pages to scan: not accessed first, then by address.
    waiting: BTreeSet<(bool, RegionAddr)>,
    /// Pages that were scanned, the longest ago first. An entry whose page is gone, or was scanned
    /// again, is passed over when its turn comes.
    resting: VecDeque<(Duration, RegionAddr)>,
}

impl Owner {
    fn new(process: ProcessId) -> Self {
        Self {
            process,
            pages: HashMap::new(),
            waiting: BTreeSet::new(),
            resting: VecDeque::new(),
        }
    }

    fn add(&mut self, region: RegionAddr, accessed: bool) {
        let page = self.pages.entry(region).or_insert(HugePage {
            accessed,
            resting_since: None,
        });
        self.waiting.remove(&(page.accessed, region));
        page.accessed = accessed;
        if page.resting_since.is_none() {
            self.waiting.insert((accessed, region));
        }
    }

    fn remove(&mut self, region: RegionAddr) {
        if let Some(page) = self.pages.remove(&region) {
            self.waiting.remove(&(page.accessed, region));
        }
    }

    /// Lets pages that were scanned `rescan_after` ago wait again.
    fn wake(&mut self, now: Duration, rescan_after: Duration) {
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

    fn scan(&mut self, accessed: bool, region: RegionAddr, now: Duration) {
        self.waiting.remove(&(accessed, region));
        if let Some(page) = self.pages.get_mut(&region) {
            page.resting_since = Some(now);
        }
        self.resting.push_back((now, region));
    }
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
            let mut owner = Owner::new(sampled.process);
            if let Some(before) = &before {
                owner.resting.clone_from(&before.resting);
            }
            for sample in sampled.regions.iter().filter(|s| s.huge) {
                let known = before.as_ref().and_then(|b| b.pages.get(&sample.region));
                let resting_since = known.and_then(|page| page.resting_since);
                let accessed = match (sampled.source, known) {
                    // A mere list of what is there says nothing about accesses.
                    (CoverageSource::Population, Some(page)) => page.accessed,
                    _ => sample.accessed > 0,
                };
                owner.pages.insert(
                    sample.region,
                    HugePage {
                        accessed,
                        resting_since,
                    },
                );
                if resting_since.is_none() {
                    owner.waiting.insert((accessed, sample.region));
                }
            }
            self.owners.push(owner);
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

    /// A region became huge since the last observation. It counts as accessed, for that is why it
    /// was promoted.
    pub fn note_huge(&mut self, process: ProcessId, region: RegionAddr) {
        match self.owners.iter_mut().find(|o| o.process == process) {
            Some(owner) => owner.add(region, true),
            None => {
                let mut owner = Owner::new(process);
                owner.add(region, true);
                self.owners.push(owner);
            }
        }
    }

    /// A region is no longer huge: it was split, or its process says so.
    pub fn note_split(&mut self, process: ProcessId, region: RegionAddr) {
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
            let Some((accessed, region)) = owner.waiting.first().copied() else {
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
        (zero_pages >= threshold).then_some(Reason::Bloat {
            zero_pages,
            threshold,
            used_percent: shortage.used_percent,
            start_percent: shortage.start_percent,
            growth_bytes_per_s: shortage.growth_bytes_per_s,
        })
    }

    /// From how many zero base pages on a huge page is split: a scan needn't count further.
    pub fn threshold(&self) -> BloatThreshold {
        self.settings.threshold
    }

    /// Huge pages known of, in all processes.
    pub fn huge_pages(&self) -> usize {
        self.owners.iter().map(|o| o.pages.len()).sum()
    }

    /// What a process of unknown overhead counts as, in per cent.
    fn mean_overhead(&self) -> f64 {
        let known = self.overheads.len().max(1) as f64;
        self.overheads.values().sum::<f64>() / known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{at, huge, observation, process, region, sample};
    use proptest::prelude::*;

    fn planner() -> RecoveryPlanner {
        RecoveryPlanner::new(RecoverySettings::default())
    }

    fn scan_all(planner: &mut RecoveryPlanner, now: Duration) -> Vec<(u32, u64)> {
        std::iter::from_fn(|| planner.next(now, |_| true))
            .map(|t| (t.process.pid, t.region.start() >> 21))
            .collect()
    }

    #[test]
    fn not_accessed_first_then_address_order() {
        let mut planner = planner();
        let samples = vec![huge(1, true), huge(2, false), sample(3, 0), huge(4, false)];
        planner.observe(&observation(&[(1, samples)]));
        assert_eq!(planner.huge_pages(), 3);
        assert_eq!(scan_all(&mut planner, at(0)), [(1, 2), (1, 4), (1, 1)]);
    }

    #[test]
    fn lowest_overhead_first() {
        let mut planner = planner();
        let round: Vec<_> = (1..=3).map(|pid| (pid, vec![huge(1, pid == 1)])).collect();
        planner.observe(&observation(&round));
        planner.set_overhead(process(1), Some(1.0));
        planner.set_overhead(process(2), Some(9.0));
        // 3 is not known and counts as 5 %. Overhead goes before access.
        assert_eq!(scan_all(&mut planner, at(0)), [(1, 1), (3, 1), (2, 1)]);
    }

    #[test]
    fn without_overheads_what_was_not_accessed_comes_first_in_all_processes() {
        let mut planner = planner();
        let samples = vec![huge(1, true), huge(2, false)];
        planner.observe(&observation(&[(1, samples.clone()), (2, samples)]));
        planner.set_overhead(process(1), Some(f64::NAN));
        assert_eq!(
            scan_all(&mut planner, at(0)),
            [(1, 2), (2, 2), (1, 1), (2, 1)]
        );
    }

    #[test]
    fn only_from_the_processes_allowed() {
        let mut planner = planner();
        planner.observe(&observation(&[
            (1, vec![huge(1, false)]),
            (2, vec![huge(1, true)]),
        ]));
        let only_2 = |p: ProcessId| p == process(2);
        assert_eq!(
            planner.next(at(0), only_2).map(|t| t.process),
            Some(process(2))
        );
        assert_eq!(planner.next(at(0), only_2), None);
    }

    #[test]
    fn scanned_pages_rest() {
        let mut planner = planner();
        let round = observation(&[(1, vec![huge(1, false), huge(2, false)])]);
        planner.observe(&round);
        assert_eq!(
            planner.next(at(0), |_| true).map(|t| t.region),
            Some(region(1))
        );
        assert_eq!(
            planner.next(at(10), |_| true).map(|t| t.region),
            Some(region(2))
        );
        planner.observe(&round);
        assert_eq!(scan_all(&mut planner, at(59)), []);
        assert_eq!(scan_all(&mut planner, at(60)), [(1, 1)]);
        assert_eq!(scan_all(&mut planner, at(70)), [(1, 2)]);
        assert_eq!(scan_all(&mut planner, at(119)), []);
        assert_eq!(scan_all(&mut planner, at(200)), [(1, 1), (1, 2)]);
    }

    #[test]
    fn pages_made_huge_or_split_since_are_known() {
        let mut planner = planner();
        planner.observe(&observation(&[(1, vec![huge(1, true)])]));
        planner.note_huge(process(1), region(0));
        planner.note_huge(process(5), region(9));
        planner.note_split(process(1), region(1));
        assert_eq!(scan_all(&mut planner, at(0)), [(1, 0), (5, 9)]);
        // Split and huge again within the rest: a new huge page, and its old rest is no concern.
        planner.note_split(process(1), region(0));
        planner.note_huge(process(1), region(0));
        assert_eq!(scan_all(&mut planner, at(30)), [(1, 0)]);
        assert_eq!(scan_all(&mut planner, at(60)), [(5, 9)]);
        assert_eq!(scan_all(&mut planner, at(90)), [(1, 0)]);
        planner.observe(&observation(&[]));
        assert_eq!(planner.huge_pages(), 0);
    }

    #[test]
    fn split_at_or_above_the_threshold() {
        let planner = planner();
        let short = Shortage {
            used_percent: 90.0,
            start_percent: 85.0,
            growth_bytes_per_s: 7,
        };
        assert_eq!(planner.judge(63, short), None);
        let bloat = Reason::Bloat {
            zero_pages: 64,
            threshold: 64,
            used_percent: 90.0,
            start_percent: 85.0,
            growth_bytes_per_s: 7,
        };
        assert_eq!(planner.judge(64, short), Some(bloat));
        assert!(BloatThreshold::new(0).is_err());
        assert!(BloatThreshold::new(513).is_err());
        assert!(BloatThreshold::new(512).is_ok());
    }

    proptest! {
        /// Each huge page is scanned once in `rescan_after`, none is lost.
        #[test]
        fn each_page_once(
            pages in prop::collection::vec(prop::collection::vec(any::<bool>(), 0..20), 0..5),
            observe_every in 1usize..10,
        ) {
            let processes: Vec<_> = (1u32..)
                .zip(&pages)
                .map(|(pid, p)| (pid, (0u64..).zip(p).map(|(i, a)| huge(i, *a)).collect()))
                .collect();
            let round = observation(&processes);
            let mut planner = planner();
            planner.observe(&round);
            for start in [0, 60, 120] {
                let mut seen = BTreeSet::new();
                let mut scans = 0;
                while let Some(target) = planner.next(at(start), |_| true) {
                    prop_assert!(seen.insert((target.process, target.region)));
                    scans += 1;
                    if scans % observe_every == 0 {
                        planner.observe(&round);
                    }
                }
                prop_assert_eq!(seen.len(), pages.iter().map(Vec::len).sum::<usize>());
            }
        }
    }
}
