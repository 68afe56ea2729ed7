//! From touched pages to rates, and from rates to overhead.

use super::costs::{FootprintCosts, WalkCosts, WalkRates};
use super::expected_rates::{TouchCount, expected_rates};
use super::region_probe_plan::READS_AFTER;
use super::touch_shape::{PageBitmap, TouchShape};
use crate::overhead::{Overhead, OverheadSource};
use crate::page::{BASE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};
use crate::saturating_cast::{ratio_or_zero, u32_of, u64_of};
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
    streamed: u64,
    strided: u64,
    scattered: u64,
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
        self.streamed += other.streamed;
        self.strided += other.strided;
        self.scattered += other.scattered;
        self.ordered_regions += other.ordered_regions;
        self.huge_exposed_s += other.huge_exposed_s;
        self.huge_regions += other.huge_regions;
        self.huge_touched += other.huge_touched;
        self.cpu_s += other.cpu_s;
        self.wall_s += other.wall_s;
    }

    fn touched(&self) -> u64 {
        self.streamed + self.strided + self.scattered
    }
}

#[derive(Clone, Copy, Debug)]
struct RegionProbeRead {
    shape: TouchShape,
    /// CPU time of the process since the region's bits were cleared, in seconds.
    cpu_s: f64,
}

/// Puts the reads of one process's window together.
#[derive(Clone, Debug)]
pub struct OverheadEstimator {
    base_regions: f64,
    huge_regions: f64,
    first_touch_s: f64,
    pools: Vec<ProbeReadTotals>,
    /// The same for all rounds in which the process was at work, also those for comparison only.
    at_work: Vec<ProbeReadTotals>,
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
    pub overhead: Option<Overhead>,
    /// The part of it that comes from huge pages, in per cent of the process's CPU time. More huge
    /// pages would not save that part.
    pub huge_percent: f64,
    /// Page walks if all memory were under base pages and behaved like the sampled regions.
    pub rates: WalkRates,
    /// CPU time used, in cores, without the cost of probing to the program.
    pub cpu_cores: f64,
    /// Page walks by region.
    pub walks: Vec<RegionWalks>,
}

