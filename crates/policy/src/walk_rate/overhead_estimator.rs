//! From the reads of one process's window to its overhead.
//!
//! ```text
//!  reads --> probe_reads --> process_walk_rates --> cpu_shares --> OverheadEstimate
//!    `-----> region_walk_rates ----------------------------------------^
//! ```

mod cpu_shares;
mod probe_reads;
mod process_walk_rates;
mod region_walk_rates;

pub use region_walk_rates::RegionWalksPerSecond;

use super::confidence_interval::{CpuShareEstimate, ninety_percent_interval};
use super::touched_pages_by_pattern::{PageBitmap, TouchedPagesByPattern};
use super::walk_costs::WalkCosts;
use crate::page::{BASE_PAGE_BYTES, PAGES_PER_REGION, RegionAddr};
use crate::saturating_cast::{ratio_or_zero, u64_from_f64};
use crate::translation_overhead::{TranslationOverhead, TranslationOverheadSource};
use cpu_shares::ProcessCpuShares;
use probe_reads::{ProbeReadTotals, ProbeTotalsByRead, RateReads, last_read, sum_rounds_without};
use process_walk_rates::ProbedProcess;
use region_walk_rates::{RegionProbeRead, region_walks_per_second};
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

/// Puts the reads of one process's window together.
#[derive(Clone, Debug, Default)]
pub struct OverheadEstimator {
    process: ProbedProcess,
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
            process: ProbedProcess {
                base_regions: base_regions as f64,
                huge_regions: huge_regions as f64,
                first_touch_s: first_touch.as_secs_f64(),
            },
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
        let cores = self.process.cpu_cores_less_probing_cost(&pool);
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
        self.process.base_regions *= 1.0 - base_share.clamp(0.0, 1.0);
        self.process.huge_regions *= 1.0 - huge_share.clamp(0.0, 1.0);
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
        let process = self.process;
        let reads = sum_rounds_without(&self.rate_rounds, None);
        let cpu_cores = process.cpu_cores_less_probing_cost(last_read(&reads));
        let from = RateReads::choose_for_touch_kinds(&reads);
        let residence_s = process.tlb_residence_s(f64::from(costs.tlb_pages), &self.at_work);
        let rates = process.base_page_walk_rates(&reads, from, residence_s, costs);
        let pages = process.base_regions * f64::from(PAGES_PER_REGION);
        let at = costs.at_footprint(u64_from_f64(pages * BASE_PAGE_BYTES as f64));
        let walks = region_walks_per_second(&self.reads, &rates, &at, costs, residence_s);
        let shares = ProcessCpuShares { process, from, residence_s, at, costs };
        let huge = shares.of_huge_pages(&reads);
        let overhead = (cpu_cores >= LEAST_CORES && !self.uses_little_cpu()).then(|| {
            let sampling = CpuShareEstimate {
                factor_error: shares.sampling_error(&self.rate_rounds),
                added_error: LEAST_ERROR_PERCENT,
                ..CpuShareEstimate::default()
            };
            let base = shares.of_base_pages(&reads).into_iter();
            let figure = CpuShareEstimate::sum(base.chain([huge, sampling]));
            let (low_percent, high_percent) = ninety_percent_interval(figure);
            let high_percent = high_percent + shares.max_unseen_percent(&reads);
            TranslationOverhead {
                percent: figure.percent.min(100.0),
                huge_percent: huge.percent.min(100.0),
                low_percent: low_percent.min(100.0),
                high_percent: high_percent.min(100.0),
                at_least: reads.iter().any(|read| {
                    read.count_touched_base_pages() as f64 * process.first_touch_s
                        > read.cpu_s * CAPPED_SHARE
                }),
                source: TranslationOverheadSource::WalkRate,
            }
        });
        OverheadEstimate { overhead, huge_percent: huge.percent, cpu_cores, walks }
    }
}

#[cfg(test)]
mod tests;
