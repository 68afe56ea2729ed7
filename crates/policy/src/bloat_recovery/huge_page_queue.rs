//! The huge pages of one process, in the order in which they are searched and split.

use super::recovery_order::{RankedHugePage, RecoveryOrder, SPLIT_WALKS_PER_S};
use super::split_regions::{HeldState, SplitRegions};
use super::{BloatKind, BloatTotals};
use crate::observation::{CoverageSource, ProcessSample, RegionSample};
use crate::page::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};
use crate::saturating_cast::u16_from_f64;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

/// What is known of a huge page.
#[derive(Clone, Copy, Debug, Default)]
struct HugePage {
    accessed: bool,
    /// Whether it was never found accessed since its access bit was first cleared; `None` before
    /// that. A first touch sets the bit, so until then it tells nothing.
    never_accessed: Option<bool>,
    /// Page walks per second that it caused under base pages, when that was last seen.
    base_walks_per_s: Option<f64>,
    touches_per_s: Option<f64>,
    search: Option<ZeroSearch>,
    /// Whether the process gave parts of it back, which a split frees; base pages map the rest.
    is_partly_freed: bool,
    /// Its rank while it waits; `None` while it rests.
    waits_with_rank: Option<u32>,
    /// When its last rest ends or ended.
    rests_until: Option<Duration>,
    /// How often the kernel did not split it.
    times_refused: u8,
}

/// A search for zero base pages.
#[derive(Clone, Copy, Debug)]
struct ZeroSearch {
    at: Duration,
    zero_pages: u16,
}

impl HugePage {
    /// Page walks per second that its accesses are expected to cause under base pages: at most one
    /// for each access.
    fn expected_walks_per_s(&self) -> Option<f64> {
        match (self.accessed, self.base_walks_per_s, self.touches_per_s) {
            (false, ..) => Some(0.0),
            (true, Some(walks), Some(touches)) => Some(walks.min(touches)),
            (true, walks, touches) => walks.or(touches),
        }
    }

    /// Takes in whether it was accessed. `cleared`: a window has cleared its access bit before.
    fn record_access(&mut self, cleared: bool) {
        self.never_accessed = match (self.accessed, self.never_accessed) {
            (false, before) => Some(before != Some(false)),
            (true, None) if !cleared => None,
            (true, _) => Some(false),
        };
    }

    /// Zero base pages, if they were counted and that still counts.
    fn known_zero_pages(&self, now: Duration) -> Option<u16> {
        let search = self.search.filter(|search| now < search.at.saturating_add(STALE));
        search.map(|search| search.zero_pages)
    }
}

/// Zero base pages that a huge page is expected to hold before it was searched: half of all. Others
/// of its process tell nothing, because bloat is concentrated in some regions. A search costs far
/// less than a split.
const UNSEARCHED_ZERO_PAGES: f64 = PAGES_PER_REGION as f64 / 2.0;
/// Page walks per second of a huge page before anything is known: a middling figure.
const UNKNOWN_WALKS_PER_S: f64 = 100.0;
/// A search this recent is not repeated before a split.
const FRESH: Duration = Duration::from_secs(10);
/// After this time a page is searched again, to keep the count of unused memory up to date.
const SEARCH_AGAIN: Duration = Duration::from_secs(600);
/// The same while its process has done nothing since: before the count grows stale.
const SEARCH_IDLE_AGAIN: Duration = Duration::from_secs(3000);
/// What was found longer ago does not count any more.
const STALE: Duration = Duration::from_secs(3600);
/// A page that was searched rests for this long.
const SEARCH_REST: Duration = Duration::from_secs(60);
/// A page that the kernel did not split is held elsewhere, usually for a short time. It rests for
/// this long after the first time, and twice as long after each further time.
const REFUSED_REST: Duration = Duration::from_secs(10);
/// The longest such rest is this many doublings of the first: 640 s.
const MOST_DOUBLINGS: u8 = 6;
/// Pause between two rounds through all pages in search of unsearched ones.
const ROUND_PAUSE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(super) struct HugePageQueue {
    order: RecoveryOrder,
    /// Whether each window clears all access bits of the process.
    clears_all_access_bits: bool,
    /// Its overhead, in per cent of cycles, if known.
    pub(super) overhead_percent: Option<f64>,
    pub(super) weight: f64,
    /// Its cgroup, once that is known.
    pub(super) group: Option<Arc<str>>,
    pub(super) splits: SplitRegions,
    /// Memory that it gave back so far.
    pub(super) given_bytes: u64,
    pages: BTreeMap<RegionAddr, HugePage>,
    /// Page walks of its regions under base pages, for the time when they are huge.
    base_walks_per_s: HashMap<RegionAddr, f64>,
    /// Pages that wait and of which the process gave parts back, by the size of these parts.
    partly_freed: BTreeSet<(u16, RegionAddr)>,
    /// Whether there are such pages, also among those that rest.
    has_partly_freed: bool,
    /// Pages to search, by rank and address.
    waiting: BTreeSet<(u32, RegionAddr)>,
    /// Resting pages by the end of their rest. An entry is skipped when its page is gone or has
    /// begun another rest.
    resting: BTreeSet<(Duration, RegionAddr)>,
    /// Page walks per second of a page of which they are not known.
    usual_walks_per_s: f64,
    /// The last page that the current round of background searches came to.
    round_at: Option<RegionAddr>,
    next_round: Duration,
    /// When its turn of background searches last came.
    pub(super) last_turn: u64,
}

