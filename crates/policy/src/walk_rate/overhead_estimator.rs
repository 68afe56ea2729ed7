//! From touched pages to rates, and from rates to overhead.

use super::confidence_interval::{
    CpuShareEstimate, NINETY_PERCENT, jackknife_standard_error, ninety_percent_interval,
};
use super::expected_touch_rates::{TouchCount, expected_touch_rates};
use super::region_probe_plan::READS_AFTER;
use super::touched_pages_by_pattern::{PageBitmap, TouchedPagesByPattern};
use super::walk_costs::{
    TouchKind, WalkCostAtInterval, WalkCosts, WalkCostsAtFootprint, WalkRates,
    tightest_loop_walk_percent,
};
use crate::page::{BASE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};
use crate::saturating_cast::{ratio_or_zero, u32_from_f64, u64_from_f64};
use crate::translation_overhead::{TranslationOverhead, TranslationOverheadSource};
use std::collections::HashMap;
use std::time::Duration;

/// What one read of one region found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionAccessBits {
    /// The region.
    pub region: RegionAddr,
    /// Whether it is one huge page. If so, `touched` is all or nothing.
    pub huge: bool,
    /// Time since its access bits were cleared.
    pub exposed: Duration,
    /// Pages touched in this time.
    pub touched: PageBitmap,
}

/// What all rounds found at their `n`th read.
#[derive(Clone, Copy, Debug, Default)]
struct ProbeReadTotals {
    /// Sum over regions of base pages, in seconds.
    exposed_s: f64,
    regions: u64,
    /// Base pages touched, by [`TouchKind`].
    touches: [u64; 3],
    /// Regions in which streamed or strided pages were seen. Such pages come in groups.
    ordered_regions: u64,
    huge_exposed_s: f64,
    huge_regions: u64,
    huge_touched: u64,
    cpu_s: f64,
    wall_s: f64,
}

impl ProbeReadTotals {
    fn add(&mut self, other: &Self) {
        self.exposed_s += other.exposed_s;
        self.regions += other.regions;
        for (sum, touches) in self.touches.iter_mut().zip(other.touches) {
            *sum += touches;
        }
        self.ordered_regions += other.ordered_regions;
        self.huge_exposed_s += other.huge_exposed_s;
        self.huge_regions += other.huge_regions;
        self.huge_touched += other.huge_touched;
        self.cpu_s += other.cpu_s;
        self.wall_s += other.wall_s;
    }

    fn count_touched_base_pages(&self) -> u64 {
        self.touches.iter().sum()
    }

    /// How many touches of a kind came independently of each other, and how many give a rate.
    fn independent_touches_and_needed(&self, kind: TouchKind) -> (u64, u64) {
        match kind {
            TouchKind::Streamed | TouchKind::Strided => {
                (self.ordered_regions, ORDERED_REGIONS_NEEDED)
            }
            TouchKind::Scattered => (self.touches[kind as usize], MARKS_ENOUGH),
        }
    }
}

/// What one round found, or several, at each read.
type ProbeTotalsByRead = [ProbeReadTotals; READS_AFTER.len()];

fn last_read(reads: &ProbeTotalsByRead) -> &ProbeReadTotals {
    &reads[READS_AFTER.len() - 1]
}

/// The reads from which a kind's rate follows, by their number.
#[derive(Clone, Copy, Debug)]
struct RateReads {
    kind: TouchKind,
    /// The first with enough touches.
    telling: usize,
    /// The first after which the next one showed enough new touches.
    before_new: Option<usize>,
}

impl RateReads {
    fn choose_reads_for_touch_kind(kind: TouchKind, reads: &ProbeTotalsByRead) -> Self {
        let touches = |read: &ProbeReadTotals| read.touches[kind as usize];
        let enough = |read: &ProbeReadTotals| {
            let (independent, enough) = read.independent_touches_and_needed(kind);
            independent >= enough
        };
        let new = |pair: &[ProbeReadTotals]| {
            let new = touches(&pair[1]).saturating_sub(touches(&pair[0]));
            new >= MARKS_NEEDED && pair[1].exposed_s > pair[0].exposed_s
        };
        Self {
            kind,
            telling: reads.iter().position(enough).unwrap_or(reads.len() - 1),
            before_new: reads.windows(2).position(new),
        }
    }

