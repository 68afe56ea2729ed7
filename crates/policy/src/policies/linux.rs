//! Linux's order and pace: what khugepaged does (`mm/khugepaged.c`).

use crate::budget::{Rate, TokenBucket};
use crate::observation::{Observation, ProcessId, RegionSample};
use crate::page::{PAGES_PER_REGION, RegionAddr};
use crate::plan::{Promotion, Reason};
use crate::policy::{Needs, Policy};
use std::collections::{HashSet, VecDeque};
use std::time::Duration;

/// How fast regions are promoted. Only successes count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// khugepaged's: a batch, then sleep.
    Khugepaged {
        /// Base pages in a batch; 512 make one region, and a batch is at least one.
        pages_to_scan: u32,
        /// From the start of one batch to the start of the next (the batch itself takes khugepaged
        /// next to no time).
        scan_sleep: Duration,
    },
    /// This many regions per second.
    PerSecond(Rate),
    /// As fast as they are taken.
    Unlimited,
}

impl Default for Pace {
    /// The kernel's defaults: 4096 base pages (8 regions) every 10 s.
    fn default() -> Self {
        Self::Khugepaged {
            pages_to_scan: 4096,
            scan_sleep: Duration::from_secs(10),
        }
    }
}

/// What the Linux policy can be told. The defaults are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinuxSettings {
    /// Base pages of a region that may be missing (khugepaged's setting of that name; 511 and more:
    /// one present page is enough). Default 511.
    pub max_ptes_none: u16,
    /// How fast.
    pub pace: Pace,
}

impl Default for LinuxSettings {
    fn default() -> Self {
        Self {
            max_ptes_none: 511,
            pace: Pace::default(),
        }
    }
}

/// Where the scan goes on.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    process: ProcessId,
    /// First address not yet scanned.
    address: u64,
}

/// A region that the scan will come to.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    process: ProcessId,
    region: RegionAddr,
    present: u16,
}

/// First come first served, one process fully before the next, low to high addresses, then from the
/// first process again.
///
/// As in the kernel the scan goes on where it was when processes come, go and grow: a region that
/// appears behind the cursor, or was refused, waits for the next time round. Unlike the kernel's,
/// it costs nothing to pass over a region that can't be promoted.
#[derive(Debug)]
pub struct LinuxOrder {
    /// Base pages that must be present (1-512).
    min_present: u16,
    pacer: Pacer,
    /// Processes of the last observation, first come first.
    order: Vec<ProcessId>,
    cursor: Option<Cursor>,
    /// What lies before the scan, once around.
    queue: VecDeque<Waiting>,
    /// Proposals not settled yet.
    proposed: HashSet<(ProcessId, RegionAddr)>,
}

impl LinuxOrder {
    /// Its name on the command line.
    pub const NAME: &'static str = "linux";

    /// Starts at the first process and the lowest address.
    pub fn new(settings: LinuxSettings) -> Self {
        Self {
            min_present: PAGES_PER_REGION
                .saturating_sub(settings.max_ptes_none)
                .max(1),
            pacer: Pacer::new(settings.pace),
            order: Vec::new(),
            cursor: None,
            queue: VecDeque::new(),
            proposed: HashSet::new(),
        }
    }

    fn eligible(&self, sample: &RegionSample) -> bool {
        !sample.huge && sample.present >= self.min_present
    }

    /// The cursor among the processes that are there now: in its own process, or at the start of
    /// the first one after it that is left, or else of the first newcomer.
    fn moved_cursor(&self, processes: &[ProcessId]) -> Option<Cursor> {
        let cursor = self.cursor?;
        let left: HashSet<&ProcessId> = processes.iter().collect();
        let from = self
            .order
            .iter()
            .position(|p| *p == cursor.process)
            .unwrap_or(0);
        let after = self.order.iter().skip(from).find(|p| left.contains(p));
        if after == Some(&cursor.process) {
            return Some(cursor);
        }
        let newcomer = || processes.iter().find(|p| !self.order.contains(p));
        let process = *after.or_else(newcomer)?;
        Some(Cursor {
            process,
            address: 0,
        })
    }
}

impl Policy for LinuxOrder {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn needs(&self) -> Needs {
        Needs::Population
    }