impl HugePageQueue {
    pub(super) fn new(order: RecoveryOrder, clears_all_access_bits: bool) -> Self {
        Self {
            order,
            clears_all_access_bits,
            overhead_percent: None,
            weight: 1.0,
            group: None,
            splits: SplitRegions::default(),
            given_bytes: 0,
            pages: BTreeMap::new(),
            partly_freed: BTreeSet::new(),
            has_partly_freed: false,
            base_walks_per_s: HashMap::new(),
            waiting: BTreeSet::new(),
            resting: BTreeSet::new(),
            usual_walks_per_s: UNKNOWN_WALKS_PER_S,
            round_at: None,
            next_round: Duration::ZERO,
            last_turn: 0,
        }
    }

    /// Replaces the pages by those of a sample. Pages that rest go on resting. `other_walks_per_s`:
    /// the usual page walks of a huge page in other processes, if known.
    pub(super) fn observe(
        &mut self,
        at: Duration,
        sampled: &ProcessSample,
        other_walks_per_s: Option<f64>,
    ) {
        let ranked = self.order.counts_zero_pages();
        // A sample of the population says nothing about accesses.
        let shows_accesses = sampled.source != CoverageSource::Population;
        if self.order == RecoveryOrder::MostBytesPerSlowdown {
            self.splits.observe(at, &sampled.regions);
        }
        let before = std::mem::take(&mut self.pages);
        self.waiting.clear();
        self.partly_freed.clear();
        self.has_partly_freed = sampled.regions.iter().any(|sample| sample.freed > 0);
        for sample in sampled.regions.iter().filter(|s| s.is_recoverable()) {
            let mut page = before.get(&sample.region).copied().unwrap_or_else(|| HugePage {
                accessed: sample.accessed > 0,
                base_walks_per_s: self.base_walks_per_s.get(&sample.region).copied(),
                ..HugePage::default()
            });
            let was_partly_freed = before.get(&sample.region).map(|page| page.is_partly_freed);
            let is_new = was_partly_freed != Some(sample.freed > 0);
            page.is_partly_freed = sample.freed > 0;
            if page.is_partly_freed {
                (page.accessed, page.never_accessed) = (false, None);
                page.search = Some(ZeroSearch { at, zero_pages: sample.freed });
            } else if shows_accesses {
                page.accessed = sample.accessed > 0;
                page.record_access(self.clears_all_access_bits || sample.touches_per_s.is_some());
                page.touches_per_s = sample.touches_per_s.map(f64::from).or(page.touches_per_s);
            }
            let waits = is_new || page.waits_with_rank.is_some();
            page.waits_with_rank = waits.then_some(0);
            self.pages.insert(sample.region, page);
        }
        if ranked && shows_accesses {
            self.remember_base_walks(sampled);
            self.update_usual_walks(other_walks_per_s, sampled.cpu_cores);
        }
        let waiting = self.pages.iter().filter(|(_, page)| page.waits_with_rank.is_some());
        let waiting: Vec<_> = waiting.map(|(region, page)| (*region, self.rank(page))).collect();
        for (region, rank) in waiting {
            if !self.is_left_huge(region, at) {
                self.wait_with_rank(region, rank);
            }
        }
    }