    /// Whether all pages of this kind that the process uses were touched long before the last
    /// read. Their rate then is only a lower bound: each may have been touched several times.
    fn is_all_touched_early(self, reads: &ProbeTotalsByRead) -> bool {
        /// Share of the pages from which on all count as touched.
        const FULL: f64 = 0.9;
        let touched = |read: &ProbeReadTotals| read.touches[self.kind as usize] as f64;
        let (first, last) = (&reads[0], last_read(reads));
        let full = touched(first) >= first.regions as f64 * f64::from(PAGES_PER_REGION) * FULL;
        let early = |read: &&ProbeReadTotals| last.exposed_s >= 2.0 * read.exposed_s;
        let no_more =
            reads.iter().rfind(early).is_some_and(|read| touched(read) >= touched(last) * FULL);
        touched(first) > 0.0 && (full || no_more)
    }
}

/// The share of ordered pages with a rate that is only a lower bound. The process loses as much as
/// was seen, or up to the share of the tightest loop that was measured. The best estimate is in the
/// middle, by the logarithm.
fn cpu_share_from_lower_bound(
    seen: CpuShareEstimate,
    costs: &[WalkCostAtInterval],
    beyond_tlb: f64,
) -> CpuShareEstimate {
    let ratio =
        ratio_or_zero(tightest_loop_walk_percent(costs) * beyond_tlb, seen.percent).max(1.0);
    let percent = seen.percent * ratio.sqrt();
    let ends_at = percent * ratio.ln() / 2.0 / NINETY_PERCENT;
    CpuShareEstimate {
        percent,
        added_error: seen.added_error * ratio.sqrt(),
        factor_error: (seen.factor_error * ratio.sqrt()).hypot(ends_at),
    }
}

#[derive(Clone, Copy, Debug)]
struct RegionProbeRead {
    shape: TouchedPagesByPattern,
    /// CPU time of the process since the region's bits were cleared, in seconds.
    cpu_s: f64,
}

/// Puts the reads of one process's window together.
#[derive(Clone, Debug, Default)]
pub struct OverheadEstimator {
    base_regions: f64,
    huge_regions: f64,
    first_touch_s: f64,
    /// What the rounds for the rate found, each at all reads.
    rate_rounds: Vec<ProbeTotalsByRead>,
    /// The same for all rounds in which the process was at work, also those for comparison only.
    at_work: ProbeTotalsByRead,
    round: Vec<ProbeReadTotals>,
    round_reads: HashMap<RegionAddr, Vec<RegionProbeRead>>,
    all: ProbeReadTotals,
    since_it_ran: ProbeReadTotals,
    reads: HashMap<RegionAddr, Vec<RegionProbeRead>>,
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
pub struct OverheadEstimate {
    /// `None`: the process used less CPU than [`WORTH_CORES`].
    pub overhead: Option<TranslationOverhead>,
    /// The part of it that comes from huge pages, in per cent of the process's CPU time. More huge
    /// pages would not save that part.
    pub huge_percent: f64,
    /// CPU time used, in cores, without the cost of probing to the program.
    pub cpu_cores: f64,
    /// Page walks by region.
    pub walks: Vec<RegionWalksPerSecond>,
}

/// Page walks of one region, per second of CPU time. A cheap walk counts as a fraction of a full
/// one, by its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionWalksPerSecond {
    /// The region.
    pub region: RegionAddr,
    /// Expected value, from what all regions showed. Decisions use this one.
    pub expected_per_s: u32,
    /// As counted, including chance. Averaged over many windows it is the region's own rate.
    pub counted_per_s: u32,
}

