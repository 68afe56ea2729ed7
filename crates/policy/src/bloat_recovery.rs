//! The order in which huge pages are searched for bloat, and what happens to them.
//!
//! Read [`RecoveryPlanner`] first, which has a diagram, then `recovery_order`, then
//! `split_regions`.

mod huge_page_queue;
mod recovery_order;
mod split_regions;

pub use recovery_order::RecoveryOrder;
pub(crate) use split_regions::{FORGET_UNSEEN, MOST_REGIONS};
pub use split_regions::{HeldState, MAY_BE_REFILLED, RegionHold};

use crate::event::Event;
use crate::observation::{Observation, ProcessId};
use crate::page::{BASE_PAGE_BYTES, PAGES_PER_REGION, PageOrder, RegionAddr};
use crate::process_states::ProcessStates;
use crate::reason::Reason;
use crate::sample_kinds::SampleKinds;
use crate::saturating_cast::u32_from_f64;
use crate::setting_error::{Setting, SettingError};
use crate::watermarks::MemoryShortage;
use huge_page_queue::HugePageQueue;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use std::iter::Sum;
use std::time::Duration;

/// Number of zero base pages at which a huge page is split (paper, section 3.2: "a threshold").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BloatThreshold(u16);

impl BloatThreshold {
    /// Splits at `zero_pages` zero base pages or more (1-512).
    pub fn new(zero_pages: u16) -> Result<Self, SettingError> {
        let fits = (1..=PAGES_PER_REGION).contains(&zero_pages);
        let allowed = match PAGES_PER_REGION {
            512 => "at least 1 and at most 512",
            _ => "at least 1 and at most 2048",
        };
        let setting = Setting::BloatThreshold;
        SettingError::error_unless_valid(fits, setting, zero_pages, allowed)?;
        Ok(Self(zero_pages))
    }

    /// Zero base pages (1-512).
    pub fn zero_pages(self) -> u16 {
        self.0
    }
}

impl fmt::Display for BloatThreshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Default for BloatThreshold {
    /// 64 zero base pages: an eighth of a huge page. The paper gives no figure.
    fn default() -> Self {
        Self(PAGES_PER_REGION / 8)
    }
}

/// Memory is over the mark at which recovery starts, and the huge page holds this many zero base
/// pages.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "rule", rename = "bloat")]
struct BloatSplitReason {
    zero_pages: u16,
    /// Split at or above this many.
    threshold: u16,
    /// Page walks per second that the split is expected to cost, where the order goes by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    walks_per_s: Option<u32>,
    /// Share in use of the memory that is short, in per cent.
    used_percent: f64,
    /// Per cent: the high watermark, or less while use grows fast.
    start_percent: f64,
    /// Growth of use, in bytes per second.
    growth_bytes_per_s: u64,
}

impl fmt::Display for BloatSplitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { zero_pages, threshold, used_percent, start_percent, growth_bytes_per_s, .. } =
            self;
        write!(f, "{zero_pages} zero base pages (threshold {threshold})")?;
        if let Some(walks) = self.walks_per_s {
            write!(f, ", expected to cost {walks} page walks/s,")?;
        }
        write!(
            f,
            " with {used_percent:.0} % of memory in use, growing by {} MB/s (recovery starts at {start_percent:.0} %)",
            growth_bytes_per_s / 1_000_000
        )
    }
}

/// While memory is short, a huge page is split for this many base pages that its process gave back
/// (64 KiB), at 0.2 ms of CPU time. There is no huge page to lose, so the threshold of zero pages
/// does not count.
const LEAST_FREED_PAGES_WHILE_SHORT: u16 = 16;

/// The process gave back parts of the huge page, which stay allocated until it is split.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "rule", rename = "freed-part")]
struct FreedPartReason {
    freed_pages: u16,
}

impl fmt::Display for FreedPartReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} base pages that the program gave back", self.freed_pages)
    }
}