/// Page walks of one region, per second of CPU time. A cheap walk counts as a fraction of a full
/// one, by its cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionWalks {
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
            pools: vec![ProbeReadTotals::default(); READS_AFTER.len()],
            at_work: vec![ProbeReadTotals::default(); READS_AFTER.len()],
            round: Vec::new(),
            round_reads: HashMap::new(),
            all: ProbeReadTotals::default(),
            since_it_ran: ProbeReadTotals::default(),
            reads: HashMap::new(),
        }
    }

    /// Takes in one read of the current round; returns the touched base pages and huge pages. `cpu`
    /// is the CPU time that the process used since the round began, `wall` the time since then.
    pub fn read(&mut self, marks: &[RegionAccessBits], cpu: Duration, wall: Duration) -> u64 {
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
            let shape = TouchShape::of(&mark.touched);
            pool.regions += 1;
            pool.exposed_s += exposed_s;
            pool.streamed += u64::from(shape.streamed);
            pool.strided += u64::from(shape.strided);
            pool.scattered += u64::from(shape.scattered);
            pool.ordered_regions += u64::from(shape.streamed + shape.strided > 0);
            seen.push((mark.region, shape, exposed_s));
        }
        let cores = self.cores(&pool);
        for (region, shape, exposed_s) in seen {
            let cpu_s = exposed_s * cores;
            let reads = self.round_reads.entry(region).or_default();
            // The cost of first touches is subtracted only roughly, so time might go back here.
            let before_s = reads.last().map_or(0.0, |read| read.cpu_s);
            let cpu_s = cpu_s.max(before_s);
            reads.push(RegionProbeRead { shape, cpu_s });
        }
        self.round.push(pool);
        pool.touched() + pool.huge_touched
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
        let add_to = |pools: &mut [ProbeReadTotals]| {
            for (n, pool) in pools.iter_mut().enumerate() {
                pool.add(round.get(n).unwrap_or(&last));
            }
        };
        if for_rate {
            add_to(&mut self.pools);
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
            add_to(&mut self.at_work);
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
    pub fn finish(mut self, costs: &WalkCosts) -> OverheadEstimate {
        // A round that was cut short still gives results for its regions.
        self.end_probe_round(false);
        let last = self.pools.last().copied().unwrap_or_default();
        let cpu_cores = self.cores(&last);
        let distinct_pages =
            ratio_or_zero(last.touched() as f64, last.regions as f64) * self.base_regions;
        let beyond_tlb = share_beyond_tlb(f64::from(costs.tlb_pages), distinct_pages);
        let kind = |count: fn(&ProbeReadTotals) -> u64, enough: fn(&ProbeReadTotals) -> bool| {
            self.rate(count, enough, beyond_tlb)
        };
        let marked: fn(&ProbeReadTotals) -> bool = |p| p.scattered >= MARKS_ENOUGH;
        let crowded: fn(&ProbeReadTotals) -> bool = |p| p.ordered_regions >= ORDERED_REGIONS_NEEDED;
        let rates = WalkRates {
            streamed_per_s: kind(|p| p.streamed, crowded),
            strided_per_s: kind(|p| p.strided, crowded),
            scattered_per_s: kind(|p| p.scattered, marked),
        };
        let footprint = (distinct_pages * BASE_PAGE_BYTES as f64)
            .max(self.base_regions * f64::from(PAGES_PER_REGION) * BASE_PAGE_BYTES as f64);
        let at = costs.at(u64_of(footprint));
        let residence_s = self.tlb_residence_s(f64::from(costs.tlb_pages));
        let walks = self.walks(&at, residence_s);
        let huge = self.huge_rates(costs).share(&costs.at(0), costs);
        let overhead = (cpu_cores >= LEAST_CORES && !self.uses_little_cpu()).then(|| {
            let base = rates.share(&at, costs);
            let marks = last.touched().max(1) as f64;
            let chance = (2.0 / marks.sqrt()).min(1.0);
            Overhead {
                percent: (base.percent + huge.percent).min(100.0),
                huge_percent: huge.percent.min(100.0),
                low_percent: ((base.low_percent + huge.low_percent) * (1.0 - chance)).min(100.0),
                high_percent: ((base.high_percent + huge.high_percent) * (1.0 + chance)).min(100.0),
                at_least: self.pools.iter().any(|pool| {
                    pool.touched() as f64 * self.first_touch_s > pool.cpu_s * CAPPED_SHARE
                }),
                source: OverheadSource::RunRate,
            }
        });
        OverheadEstimate {
            overhead,
            huge_percent: huge.percent,
            rates,
            cpu_cores,
            walks,
        }
    }

    fn cores(&self, pool: &ProbeReadTotals) -> f64 {
        let touches_s = (pool.touched() + pool.huge_touched) as f64 * self.first_touch_s;
        // At the cap, first touches would account for all of its time, although it did run.
        let own_s = (pool.cpu_s - touches_s).max(pool.cpu_s * 0.25);
        ratio_or_zero(own_s, pool.wall_s)
    }

    /// Walks of a kind per second of CPU time. Pages that are touched again within an exposure show
    /// once. So the shortest exposure with enough marks is used.
    ///
    /// The clear took the regions' translations out of the TLB. For this reason alone, as many
    /// pages as a TLB holds would be marked again. `beyond_tlb` is the share of the marks that this
    /// cannot explain. Marks between one read and the next are certain.
    fn rate(
        &self,
        count: fn(&ProbeReadTotals) -> u64,
        enough: fn(&ProbeReadTotals) -> bool,
        beyond_tlb: f64,
    ) -> f64 {
        let total = self.base_regions;
        let of = |marks: u64, exposed_s: f64, pool: &ProbeReadTotals| {
            ratio_or_zero(
                ratio_or_zero(marks as f64, exposed_s) * total,
                self.cores(pool),
            )
        };
        let last = self.pools.last().copied().unwrap_or_default();
        let telling = self.pools.iter().find(|p| enough(p)).unwrap_or(&last);
        let all = of(count(telling), telling.exposed_s, telling) * beyond_tlb;
        let between = self.pools.windows(2).find_map(|pair| {
            let new = count(&pair[1]).saturating_sub(count(&pair[0]));
            let longer_s = pair[1].exposed_s - pair[0].exposed_s;
            (new >= MARKS_NEEDED && longer_s > 0.0).then(|| of(new, longer_s, &pair[1]))
        });
        // Only where the TLB could explain most of the marks, because this figure is the noisier
        // one.
        if beyond_tlb < 0.5 {
            all.max(between.unwrap_or(0.0))
        } else {
            all
        }
    }

    /// How long a translation stays in an LRU TLB of `held` entries, in seconds of CPU time. It is
    /// the time in which the process touches `held` pages (the characteristic time of H. Che et
    /// al., 2002). Infinite where the process touches fewer.
    fn tlb_residence_s(&self, held: f64) -> f64 {
        let (mut before, mut before_s) = (0.0, 0.0);
        for pool in &self.at_work {
            let regions = pool.regions as f64;
            let pages = ratio_or_zero(pool.touched() as f64, regions) * self.base_regions;
            let exposed_s = ratio_or_zero(pool.exposed_s, regions) * self.cores(pool);
            if pages >= held {
                return before_s
                    + (exposed_s - before_s) * ratio_or_zero(held - before, pages - before);
            }
            (before, before_s) = (pages, exposed_s);
        }
        f64::INFINITY
    }

    fn huge_rates(&self, costs: &WalkCosts) -> WalkRates {
        let last = self.pools.last().copied().unwrap_or_default();
        let total = self.huge_regions;
        let distinct = ratio_or_zero(last.huge_touched as f64, last.huge_regions as f64) * total;
        let beyond_tlb = share_beyond_tlb(f64::from(costs.tlb_huge_pages), distinct);
        let fastest = self
            .pools
            .iter()
            .map(|p| {
                let touched_per_s = ratio_or_zero(p.huge_touched as f64, p.huge_exposed_s);
                ratio_or_zero(touched_per_s * total, self.cores(p))
            })
            .fold(0.0, f64::max);
        WalkRates {
            scattered_per_s: fastest * beyond_tlb,
            ..WalkRates::default()
        }
    }

    fn walks(&self, costs: &FootprintCosts, residence_s: f64) -> Vec<RegionWalks> {
        let weight = |ns: f64| ratio_or_zero(ns, costs.dependent_ns).min(1.0);
        let cost = |shape: &TouchShape| {
            f64::from(shape.scattered)
                + f64::from(shape.strided) * weight(costs.strided_ns)
                + f64::from(shape.streamed) * weight(costs.streamed_ns)
        };
        let seen = self.reads.iter().filter_map(|(region, reads)| {
            let (count, shape) = newly_touched(reads, residence_s)?;
            Some((*region, count, shape))
        });
        let seen: Vec<(RegionAddr, TouchCount, TouchShape)> = seen.collect();
        let touched = |shape: &TouchShape| f64::from(shape.touched());
        let per_touch = |shape: &TouchShape| ratio_or_zero(cost(shape), touched(shape));
        // Regions in which nothing was touched resemble each other, so each counts once.
        let others = || seen.iter().filter(|(_, _, shape)| shape.touched() > 0);
        let all: f64 = others().map(|(_, _, shape)| per_touch(shape)).sum();
        let of_others = ratio_or_zero(all, others().count() as f64);
        let counts: Vec<TouchCount> = seen.iter().map(|(_, count, _)| *count).collect();
        let expected = seen.iter().zip(expected_rates(&counts));
        let mut walks: Vec<_> = expected
            .map(|((region, count, shape), rate)| {
                let cost = if shape.touched() > 0 {
                    per_touch(shape)
                } else {
                    of_others
                };
                RegionWalks {
                    region: *region,
                    expected_per_s: u32_of(rate * cost),
                    counted_per_s: u32_of(count.rate() * cost),
                }
            })
            .collect();
        walks.sort_unstable_by_key(|walks| walks.region);
        walks
    }
}