/// Fewer marks than this give no rate.
const MARKS_NEEDED: u64 = 64;
/// This many give a rate to a few per cent.
const MARKS_ENOUGH: u64 = 1000;
/// At least this many regions with ordered touches give a rate: a single stream is in one at a
/// time.
const ORDERED_REGIONS_NEEDED: u64 = 32;
/// A process that used less of a core than this hardly ran.
const LEAST_CORES: f64 = 0.002;
/// A process that uses less of a core than this is left alone: promotions would save next to
/// nothing of a core, and first touches would cost it more.
pub const WORTH_CORES: f64 = 0.05;
/// A process has paused when it used less than this share of its average CPU time in a round.
const RAN_SHARE: f64 = 0.5;
/// Standard error of any estimate, in percentage points: base pages have effects that loops leave
/// out. Of sequential reads all walks are hidden, and their gain from huge pages was -0.2 to 1.4 %
/// (four runs of `hawkeye-lab bench --live walk-rate`, November 2026).
const LEAST_ERROR_PERCENT: f64 = 0.6;
/// When first touches take more than this share of the process's time, they slow it too much for
/// its true rate to show.
const CAPPED_SHARE: f64 = 0.25;

impl OverheadEstimator {
    /// For a process with `base_regions` and `huge_regions`, on a machine where the first touch
    /// after a clear costs `first_touch`.
    pub fn new(base_regions: u64, huge_regions: u64, first_touch: Duration) -> Self {
        Self {
            base_regions: base_regions as f64,
            huge_regions: huge_regions as f64,
            first_touch_s: first_touch.as_secs_f64(),
            ..Self::default()
        }
    }

    /// Takes in one read of the current round; returns the touched base pages and huge pages. `cpu`
    /// is the CPU time that the process used since the round began, `wall` the time since then.
    pub fn record_probe_read(
        &mut self,
        marks: &[RegionAccessBits],
        cpu: Duration,
        wall: Duration,
    ) -> u64 {
        let mut pool = ProbeReadTotals {
            cpu_s: cpu.as_secs_f64(),
            wall_s: wall.as_secs_f64(),
            ..ProbeReadTotals::default()
        };
        let mut seen = Vec::with_capacity(marks.len());
        for mark in marks {
            let exposed_s = mark.exposed.as_secs_f64();
            if mark.huge {
                pool.huge_regions += 1;
                pool.huge_exposed_s += exposed_s;
                pool.huge_touched += u64::from(mark.touched.count() > 0);
                continue;
            }
            let shape = TouchedPagesByPattern::classify(&mark.touched);
            pool.regions += 1;
            pool.exposed_s += exposed_s;
            let touches = [shape.streamed, shape.strided, shape.scattered];
            for (sum, touches) in pool.touches.iter_mut().zip(touches) {
                *sum += u64::from(touches);
            }
            pool.ordered_regions += u64::from(shape.streamed + shape.strided > 0);
            seen.push((mark.region, shape, exposed_s));
        }
        let cores = self.cpu_cores_less_probing_cost(&pool);
        for (region, shape, exposed_s) in seen {
            let cpu_s = exposed_s * cores;
            let reads = self.round_reads.entry(region).or_default();
            // The cost of first touches is subtracted only roughly, so time might go back here.
            let before_s = reads.last().map_or(0.0, |read| read.cpu_s);
            let cpu_s = cpu_s.max(before_s);
            reads.push(RegionProbeRead { shape, cpu_s });
        }
        self.round.push(pool);
        pool.count_touched_base_pages() + pool.huge_touched
    }