/// Chooses the huge pages to search for zero base pages and to split, in a [`RecoveryOrder`].
///
/// ```text
///  samples ----> HugePageQueue (one a process) --take_next_huge_page--> the manager searches it
///                  ^    `-- SplitRegions: is memory taken again?             |
///                  |                                                         v
///                  `---- events: Searched, Recovered, Promoted <--- split_reason, or it waits again
/// ```
///
/// The caller decides how fast to search.
#[derive(Clone, Debug)]
pub struct RecoveryPlanner {
    threshold: BloatThreshold,
    order: RecoveryOrder,
    /// Whether each window clears all access bits of a process.
    clears_all_access_bits: bool,
    owners: ProcessStates<HugePageQueue>,
    /// Turns of processes in background searches.
    turns: u64,
}

/// The next huge page to search and split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryTarget {
    /// Its process.
    pub process: ProcessId,
    /// Its region.
    pub region: RegionAddr,
    /// Zero base pages, where they were counted just now.
    pub known_zero_pages: Option<u16>,
    /// What a split gives back.
    pub kind: BloatKind,
}

/// Memory of a huge page that a split gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BloatKind {
    /// Zero-filled base pages of one that is mapped whole.
    ZeroPages,
    /// What the process gave back of one that base pages map in part.
    FreedPart,
}

/// What is known of a huge page's bloat.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HugePageBloat {
    /// Memory that a split would give back, in bytes.
    pub unused_bytes: u64,
    /// Page walks per second that the split is expected to cost; `None`: unknown.
    pub walks_per_s: Option<f64>,
}

/// The bloat of a process, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BloatTotals {
    /// Memory under huge pages that was zero-filled when they were last searched or made, in bytes.
    /// It may have been used since.
    #[serde(rename = "unused_huge_bytes")]
    pub unused_bytes: u64,
    /// Huge pages that were not accessed in any sample since a window first cleared their access
    /// bit, in bytes. Zero-filled parts of them count in `unused_bytes`, too.
    #[serde(rename = "never_accessed_huge_bytes")]
    pub never_accessed_bytes: u64,
    /// Memory of huge pages that processes gave back and that stays allocated, in bytes. It is not
    /// in `unused_bytes`.
    pub freed_part_bytes: u64,
    /// The part of `unused_bytes` and `freed_part_bytes` that recovery would give back if memory
    /// were short now. It is in huge pages with enough zero or freed base pages, which are not left
    /// huge for a while.
    pub recoverable_bytes: u64,
    /// Page walks per second that this is expected to cost. A huge page of which they are not known
    /// counts with the mean of its process, or of all.
    pub recovery_walks_per_s: f64,
}

impl Sum for BloatTotals {
    fn sum<I: Iterator<Item = Self>>(each: I) -> Self {
        each.fold(Self::default(), |sum, it| Self {
            unused_bytes: sum.unused_bytes + it.unused_bytes,
            never_accessed_bytes: sum.never_accessed_bytes + it.never_accessed_bytes,
            freed_part_bytes: sum.freed_part_bytes + it.freed_part_bytes,
            recoverable_bytes: sum.recoverable_bytes + it.recoverable_bytes,
            recovery_walks_per_s: sum.recovery_walks_per_s + it.recovery_walks_per_s,
        })
    }
}

impl RecoveryPlanner {
    /// A planner that knows no huge page yet. `kinds`: what samples show.
    pub fn new(threshold: BloatThreshold, order: RecoveryOrder, kinds: SampleKinds) -> Self {
        Self {
            threshold,
            order,
            clears_all_access_bits: kinds.includes_coverage(),
            owners: ProcessStates::default(),
            turns: 0,
        }
    }

    /// Takes in one round of samples: which huge pages exist, and which were accessed. Processes
    /// and huge pages that are missing from it are forgotten.
    pub fn observe(&mut self, observation: &Observation) {
        self.observe_listing(observation);
        for sample in &observation.processes {
            if let Some(owner) = self.owners.get_mut(sample.process) {
                owner.weight = sample.terms.weight;
            }
        }
    }

    /// Takes in a listing of huge pages. It does not know what rules set for a process.
    pub fn observe_listing(&mut self, observation: &Observation) {
        let (order, clears_all) = (self.order, self.clears_all_access_bits);
        let usual = order.counts_zero_pages().then(|| self.mean_walks_per_s()).flatten();
        let new = || HugePageQueue::new(order, clears_all);
        for (sample, queue) in self.owners.states_to_update(observation, new) {
            queue.observe(observation.at, sample, usual);
        }
    }