    /// Whether the process took memory of the region again, so that it is not split for a while.
    /// What it gave back itself is freed at any time.
    fn is_left_huge(&self, region: RegionAddr, now: Duration) -> bool {
        self.freed_pages(region).is_none()
            && self.splits.hold(region, now).is_some_and(|hold| hold.state == HeldState::Huge)
    }

    fn remember_base_walks(&mut self, sampled: &ProcessSample) {
        let walked = |r: &&RegionSample| !r.is_huge() && r.walks_per_s > 0;
        let per_wall_s = |r: &RegionSample| f64::from(r.walks_per_s) * sampled.cpu_cores;
        let walks = sampled.regions.iter().filter(walked).map(|r| (r.region, per_wall_s(r)));
        self.base_walks_per_s = walks.collect();
    }

    fn update_usual_walks(&mut self, other_walks_per_s: Option<f64>, cpu_cores: f64) {
        // A process that hardly runs is not probed, and causes few walks.
        let of_others = other_walks_per_s.unwrap_or(UNKNOWN_WALKS_PER_S) * cpu_cores.min(1.0);
        self.usual_walks_per_s = self.mean_walks_per_s().unwrap_or(of_others);
    }

    /// Mean of the accessed huge pages of which it is known; `None`: of none.
    pub(super) fn mean_walks_per_s(&self) -> Option<f64> {
        let accessed = || self.pages.values().filter(|page| page.accessed);
        let known = || accessed().filter_map(HugePage::expected_walks_per_s);
        let pages = known().count();
        (pages > 0).then(|| known().sum::<f64>() / pages as f64)
    }

    fn rank(&self, page: &HugePage) -> u32 {
        let searched = page.search.map(|search| f64::from(search.zero_pages));
        self.order.rank(&RankedHugePage {
            zero_pages: searched.unwrap_or(UNSEARCHED_ZERO_PAGES),
            kept_share: self.splits.kept_share(),
            accessed: page.accessed,
            walks_per_s: page.expected_walks_per_s().unwrap_or(self.usual_walks_per_s),
        })
    }

    fn wait_with_rank(&mut self, region: RegionAddr, rank: u32) {
        if let Some(page) = self.pages.get_mut(&region) {
            if let Some(old) = page.waits_with_rank.replace(rank) {
                self.waiting.remove(&(old, region));
            }
            self.waiting.insert((rank, region));
            self.partly_freed.extend(self.freed_pages(region).map(|freed| (freed, region)));
        }
    }

    /// The first page to search, with its rank.
    pub(super) fn next_huge_page_to_search(&self) -> Option<(u32, RegionAddr)> {
        self.waiting.first().copied()
    }

    /// The freed base pages of a page of which the process gave parts back.
    pub(super) fn freed_pages(&self, region: RegionAddr) -> Option<u16> {
        // Of most processes no page is.
        let page = self.has_partly_freed.then(|| self.pages.get(&region))??;
        page.search.filter(|_| page.is_partly_freed).map(|search| search.zero_pages)
    }

    pub(super) fn bloat_kind(&self, region: RegionAddr) -> BloatKind {
        match self.freed_pages(region) {
            Some(_) => BloatKind::FreedPart,
            None => BloatKind::ZeroPages,
        }
    }