    /// Ends the round. A round without `for_rate` only compares regions. Returns whether the
    /// process was at work in it. A round in which the process paused says nothing about its
    /// regions.
    pub fn end_probe_round(&mut self, for_rate: bool) -> bool {
        let round = std::mem::take(&mut self.round);
        let reads = std::mem::take(&mut self.round_reads);
        let (first, last) = match round[..] {
            [] => return false,
            [only] => (ProbeReadTotals::default(), only),
            [first, .., last] => (first, last),
        };
        // A round that ended early, having seen enough, counts in the later pools too. Otherwise
        // these would hold only the quiet rounds.
        let whole: ProbeTotalsByRead = std::array::from_fn(|n| *round.get(n).unwrap_or(&last));
        if for_rate {
            self.rate_rounds.push(whole);
        }
        self.all.add(&last);
        if self.since_it_ran.cpu_s > 0.0 || ratio_or_zero(last.cpu_s, last.wall_s) >= LEAST_CORES {
            self.since_it_ran.add(&last);
        }
        let average = ratio_or_zero(self.all.cpu_s, self.all.wall_s);
        // Starts once all were cleared, because earlier work says nothing about those cleared last.
        let cores = ratio_or_zero(last.cpu_s - first.cpu_s, last.wall_s - first.wall_s);
        let ran = cores >= LEAST_CORES && cores >= average * RAN_SHARE;
        if ran {
            for (pool, read) in self.at_work.iter_mut().zip(&whole) {
                pool.add(read);
            }
            self.reads.extend(reads);
        }
        ran
    }

    /// Leaves out these shares of the process's regions (0-1), under base pages and under huge
    /// pages. The rounds showed nothing of them.
    pub fn leave_out_unprobed_regions(&mut self, base_share: f64, huge_share: f64) {
        self.base_regions *= 1.0 - base_share.clamp(0.0, 1.0);
        self.huge_regions *= 1.0 - huge_share.clamp(0.0, 1.0);
    }

    /// Whether the process has run, but used so little CPU since the first round in which it ran
    /// that it is left alone ([`WORTH_CORES`]).
    pub fn uses_little_cpu(&self) -> bool {
        let ProbeReadTotals { cpu_s, wall_s, .. } = self.since_it_ran;
        cpu_s > 0.0 && cpu_s < wall_s * WORTH_CORES
    }

    /// The estimate.
    pub fn finish_estimate(mut self, costs: &WalkCosts) -> OverheadEstimate {
        // A round that was cut short still gives results for its regions.
        self.end_probe_round(false);
        let reads = self.sum_rate_rounds_without(None);
        let cpu_cores = self.cpu_cores_less_probing_cost(last_read(&reads));
        let from = TouchKind::ALL.map(|kind| RateReads::choose_reads_for_touch_kind(kind, &reads));
        let rates = self.base_page_walk_rates_by_kind(&reads, from, costs);
        let pages = self.base_regions * f64::from(PAGES_PER_REGION);
        let at = costs.at_footprint(u64_from_f64(pages * BASE_PAGE_BYTES as f64));
        let residence_s = self.tlb_residence_s(f64::from(costs.tlb_pages));
        let walks = self.region_walks_per_second(&rates, &at, costs, residence_s);
        let huge = self.huge_page_cpu_share(&reads, costs);
        let overhead = (cpu_cores >= LEAST_CORES && !self.uses_little_cpu()).then(|| {
            let base = self.base_page_cpu_shares_by_kind(&reads, from, &at, costs);
            let sampling = CpuShareEstimate {
                factor_error: self.sampling_error(from, &at, costs),
                added_error: LEAST_ERROR_PERCENT,
                ..CpuShareEstimate::default()
            };
            let figure = CpuShareEstimate::sum(base.into_iter().chain([huge, sampling]));
            let (low_percent, high_percent) = ninety_percent_interval(figure);
            let unseen_percent = self.max_unseen_cpu_percent(&reads, &at, costs);
            TranslationOverhead {
                percent: figure.percent.min(100.0),
                huge_percent: huge.percent.min(100.0),
                low_percent: low_percent.min(100.0),
                high_percent: (high_percent + unseen_percent).min(100.0),
                at_least: reads.iter().any(|read| {
                    read.count_touched_base_pages() as f64 * self.first_touch_s
                        > read.cpu_s * CAPPED_SHARE
                }),
                source: TranslationOverheadSource::WalkRate,
            }
        });
        OverheadEstimate { overhead, huge_percent: huge.percent, cpu_cores, walks }
    }