    /// The mean over the processes in which it is known; `None`: in none.
    fn mean_walks_per_s(&self) -> Option<f64> {
        let known: Vec<f64> =
            self.owners.iter().filter_map(HugePageQueue::mean_walks_per_s).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }

    /// Sets the share of its cycles that a process spends in page walks, in per cent (0-100).
    /// `None` or NaN: not known. Kept until the process is gone.
    pub fn set_process_overhead(&mut self, process: ProcessId, overhead_percent: Option<f64>) {
        if let Some(owner) = self.owners.get_mut(process) {
            owner.overhead_percent = overhead_percent.filter(|o| o.is_finite());
        }
    }

    /// Sets the cgroups of the processes of which they are not known yet, where the order is fair
    /// between cgroups. `find` returns a cgroup's path.
    pub fn set_missing_groups(&mut self, find: impl Fn(ProcessId) -> Option<String>) {
        if self.order == RecoveryOrder::MostBytesPerSlowdown {
            for (process, owner) in self.owners.iter_mut().filter(|(_, it)| it.group.is_none()) {
                owner.group = Some(find(process).unwrap_or_default().into());
            }
        }
    }

    /// Forgets the cgroups of all processes, because a process may have moved to another one. What
    /// it has lost then counts there.
    pub fn forget_groups(&mut self) {
        self.owners.iter_mut().for_each(|(_, owner)| owner.group = None);
    }

    /// Takes in what happened since the last observation.
    pub fn apply_event(&mut self, now: Duration, event: &Event) {
        match *event {
            // Smaller pages are no bloat to split, larger ones were huge before, and shared memory
            // gets nothing back.
            Event::Promoted {
                process, region, order: PageOrder::HUGE, effect, file: None, ..
            } => {
                if self.owners.get(process).is_none() {
                    let new = HugePageQueue::new(self.order, self.clears_all_access_bits);
                    self.owners.push(process, new);
                }
                if let Some(owner) = self.owners.get_mut(process) {
                    owner.add_promoted_page(now, region, effect.added_pages);
                }
            }
            Event::Searched { process, region, zero_pages } => {
                if let Some(owner) = self.owners.get_mut(process) {
                    owner.record_search(now, region, zero_pages);
                }
            }
            Event::Recovered { process, region, bytes, .. } => {
                if let Some(owner) = self.owners.get_mut(process) {
                    owner.record_split(now, region, bytes);
                }
            }
            Event::NotSplit { process, region } => {
                if let Some(owner) = self.owners.get_mut(process) {
                    owner.record_refused_split(now, region);
                }
            }
            _ => {}
        }
    }

    /// The next huge page among the processes for which `allowed` is true. From `now` on it rests
    /// for a minute, whatever a search finds, unless [`split_reason`](Self::split_reason) lets
    /// others go first.
    pub fn take_next_huge_page(
        &mut self,
        now: Duration,
        allowed: impl Fn(ProcessId) -> bool,
    ) -> Option<RecoveryTarget> {
        let mut candidates = Vec::new();
        for (process, owner) in self.owners.iter_mut().filter(|(process, _)| allowed(*process)) {
            owner.requeue_rested_pages(now);
            let next = owner.next_huge_page_to_search();
            candidates.extend(next.map(|(rank, region)| (process, rank, region)));
        }
        let (process, _, region) = self.first_by_order(candidates)?;
        let owner = self.owners.get_mut(process)?;
        let kind = owner.bloat_kind(region);
        let known_zero_pages = owner.begin_search(region, now);
        let known_zero_pages = known_zero_pages.filter(|_| self.order.counts_zero_pages());
        Some(RecoveryTarget { process, region, known_zero_pages, kind })
    }

    /// The next huge page of which its process gave parts back, and why it is split. A split frees
    /// them, and costs no page walks. From `now` on the page rests for a minute.
    pub fn take_next_freed_part(&mut self, now: Duration) -> Option<(RecoveryTarget, Reason)> {
        let threshold = self.threshold.zero_pages();
        self.owners.iter_mut().find_map(|(process, owner)| {
            let (region, freed_pages) = owner.next_freed_part(now, threshold)?;
            owner.begin_search(region, now);
            let (known_zero_pages, kind) = (Some(freed_pages), BloatKind::FreedPart);
            let target = RecoveryTarget { process, region, known_zero_pages, kind };
            Some((target, Reason::new(FreedPartReason { freed_pages })))
        })
    }