    /// The waiting page with most freed base pages, if they are `threshold` or more; and how many.
    pub(super) fn next_freed_part(
        &mut self,
        now: Duration,
        threshold: u16,
    ) -> Option<(RegionAddr, u16)> {
        // Other pages keep the rank that they have when recovery takes them.
        if !self.has_partly_freed {
            return None;
        }
        self.requeue_rested_pages(now);
        let most = self.partly_freed.last().filter(|(freed, _)| *freed >= threshold);
        most.map(|(freed, region)| (*region, *freed))
    }

    /// A region that became huge now, by a promotion that added `added_pages` base pages.
    pub(super) fn add_promoted_page(&mut self, now: Duration, region: RegionAddr, added: u16) {
        self.splits.record_promotion(region);
        // It counts as accessed, because that is why it was promoted.
        let before = self.pages.get(&region).copied().unwrap_or_default();
        let page = HugePage {
            accessed: true,
            never_accessed: Some(false),
            base_walks_per_s: self.base_walks_per_s.get(&region).copied(),
            // Known, but not by a search.
            search: Some(ZeroSearch { at: now.saturating_sub(FRESH), zero_pages: added }),
            is_partly_freed: false,
            ..before
        };
        let rank = self.rank(&page);
        self.remove_page(region);
        self.pages.insert(region, HugePage { waits_with_rank: None, ..page });
        self.wait_with_rank(region, rank);
    }

    fn remove_page(&mut self, region: RegionAddr) {
        if let Some(rank) = self.pages.get(&region).and_then(|page| page.waits_with_rank) {
            self.remove_from_waiting(region, rank);
        }
        self.pages.remove(&region);
    }

    fn remove_from_waiting(&mut self, region: RegionAddr, rank: u32) {
        self.waiting.remove(&(rank, region));
        if let Some(freed) = self.freed_pages(region) {
            self.partly_freed.remove(&(freed, region));
        }
    }

    /// A page was split and gave memory back.
    pub(super) fn record_split(&mut self, now: Duration, region: RegionAddr, bytes: u64) {
        let page = self.pages.get(&region).copied();
        self.remove_page(region);
        self.given_bytes += bytes;
        // The process does without what it gave back itself.
        let was_used = !page.is_some_and(|page| page.is_partly_freed);
        if self.order == RecoveryOrder::MostBytesPerSlowdown && was_used {
            let walks = page.and_then(|page| page.expected_walks_per_s());
            let given_pages = u16_from_f64((bytes / BASE_PAGE_BYTES) as f64);
            let walks = walks.unwrap_or(self.usual_walks_per_s);
            self.splits.record_split(now, region, given_pages, walks + SPLIT_WALKS_PER_S);
        }
    }

    pub(super) fn requeue_rested_pages(&mut self, now: Duration) {
        while let Some((until, region)) = self.resting.first().copied() {
            if now < until {
                break;
            }
            self.resting.pop_first();
            let page = self.pages.get(&region).filter(|page| page.waits_with_rank.is_none());
            let rested = page.filter(|page| page.rests_until == Some(until));
            if let Some(rank) = rested.map(|page| self.rank(page)) {
                self.wait_with_rank(region, rank);
            }
        }
    }

    /// The page rests from now on. Returns its zero pages where these were counted just now.
    pub(super) fn begin_search(&mut self, region: RegionAddr, now: Duration) -> Option<u16> {
        if let Some(rank) = self.pages.get(&region)?.waits_with_rank {
            self.remove_from_waiting(region, rank);
        }
        let page = self.pages.get_mut(&region)?;
        page.waits_with_rank = None;
        let until = now.saturating_add(SEARCH_REST);
        page.rests_until = Some(until);
        self.resting.insert((until, region));
        let known = page.search.filter(|search| now < search.at.saturating_add(FRESH));
        known.map(|search| search.zero_pages)
    }

    /// Nothing was done with a page that rests since it was taken: it waits again.
    pub(super) fn put_back(&mut self, now: Duration, region: RegionAddr) {
        if let Some(page) = self.pages.get_mut(&region) {
            if let Some(until) = page.rests_until.replace(now) {
                self.resting.remove(&(until, region));
            }
            self.resting.insert((now, region));
        }
    }