    fn cpu_cores_less_probing_cost(&self, pool: &ProbeReadTotals) -> f64 {
        let touches_s =
            (pool.count_touched_base_pages() + pool.huge_touched) as f64 * self.first_touch_s;
        // At the cap, first touches would account for all of its time, although it did run.
        let own_s = (pool.cpu_s - touches_s).max(pool.cpu_s * 0.25);
        ratio_or_zero(own_s, pool.wall_s)
    }

    /// The sums over the rounds for the rate, without one of them.
    fn sum_rate_rounds_without(&self, left_out: Option<usize>) -> ProbeTotalsByRead {
        let mut sums = ProbeTotalsByRead::default();
        for (n, round) in self.rate_rounds.iter().enumerate() {
            if Some(n) != left_out {
                sums.iter_mut().zip(round).for_each(|(sum, read)| sum.add(read));
            }
        }
        sums
    }

    /// Pages of the process that are in use. As long as the number of touched pages grows as fast
    /// as at first, most pages in use were not seen yet. An exponential approach to all of them is
    /// continued.
    fn estimate_pages_in_use(&self, reads: &ProbeTotalsByRead) -> f64 {
        let last = last_read(reads);
        let per_region =
            |read: &ProbeReadTotals, value: f64| ratio_or_zero(value, read.regions as f64);
        let touched =
            |read: &ProbeReadTotals| per_region(read, read.count_touched_base_pages() as f64);
        let exposed_s = |read: &ProbeReadTotals| per_region(read, read.exposed_s);
        let first_per_s = ratio_or_zero(touched(&reads[0]), exposed_s(&reads[0]));
        let half_time = |read: &&ProbeReadTotals| exposed_s(read) <= exposed_s(last) / 2.0;
        let last_per_s = reads.iter().rfind(half_time).map_or(0.0, |before| {
            let longer_s = exposed_s(last) - exposed_s(before);
            ratio_or_zero(touched(last) - touched(before), longer_s)
        });
        let slower = 1.0 - ratio_or_zero(last_per_s, first_per_s);
        let pages = f64::from(PAGES_PER_REGION);
        // All are present, even if none of the touches was repeated.
        let seen_share = slower.max(touched(last) / pages).min(1.0);
        ratio_or_zero(touched(last), seen_share) * self.base_regions
    }

    fn share_beyond_tlb(&self, reads: &ProbeTotalsByRead, costs: &WalkCosts) -> f64 {
        share_not_held_by_tlb(f64::from(costs.tlb_pages), self.estimate_pages_in_use(reads))
    }

    fn base_page_walk_rates_by_kind(
        &self,
        reads: &ProbeTotalsByRead,
        from: [RateReads; 3],
        costs: &WalkCosts,
    ) -> WalkRates {
        let beyond_tlb = self.share_beyond_tlb(reads, costs);
        let [streamed_per_s, strided_per_s, scattered_per_s] =
            from.map(|from| self.walk_rate_of_touch_kind(from, reads, beyond_tlb));
        let residence_s = self.tlb_residence_s(f64::from(costs.tlb_pages));
        let late_per_s = self.scattered_walk_rate_after(residence_s, reads);
        WalkRates {
            streamed_per_s,
            strided_per_s,
            scattered_per_s: late_per_s.unwrap_or(scattered_per_s),
        }
    }

    /// The shares that base pages cost. Where pages are touched faster than reads can follow, the
    /// share has the costs of tight loops for its upper bound.
    fn base_page_cpu_shares_by_kind(
        &self,
        reads: &ProbeTotalsByRead,
        from: [RateReads; 3],
        at: &WalkCostsAtFootprint,
        costs: &WalkCosts,
    ) -> [CpuShareEstimate; 3] {
        let beyond_tlb = self.share_beyond_tlb(reads, costs);
        let mut shares =
            self.base_page_walk_rates_by_kind(reads, from, costs).cpu_shares(at, costs);
        let tight = [&costs.streamed, &costs.strided];
        for ((share, from), tight) in shares.iter_mut().zip(from).zip(tight) {
            if from.is_all_touched_early(reads) {
                *share = cpu_share_from_lower_bound(*share, tight, beyond_tlb);
            }
        }
        shares
    }