    /// A huge page that was taken could not even be tried. It is taken again.
    pub fn put_back_huge_page(&mut self, now: Duration, process: ProcessId, region: RegionAddr) {
        if let Some(owner) = self.owners.get_mut(process) {
            owner.put_back(now, region);
        }
    }

    /// Of equal ones the first stays: first come, first served.
    fn first_by_order(
        &self,
        candidates: Vec<(ProcessId, u32, RegionAddr)>,
    ) -> Option<(ProcessId, u32, RegionAddr)> {
        let best = candidates.iter().map(|(_, rank, _)| *rank).min()?;
        let similar = best.saturating_add(self.order.similar_ranks());
        let owner = |process: ProcessId| self.owners.get(process);
        match self.order {
            RecoveryOrder::LowestOverheadFirst => {
                let unknown = self.mean_overhead();
                let overhead = |it: &(ProcessId, u32, RegionAddr)| {
                    owner(it.0).and_then(|owner| owner.overhead_percent).unwrap_or(unknown)
                };
                let by = candidates.into_iter().map(|it| (overhead(&it), it));
                by.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.1.cmp(&b.1.1))).map(|(_, it)| it)
            }
            RecoveryOrder::MostBloatedFirst => {
                let given = |it: &(ProcessId, u32, RegionAddr)| {
                    owner(it.0).map_or(0, |owner| owner.given_bytes)
                };
                candidates.into_iter().filter(|it| it.1 <= similar).min_by_key(given)
            }
            RecoveryOrder::MostBytesPerSlowdown => {
                let mut left = candidates;
                left.retain(|(_, rank, _)| *rank <= similar);
                if left.len() < 2 {
                    return left.into_iter().next();
                }
                let lost_by_group = self.weighted_losses_of_groups();
                let lost = |it: &(ProcessId, u32, RegionAddr)| {
                    let owner = owner(it.0)?;
                    let group = owner.group.as_deref().and_then(|name| lost_by_group.get(name));
                    let own = weighted_loss(owner);
                    Some((group.copied().unwrap_or(own), own))
                };
                let by = left.into_iter().filter_map(|it| Some((lost(&it)?, it)));
                by.min_by(|(a, _), (b, _)| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)))
                    .map(|(_, it)| it)
            }
        }
    }

    fn weighted_losses_of_groups(&self) -> HashMap<&str, f64> {
        let mut groups = HashMap::new();
        for owner in self.owners.iter() {
            if let Some(group) = owner.group.as_deref().filter(|group| !group.is_empty()) {
                *groups.entry(group).or_default() += weighted_loss(owner);
            }
        }
        groups
    }

    /// Whether a huge page with `zero_pages` zero base pages (0-512) should be split now, and why.
    /// `shortage` is the cause of the recovery, for the record. Where the order ranks huge pages,
    /// the page waits again if others among `allowed` processes come before it, unless it is
    /// `urgent`.
    pub fn split_reason(
        &mut self,
        target: RecoveryTarget,
        zero_pages: u16,
        shortage: MemoryShortage,
        urgent: bool,
        allowed: impl Fn(ProcessId) -> bool,
    ) -> Option<Reason> {
        let owner = self.owners.get(target.process)?;
        if let Some(freed_pages) = owner.freed_pages(target.region) {
            let pays = freed_pages >= LEAST_FREED_PAGES_WHILE_SHORT;
            return pays.then(|| Reason::new(FreedPartReason { freed_pages }));
        }
        let threshold = self.threshold.zero_pages();
        if zero_pages < threshold {
            return None;
        }
        let mut walks_per_s = None;
        if self.order.counts_zero_pages() {
            let first = |(process, owner): (ProcessId, &mut HugePageQueue)| {
                let next = owner.next_huge_page_to_search().filter(|_| allowed(process));
                next.map(|(rank, _)| rank)
            };
            let best = self.owners.iter_mut().filter_map(first).min().unwrap_or(u32::MAX);
            let owner = self.owners.get_mut(target.process)?;
            let own = owner.rank_of_region(target.region)?;
            if !urgent && own > best.saturating_add(self.order.similar_ranks()) {
                owner.wait_again(target.region);
                return None;
            }
            walks_per_s = owner.expected_walks_per_s(target.region).map(u32_from_f64);
        }
        Some(Reason::new(BloatSplitReason {
            zero_pages,
            threshold,
            walks_per_s,
            used_percent: shortage.used_percent,
            start_percent: shortage.start_percent,
            growth_bytes_per_s: shortage.growth_bytes_per_s,
        }))
    }

    /// Number of zero base pages after which a search may end. A split needs the threshold. Where
    /// the order ranks huge pages by their zero pages, and it is not `urgent`, all are counted.
    pub fn pages_to_count(&self, urgent: bool) -> u16 {
        match self.order.counts_zero_pages() && !urgent {
            true => PAGES_PER_REGION,
            false => self.threshold.zero_pages(),
        }
    }

    /// The next huge page to search in advance, round after round; `None`: none at present, or the
    /// order needs no counts. A search of it is an [`Event::Searched`]. `idle_since`: since when a
    /// process has done nothing, if it is idle.
    pub fn next_huge_page_to_track(
        &mut self,
        now: Duration,
        idle_since: impl Fn(ProcessId) -> Option<Duration>,
    ) -> Option<(ProcessId, RegionAddr)> {
        if !self.order.counts_zero_pages() {
            return None;
        }
        loop {
            let due = self.owners.iter_mut().filter(|(_, owner)| owner.round_is_due(now));
            let (process, owner) = due.min_by_key(|(_, owner)| owner.last_turn)?;
            self.turns += 1;
            owner.last_turn = self.turns;
            if let Some(region) = owner.next_page_to_track(now, idle_since(process)) {
                return Some((process, region));
            }
        }
    }

    /// The bloat of a process, as far as it is known.
    pub fn bloat_totals(&self, process: ProcessId, now: Duration) -> BloatTotals {
        let threshold = self.threshold.zero_pages();
        let owner = self.owners.get(process);
        owner.map(|owner| owner.bloat_totals(now, threshold)).unwrap_or_default()
    }

    /// What a split of a huge page would give back, and cost; `None`: it was not searched.
    pub fn huge_page_bloat(
        &self,
        process: ProcessId,
        region: RegionAddr,
        now: Duration,
    ) -> Option<HugePageBloat> {
        let owner = self.owners.get(process)?;
        let pages = owner.known_zero_pages(region, now)?;
        let unused_bytes = u64::from(pages) * BASE_PAGE_BYTES;
        Some(HugePageBloat { unused_bytes, walks_per_s: owner.expected_walks_per_s(region) })
    }

    /// Why a region is left huge or split for a while; `None`: it is not.
    pub fn hold_of_region(
        &self,
        process: ProcessId,
        region: RegionAddr,
        now: Duration,
    ) -> Option<RegionHold> {
        self.owners.get(process)?.splits.hold(region, now)
    }

    /// Whether the region is to stay split although it may otherwise be promoted.
    pub fn is_kept_split(&self, process: ProcessId, region: RegionAddr, now: Duration) -> bool {
        let hold = self.hold_of_region(process, region, now);
        hold.is_some_and(|hold| hold.state == HeldState::Split)
    }

    /// Share of the memory that recovery gave back which the process took again soon (0-1).
    pub fn refilled_share(&self, process: ProcessId) -> f64 {
        self.owners.get(process).map_or(0.0, |owner| 1.0 - owner.splits.kept_share())
    }

    /// The assumed overhead of a process of unknown overhead, in per cent.
    fn mean_overhead(&self) -> f64 {
        let known = || self.owners.iter().filter_map(|o| o.overhead_percent);
        known().sum::<f64>() / known().count().max(1) as f64
    }
}

/// A process of weight 2 loses half as much as one of weight 1.
fn weighted_loss(owner: &HugePageQueue) -> f64 {
    owner.splits.lost_walks_per_s * owner.weight
}

#[cfg(test)]
mod tests;