    /// The kernel did not split a page that rests since it was taken.
    pub(super) fn record_refused_split(&mut self, now: Duration, region: RegionAddr) {
        if let Some(page) = self.pages.get_mut(&region) {
            let rest = REFUSED_REST * (1 << page.times_refused.min(MOST_DOUBLINGS));
            page.times_refused = page.times_refused.saturating_add(1);
            let until = now.saturating_add(rest);
            page.rests_until = Some(until);
            self.resting.insert((until, region));
        }
    }

    /// Takes in how many zero pages a search found.
    pub(super) fn record_search(&mut self, now: Duration, region: RegionAddr, zero_pages: u16) {
        let Some(page) = self.pages.get_mut(&region) else { return };
        let rests = page.waits_with_rank.is_none();
        if page.is_partly_freed {
            self.partly_freed.retain(|(_, other)| *other != region);
            page.is_partly_freed = zero_pages > 0;
        }
        page.search = Some(ZeroSearch { at: now, zero_pages });
        if !rests && !self.is_left_huge(region, now) {
            self.wait_again(region);
        }
    }

    /// The page waits again, because others come before it.
    pub(super) fn wait_again(&mut self, region: RegionAddr) {
        if let Some(rank) = self.pages.get(&region).map(|page| self.rank(page)) {
            self.wait_with_rank(region, rank);
        }
    }

    /// The rank of a page by what is known of it.
    pub(super) fn rank_of_region(&self, region: RegionAddr) -> Option<u32> {
        self.pages.get(&region).map(|page| self.rank(page))
    }

    /// Page walks per second that a split of the page is expected to cost, if known.
    pub(super) fn expected_walks_per_s(&self, region: RegionAddr) -> Option<f64> {
        self.pages.get(&region)?.expected_walks_per_s()
    }

    /// Whether a round of background searches may begin or continue.
    pub(super) fn round_is_due(&self, now: Duration) -> bool {
        now >= self.next_round
    }

    /// The next page of the round; `None` at its end. `idle_since`: since when the process has done
    /// nothing, if it is idle.
    pub(super) fn next_page_to_track(
        &mut self,
        now: Duration,
        idle_since: Option<Duration>,
    ) -> Option<RegionAddr> {
        let from = self.round_at.map_or(Bound::Unbounded, Bound::Excluded);
        let old = |page: &HugePage| {
            page.search.is_none_or(|search| {
                let unchanged = idle_since.is_some_and(|since| since <= search.at);
                let again = if unchanged { SEARCH_IDLE_AGAIN } else { SEARCH_AGAIN };
                now >= search.at.saturating_add(again)
            })
        };
        let mut rest = self.pages.range((from, Bound::Unbounded));
        self.round_at = rest.find(|(_, page)| old(page)).map(|(region, _)| *region);
        if self.round_at.is_none() {
            self.next_round = now + ROUND_PAUSE;
        }
        self.round_at
    }

    /// Zero base pages of a page, if they were counted and that still counts.
    pub(super) fn known_zero_pages(&self, region: RegionAddr, now: Duration) -> Option<u16> {
        self.pages.get(&region)?.known_zero_pages(now)
    }

    /// The bloat of all pages. Recovery splits those with at least `threshold` zero or freed base
    /// pages.
    pub(super) fn bloat_totals(&self, now: Duration, threshold: u16) -> BloatTotals {
        let mut totals = BloatTotals::default();
        for (region, page) in &self.pages {
            if page.never_accessed == Some(true) {
                totals.never_accessed_bytes += HUGE_PAGE_BYTES;
            }
            let Some(zero_pages) = page.known_zero_pages(now) else { continue };
            let bytes = u64::from(zero_pages) * BASE_PAGE_BYTES;
            match page.is_partly_freed {
                true => totals.freed_part_bytes += bytes,
                false => totals.unused_bytes += bytes,
            }
            if zero_pages >= threshold && !self.is_left_huge(*region, now) {
                totals.recoverable_bytes += bytes;
                let walks = page.expected_walks_per_s().unwrap_or(self.usual_walks_per_s);
                totals.recovery_walks_per_s += walks;
            }
        }
        totals
    }
}