    fn huge_page_cpu_share(
        &self,
        reads: &ProbeTotalsByRead,
        costs: &WalkCosts,
    ) -> CpuShareEstimate {
        let rates = self.huge_page_walk_rates(reads, costs);
        CpuShareEstimate::sum(rates.cpu_shares(&costs.at_footprint(0), costs))
    }

    /// Standard error from the choice of regions and moments, in percentage points: by the
    /// jackknife, but at least that of as many independent touches (Poisson).
    fn sampling_error(
        &self,
        from: [RateReads; 3],
        at: &WalkCostsAtFootprint,
        costs: &WalkCosts,
    ) -> f64 {
        let percent = |left_out: usize| {
            let reads = self.sum_rate_rounds_without(Some(left_out));
            let base = self.base_page_cpu_shares_by_kind(&reads, from, at, costs);
            let huge = self.huge_page_cpu_share(&reads, costs);
            CpuShareEstimate::sum(base.into_iter().chain([huge])).percent
        };
        let without_one: Vec<f64> = (0..self.rate_rounds.len()).map(percent).collect();
        let reads = self.sum_rate_rounds_without(None);
        let shares = self.base_page_cpu_shares_by_kind(&reads, from, at, costs);
        let of_touches = shares.into_iter().zip(from).map(|(share, from)| {
            let (independent, _) = reads[from.telling].independent_touches_and_needed(from.kind);
            share.percent / (independent.max(1) as f64).sqrt()
        });
        let of_huge = self.huge_page_cpu_share(&reads, costs).percent
            / (last_read(&reads).huge_touched.max(1) as f64).sqrt();
        let poisson = of_touches.fold(of_huge, f64::hypot);
        jackknife_standard_error(&without_one).unwrap_or(0.0).max(poisson)
    }

    /// What touches may cost that no read has shown, in per cent: with 95 % confidence, the rate
    /// of events of which none was seen is below that of three.
    fn max_unseen_cpu_percent(
        &self,
        reads: &ProbeTotalsByRead,
        at: &WalkCostsAtFootprint,
        costs: &WalkCosts,
    ) -> f64 {
        let last = last_read(reads);
        let unseen = WalkRates::only_scattered(self.touches_per_cpu_s(3.0, last.exposed_s, last));
        CpuShareEstimate::sum(unseen.cpu_shares(at, costs)).percent
    }

    /// Walks of a kind per second of CPU time. Pages that are touched again within an exposure show
    /// once. So the shortest exposure with enough marks is used.
    ///
    /// The clear took the regions' translations out of the TLB. For this reason alone, as many
    /// pages as a TLB holds would be marked again. `beyond_tlb` is the share of the marks that this
    /// cannot explain. Marks between one read and the next are certain.
    fn walk_rate_of_touch_kind(
        &self,
        from: RateReads,
        reads: &ProbeTotalsByRead,
        beyond_tlb: f64,
    ) -> f64 {
        let touches = |read: &ProbeReadTotals| read.touches[from.kind as usize];
        let of = |marks: u64, exposed_s: f64, read: &ProbeReadTotals| {
            self.touches_per_cpu_s(marks as f64, exposed_s, read)
        };
        let telling = &reads[from.telling];
        let all = of(touches(telling), telling.exposed_s, telling) * beyond_tlb;
        let between = from.before_new.map_or(0.0, |n| {
            let (before, after) = (&reads[n], &reads[n + 1]);
            let new = touches(after).saturating_sub(touches(before));
            of(new, after.exposed_s - before.exposed_s, after)
        });
        // Only where the TLB could explain most of the marks, because this figure is the noisier
        // one.
        if beyond_tlb < 0.5 {
            return all.max(between);
        }
        if !from.is_all_touched_early(reads) {
            return all;
        }
        // Once all are touched, more time shows no more. The fastest increase is the best bound.
        let increases = reads.windows(2).filter_map(|pair| {
            let new = touches(&pair[1]).saturating_sub(touches(&pair[0]));
            let longer_s = pair[1].exposed_s - pair[0].exposed_s;
            (new >= MARKS_ENOUGH && longer_s > 0.0).then(|| of(new, longer_s, &pair[1]))
        });
        increases.fold(all, f64::max)
    }