    fn observe(&mut self, observation: &Observation) {
        let order: Vec<ProcessId> = observation.processes.iter().map(|p| p.process).collect();
        self.cursor = self.moved_cursor(&order);
        let mut queue = Vec::new();
        let mut behind = 0;
        let mut reached = self.cursor.is_none();
        for sampled in &observation.processes {
            let from = match self.cursor {
                Some(cursor) if cursor.process == sampled.process => {
                    reached = true;
                    cursor.address
                }
                _ => 0,
            };
            let start = queue.len();
            queue.extend(
                sampled
                    .regions
                    .iter()
                    .filter(|s| self.eligible(s))
                    .map(|s| Waiting {
                        process: sampled.process,
                        region: s.region,
                        present: s.present,
                    }),
            );
            let added = queue.get_mut(start..).unwrap_or_default();
            added.sort_by_key(|w| w.region);
            if !reached {
                behind = queue.len();
            } else if from > 0 {
                behind = start + added.partition_point(|w| w.region.start() < from);
            }
        }
        queue.rotate_left(behind);
        self.queue = queue.into();
        self.order = order;
        // What is still unsettled was dropped without a word; it stays spent.
        self.proposed.clear();
    }

    fn next_promotion(&mut self, now: Duration) -> Option<Promotion> {
        if self.queue.is_empty() || !self.pacer.take(now) {
            return None;
        }
        let next = self.queue.pop_front()?;
        self.cursor = Some(Cursor {
            process: next.process,
            address: next.region.end(),
        });
        self.proposed.insert((next.process, next.region));
        Some(Promotion {
            process: next.process,
            region: next.region,
            expected_present: next.present,
            reason: Reason::AddressOrder {
                present: next.present,
            },
        })
    }

    fn settle(&mut self, process: ProcessId, region: RegionAddr, took: Option<Duration>) {
        if self.proposed.remove(&(process, region)) && took.is_none() {
            self.pacer.give_back();
        }
    }
}

/// Keeps to a [`Pace`]. A proposal is spent at once and given back when nothing came of it, so that
/// any number of proposals can be under way.
#[derive(Debug)]
enum Pacer {
    Batches {
        size: u32,
        every: Duration,
        began: Option<Duration>,
        spent: u32,
    },
    PerSecond(TokenBucket),
    Unlimited,
}

impl Pacer {
    fn new(pace: Pace) -> Self {
        match pace {
            Pace::Khugepaged {
                pages_to_scan,
                scan_sleep,
            } => Self::Batches {
                size: (pages_to_scan / u32::from(PAGES_PER_REGION)).max(1),
                every: scan_sleep,
                began: None,
                spent: 0,
            },
            Pace::PerSecond(rate) => Self::PerSecond(TokenBucket::one_second(rate)),
            Pace::Unlimited => Self::Unlimited,
        }
    }

    fn take(&mut self, now: Duration) -> bool {
        match self {
            Self::Batches {
                size,
                every,
                began,
                spent,
            } => {
                if began.is_none_or(|began| now >= began.saturating_add(*every)) {
                    *began = Some(now);
                    *spent = 0;
                }
                let left = *spent < *size;
                *spent += u32::from(left);
                left
            }
            Self::PerSecond(bucket) => bucket.take(now, 1),
            Self::Unlimited => true,
        }
    }

