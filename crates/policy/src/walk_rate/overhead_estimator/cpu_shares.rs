//! From page walks to shares of a process's CPU time, and their errors.

use super::probe_reads::{ProbeTotalsByRead, RateReads, last_read, sum_rounds_without};
use super::process_walk_rates::ProbedProcess;
use crate::saturating_cast::ratio_or_zero;
use crate::walk_rate::confidence_interval::{
    CpuShareEstimate, NINETY_PERCENT, jackknife_standard_error,
};
use crate::walk_rate::walk_costs::{
    WalkCostAtInterval, WalkCosts, WalkCostsAtFootprint, WalkRates, tightest_loop_walk_percent,
};

/// What the shares of a process follow from, apart from what its reads found.
pub(super) struct ProcessCpuShares<'a> {
    pub(super) process: ProbedProcess,
    pub(super) from: [RateReads; 3],
    /// How long a translation stays in the TLB, in seconds of CPU time.
    pub(super) residence_s: f64,
    /// The costs for the memory that the process uses under base pages.
    pub(super) at: WalkCostsAtFootprint,
    pub(super) costs: &'a WalkCosts,
}

impl ProcessCpuShares<'_> {
    /// The shares that base pages cost. Where pages are touched faster than reads can follow, the
    /// share has the costs of tight loops for its upper bound.
    pub(super) fn of_base_pages(&self, reads: &ProbeTotalsByRead) -> [CpuShareEstimate; 3] {
        let Self { process, from, residence_s, at, costs } = self;
        let beyond_tlb = process.share_beyond_tlb(reads, costs);
        let rates = process.base_page_walk_rates(reads, *from, *residence_s, costs);
        let mut shares = rates.cpu_shares(at, costs);
        let tight = [&costs.streamed, &costs.strided];
        for ((share, from), tight) in shares.iter_mut().zip(from).zip(tight) {
            if from.is_all_touched_early(reads) {
                *share = cpu_share_from_lower_bound(*share, tight, beyond_tlb);
            }
        }
        shares
    }

    /// The share that huge pages cost.
    pub(super) fn of_huge_pages(&self, reads: &ProbeTotalsByRead) -> CpuShareEstimate {
        let rates = self.process.huge_page_walk_rates(reads, self.costs);
        CpuShareEstimate::sum(rates.cpu_shares(&self.costs.at_footprint(0), self.costs))
    }

    /// Standard error from the choice of regions and moments, in percentage points: by the
    /// jackknife, but at least that of as many independent touches (Poisson).
    pub(super) fn sampling_error(&self, rounds: &[ProbeTotalsByRead]) -> f64 {
        let percent = |left_out: usize| {
            let reads = sum_rounds_without(rounds, Some(left_out));
            let all = self.of_base_pages(&reads).into_iter().chain([self.of_huge_pages(&reads)]);
            CpuShareEstimate::sum(all).percent
        };
        let without_one: Vec<f64> = (0..rounds.len()).map(percent).collect();
        let reads = sum_rounds_without(rounds, None);
        let of_touches =
            self.of_base_pages(&reads).into_iter().zip(self.from).map(|(share, from)| {
                let (independent, _) =
                    reads[from.telling].independent_touches_and_needed(from.kind);
                share.percent / (independent.max(1) as f64).sqrt()
            });
        let of_huge = self.of_huge_pages(&reads).percent
            / (last_read(&reads).huge_touched.max(1) as f64).sqrt();
        let poisson = of_touches.fold(of_huge, f64::hypot);
        jackknife_standard_error(&without_one).unwrap_or(0.0).max(poisson)
    }

    /// What touches may cost that no read has shown, in per cent: with 95 % confidence, the rate
    /// of events of which none was seen is below that of three.
    pub(super) fn max_unseen_percent(&self, reads: &ProbeTotalsByRead) -> f64 {
        let last = last_read(reads);
        let unseen_per_s = self.process.touches_per_cpu_s(3.0, last.exposed_s, last);
        let unseen = WalkRates::only_scattered(unseen_per_s);
        CpuShareEstimate::sum(unseen.cpu_shares(&self.at, self.costs)).percent
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