    /// Walks of scattered pages per second of CPU time, from pages first touched after
    /// `residence_s` of CPU time. Their translations had left the TLB. Earlier touches also contain
    /// each page in constant use once, which needed a walk only because of the clear. `None`: too
    /// few such touches.
    fn scattered_walk_rate_after(
        &self,
        residence_s: f64,
        reads: &ProbeTotalsByRead,
    ) -> Option<f64> {
        let scattered = |read: &ProbeReadTotals| read.touches[TouchKind::Scattered as usize];
        let first = reads.iter().position(|read| self.mean_exposed_cpu_s(read) >= residence_s)?;
        let before = &reads[first];
        let new = |read: &ProbeReadTotals| scattered(read).saturating_sub(scattered(before));
        let after = reads[first..].iter().find(|read| new(read) >= MARKS_ENOUGH);
        let after = after.unwrap_or(last_read(reads));
        if new(after) < MARKS_NEEDED {
            return None;
        }
        let longer_s = after.exposed_s - before.exposed_s;
        Some(self.touches_per_cpu_s(new(after) as f64, longer_s, after))
    }

    /// Touches of all base pages per second of CPU time, from those seen in the probed regions over
    /// `exposed_s`, a sum over these regions, until `read`.
    fn touches_per_cpu_s(&self, touches: f64, exposed_s: f64, read: &ProbeReadTotals) -> f64 {
        let touches_per_s = ratio_or_zero(touches, exposed_s) * self.base_regions;
        ratio_or_zero(touches_per_s, self.cpu_cores_less_probing_cost(read))
    }

    /// Mean CPU time of the process since a region was cleared, in seconds.
    fn mean_exposed_cpu_s(&self, read: &ProbeReadTotals) -> f64 {
        ratio_or_zero(read.exposed_s, read.regions as f64) * self.cpu_cores_less_probing_cost(read)
    }

    /// How long a translation stays in an LRU TLB of `held` entries, in seconds of CPU time. It is
    /// the time in which the process touches `held` pages (the characteristic time of H. Che et
    /// al., 2002). Infinite where the process touches fewer.
    fn tlb_residence_s(&self, held: f64) -> f64 {
        let (mut before, mut before_s) = (0.0, 0.0);
        for pool in &self.at_work {
            let regions = pool.regions as f64;
            let pages =
                ratio_or_zero(pool.count_touched_base_pages() as f64, regions) * self.base_regions;
            let exposed_s = self.mean_exposed_cpu_s(pool);
            if pages >= held {
                return before_s
                    + (exposed_s - before_s) * ratio_or_zero(held - before, pages - before);
            }
            (before, before_s) = (pages, exposed_s);
        }
        f64::INFINITY
    }

    fn huge_page_walk_rates(&self, reads: &ProbeTotalsByRead, costs: &WalkCosts) -> WalkRates {
        let last = last_read(reads);
        let total = self.huge_regions;
        let distinct = ratio_or_zero(last.huge_touched as f64, last.huge_regions as f64) * total;
        let beyond_tlb = share_not_held_by_tlb(f64::from(costs.tlb_huge_pages), distinct);
        let fastest = reads
            .iter()
            .map(|p| {
                let touched_per_s = ratio_or_zero(p.huge_touched as f64, p.huge_exposed_s);
                ratio_or_zero(touched_per_s * total, self.cpu_cores_less_probing_cost(p))
            })
            .fold(0.0, f64::max);
        WalkRates::only_scattered(fastest * beyond_tlb)
    }