    fn give_back(&mut self) {
        match self {
            Self::Batches { spent, .. } => *spent = spent.saturating_sub(1),
            Self::PerSecond(bucket) => bucket.give_back(1),
            Self::Unlimited => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SettingError;
    use crate::testing::{at, huge, observation, process, region, sample};

    fn unlimited() -> LinuxOrder {
        LinuxOrder::new(LinuxSettings {
            pace: Pace::Unlimited,
            ..Default::default()
        })
    }

    /// Takes up to `n` proposals at `now` and says that all were carried out.
    fn take(policy: &mut LinuxOrder, now: Duration, n: usize) -> Vec<(u32, u64)> {
        let mut taken = Vec::new();
        while taken.len() < n {
            let Some(p) = policy.next_promotion(now) else {
                break;
            };
            policy.settle(p.process, p.region, Some(Duration::from_micros(400)));
            taken.push((p.process.pid, p.region.start() >> 21));
        }
        taken
    }

    fn regions(indices: std::ops::Range<u64>) -> Vec<RegionSample> {
        indices.map(|i| sample(i, 0)).collect()
    }

    #[test]
    fn one_process_before_the_next_in_address_order() {
        let mut policy = unlimited();
        policy.observe(&observation(&[(7, regions(1..4)), (3, regions(0..2))]));
        assert_eq!(
            take(&mut policy, at(0), 9),
            [(7, 1), (7, 2), (7, 3), (3, 0), (3, 1)]
        );
    }

    #[test]
    fn eight_regions_every_ten_seconds() {
        let mut policy = LinuxOrder::new(LinuxSettings::default());
        policy.observe(&observation(&[(1, regions(0..30))]));
        assert_eq!(take(&mut policy, at(0), 99).len(), 8);
        assert_eq!(take(&mut policy, at(9), 99).len(), 0);
        assert_eq!(take(&mut policy, at(10), 99).len(), 8);
        // Time without anything to do is not saved up.
        assert_eq!(take(&mut policy, at(100), 99).len(), 8);
    }

    #[test]
    fn only_successes_count() {
        let mut policy = LinuxOrder::new(LinuxSettings::default());
        policy.observe(&observation(&[(1, regions(0..30))]));
        for _ in 0..5 {
            let proposal = policy.next_promotion(at(0)).map(|p| (p.process, p.region));
            let Some((process, region)) = proposal else {
                panic!("failures were counted")
            };
            policy.settle(process, region, None);
            // Told twice, counted once.
            policy.settle(process, region, None);
        }
        assert_eq!(take(&mut policy, at(0), 99).len(), 8);
    }

    #[test]
    fn proposals_under_way_count_until_they_fail() {
        let mut policy = LinuxOrder::new(LinuxSettings::default());
        policy.observe(&observation(&[(1, regions(0..30))]));
        let under_way: Vec<_> = std::iter::from_fn(|| policy.next_promotion(at(0)))
            .map(|p| p.region)
            .collect();
        assert_eq!(under_way.len(), 8);
        policy.settle(process(1), under_way[3], None);
        assert_eq!(take(&mut policy, at(1), 99).len(), 1);
    }

    #[test]
    fn a_given_rate_replaces_the_pace() -> Result<(), SettingError> {
        let pace = Pace::PerSecond(Rate::per_second(2.0)?);
        let mut policy = LinuxOrder::new(LinuxSettings {
            pace,
            ..Default::default()
        });
        policy.observe(&observation(&[(1, regions(0..100))]));
        assert_eq!(take(&mut policy, at(0), 99).len(), 2);
        assert_eq!(take(&mut policy, at(1), 99).len(), 2);
        Ok(())
    }

    #[test]
    fn enough_pages_must_be_present() {
        let present = |index, present| RegionSample {
            present,
            ..sample(index, 0)
        };
        let samples = vec![present(0, 0), present(1, 1), present(2, 448), huge(3, true)];
        let mut policy = unlimited();
        policy.observe(&observation(&[(1, samples.clone())]));
        assert_eq!(take(&mut policy, at(0), 9), [(1, 1), (1, 2)]);
        let settings = LinuxSettings {
            max_ptes_none: 64,
            pace: Pace::Unlimited,
        };
        let mut strict = LinuxOrder::new(settings);
        strict.observe(&observation(&[(1, samples)]));
        let taken = strict.next_promotion(at(0));
        assert_eq!(taken.as_ref().map(|p| p.region), Some(region(2)));
        assert_eq!(
            taken.map(|p| p.reason),
            Some(Reason::AddressOrder { present: 448 })
        );
        assert_eq!(strict.next_promotion(at(0)), None);
    }

    #[test]
    fn the_scan_goes_on_where_it_was_and_wraps() {
        let mut policy = unlimited();
        let round = observation(&[(1, regions(0..3)), (2, regions(0..3))]);
        policy.observe(&round);
        assert_eq!(take(&mut policy, at(0), 2), [(1, 0), (1, 1)]);
        // Nothing came of them, say: they wait until the scan has been round.
        policy.observe(&round);
        assert_eq!(
            take(&mut policy, at(0), 4),
            [(1, 2), (2, 0), (2, 1), (2, 2)]
        );
        policy.observe(&round);
        let once_round = [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)];
        assert_eq!(take(&mut policy, at(0), 99), once_round);
    }

    #[test]
    fn the_scan_goes_on_after_a_process_that_is_gone() {
        let mut policy = unlimited();
        policy.observe(&observation(&[
            (1, regions(0..2)),
            (2, regions(0..2)),
            (3, regions(0..2)),
        ]));
        assert_eq!(take(&mut policy, at(0), 3), [(1, 0), (1, 1), (2, 0)]);
        policy.observe(&observation(&[
            (1, regions(0..2)),
            (3, regions(0..2)),
            (4, regions(0..1)),
        ]));
        assert_eq!(take(&mut policy, at(0), 3), [(3, 0), (3, 1), (4, 0)]);
        // The last one gone, nobody new: from the first again.
        policy.observe(&observation(&[(1, regions(0..2)), (3, regions(0..2))]));
        assert_eq!(take(&mut policy, at(0), 1), [(1, 0)]);
        // All gone but for a newcomer.
        policy.observe(&observation(&[(9, regions(0..2))]));
        assert_eq!(take(&mut policy, at(0), 9), [(9, 0), (9, 1)]);
    }

    #[test]
    fn the_last_region_of_the_last_process_is_followed_by_the_first() {
        let mut policy = unlimited();
        let round = observation(&[(1, regions(0..1)), (2, regions(0..1))]);
        policy.observe(&round);
        assert_eq!(take(&mut policy, at(0), 2), [(1, 0), (2, 0)]);
        policy.observe(&round);
        assert_eq!(take(&mut policy, at(0), 2), [(1, 0), (2, 0)]);
    }
}