/// Pages first touched so late that a translation used right after the clear would have left the
/// TLB, and the shape of all touched pages. Pages in constant use come earlier and cause no walks.
fn newly_touched(reads: &[RegionProbeRead], residence_s: f64) -> Option<(TouchCount, TouchShape)> {
    /// New pages needed for a rate that is accurate to a quarter.
    const ENOUGH: f64 = 16.0;
    /// With this many touched, few are left that could be new.
    const NEARLY_ALL: u16 = PAGES_PER_REGION / 8 * 7;
    let last = reads.last()?;
    // Leaves some time after it: pages that fit into the TLB are seldom new even then.
    let from_s = residence_s.min(last.cpu_s / 2.0);
    let later = &reads[reads.partition_point(|read| read.cpu_s <= from_s)..];
    let known = touched_pages_by(reads, from_s);
    let new = |to: &RegionProbeRead| f64::from(to.shape.touched()) - known;
    let tells = |to: &&RegionProbeRead| new(to) >= ENOUGH || to.shape.touched() >= NEARLY_ALL;
    let to = later.iter().find(tells).unwrap_or(last);
    let count = TouchCount {
        touches: new(to).max(0.0),
        over_s: to.cpu_s - from_s,
    };
    Some((count, to.shape))
}

/// Between two reads, or the clear and the first read, touches count as if they came evenly.
fn touched_pages_by(reads: &[RegionProbeRead], cpu_s: f64) -> f64 {
    let (mut before, mut before_s) = (0.0, 0.0);
    for read in reads {
        let touched = f64::from(read.shape.touched());
        if read.cpu_s > cpu_s {
            return before
                + (touched - before) * ratio_or_zero(cpu_s - before_s, read.cpu_s - before_s);
        }
        (before, before_s) = (touched, read.cpu_s);
    }
    before
}

/// The share of `distinct` pages that a TLB of `held` entries cannot hold.
fn share_beyond_tlb(held: f64, distinct: f64) -> f64 {
    (1.0 - ratio_or_zero(held, distinct)).max(0.0) * f64::from(distinct > 0.0)
}

#[cfg(test)]
mod tests;