    fn region_walks_per_second(
        &self,
        rates: &WalkRates,
        at: &WalkCostsAtFootprint,
        costs: &WalkCosts,
        residence_s: f64,
    ) -> Vec<RegionWalksPerSecond> {
        let weight =
            |cost: WalkCostAtInterval| ratio_or_zero(cost.walk_ns, at.dependent_ns).min(1.0);
        let [strided, streamed] = [rates.strided_walk_cost(costs), rates.streamed_walk_cost(costs)];
        let cost = |shape: &TouchedPagesByPattern| {
            f64::from(shape.scattered)
                + f64::from(shape.strided) * weight(strided)
                + f64::from(shape.streamed) * weight(streamed)
        };
        let seen = self.reads.iter().filter_map(|(region, reads)| {
            let (count, shape) = count_newly_touched_pages(reads, residence_s)?;
            Some((*region, count, shape))
        });
        let seen: Vec<(RegionAddr, TouchCount, TouchedPagesByPattern)> = seen.collect();
        let touched = |shape: &TouchedPagesByPattern| f64::from(shape.count_touched_pages());
        let per_touch = |shape: &TouchedPagesByPattern| ratio_or_zero(cost(shape), touched(shape));
        // Regions in which nothing was touched resemble each other, so each counts once.
        let others = || seen.iter().filter(|(_, _, shape)| shape.count_touched_pages() > 0);
        let all: f64 = others().map(|(_, _, shape)| per_touch(shape)).sum();
        let of_others = ratio_or_zero(all, others().count() as f64);
        let counts: Vec<TouchCount> = seen.iter().map(|(_, count, _)| *count).collect();
        let expected = seen.iter().zip(expected_touch_rates(&counts));
        let mut walks: Vec<_> = expected
            .map(|((region, count, shape), rate)| {
                let cost =
                    if shape.count_touched_pages() > 0 { per_touch(shape) } else { of_others };
                RegionWalksPerSecond {
                    region: *region,
                    expected_per_s: u32_from_f64(rate * cost),
                    counted_per_s: u32_from_f64(count.per_second() * cost),
                }
            })
            .collect();
        walks.sort_unstable_by_key(|walks| walks.region);
        walks
    }
}

/// Pages first touched so late that a translation used right after the clear would have left the
/// TLB, and the shape of all touched pages. Pages in constant use come earlier and cause no walks.
fn count_newly_touched_pages(
    reads: &[RegionProbeRead],
    residence_s: f64,
) -> Option<(TouchCount, TouchedPagesByPattern)> {
    /// New pages needed for a rate that is accurate to a quarter.
    const ENOUGH: f64 = 16.0;
    /// With this many touched, few are left that could be new.
    const NEARLY_ALL: u16 = PAGES_PER_REGION / 8 * 7;
    let last = reads.last()?;
    // Leaves some time after it: pages that fit into the TLB are seldom new even then.
    let from_s = residence_s.min(last.cpu_s / 2.0);
    let later = &reads[reads.partition_point(|read| read.cpu_s <= from_s)..];
    let known = touched_pages_by_cpu_time(reads, from_s);
    let new = |to: &RegionProbeRead| f64::from(to.shape.count_touched_pages()) - known;
    let tells =
        |to: &&RegionProbeRead| new(to) >= ENOUGH || to.shape.count_touched_pages() >= NEARLY_ALL;
    let to = later.iter().find(tells).unwrap_or(last);
    Some((TouchCount { touches: new(to).max(0.0), over_s: to.cpu_s - from_s }, to.shape))
}

/// Between two reads, or the clear and the first read, touches count as if they came evenly.
fn touched_pages_by_cpu_time(reads: &[RegionProbeRead], cpu_s: f64) -> f64 {
    let (mut before, mut before_s) = (0.0, 0.0);
    for read in reads {
        let touched = f64::from(read.shape.count_touched_pages());
        if read.cpu_s > cpu_s {
            return before
                + (touched - before) * ratio_or_zero(cpu_s - before_s, read.cpu_s - before_s);
        }
        (before, before_s) = (touched, read.cpu_s);
    }
    before
}

/// The share of `distinct` pages that a TLB of `held` entries cannot hold.
fn share_not_held_by_tlb(held: f64, distinct: f64) -> f64 {
    (1.0 - ratio_or_zero(held, distinct)).max(0.0) * f64::from(distinct > 0.0)
}

#[cfg(test)]
mod tests;
