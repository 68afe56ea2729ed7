//! From touched pages to page walks per second of a process's CPU time.

use super::probe_reads::{
    MARKS_ENOUGH, MARKS_NEEDED, ProbeReadTotals, ProbeTotalsByRead, RateReads, last_read,
};
use crate::page::PAGES_PER_REGION;
use crate::saturating_cast::ratio_or_zero;
use crate::walk_rate::walk_costs::{TouchKind, WalkCosts, WalkRates};

/// The size of a process, and what probing costs it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProbedProcess {
    pub(super) base_regions: f64,
    pub(super) huge_regions: f64,
    /// The first touch of a page after a clear, in seconds.
    pub(super) first_touch_s: f64,
}

impl ProbedProcess {
    /// CPU time used, in cores, without the cost of probing to the process.
    pub(super) fn cpu_cores_less_probing_cost(&self, pool: &ProbeReadTotals) -> f64 {
        let touches_s =
            (pool.count_touched_base_pages() + pool.huge_touched) as f64 * self.first_touch_s;
        // At the cap, first touches would account for all of its time, although it did run.
        let own_s = (pool.cpu_s - touches_s).max(pool.cpu_s * 0.25);
        ratio_or_zero(own_s, pool.wall_s)
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

    /// The share of the base pages in use that the TLB cannot hold.
    pub(super) fn share_beyond_tlb(&self, reads: &ProbeTotalsByRead, costs: &WalkCosts) -> f64 {
        share_not_held_by_tlb(f64::from(costs.tlb_pages), self.estimate_pages_in_use(reads))
    }

    /// Page walks of base pages. A translation stays in the TLB for `residence_s` of CPU time.
    pub(super) fn base_page_walk_rates(
        &self,
        reads: &ProbeTotalsByRead,
        from: [RateReads; 3],
        residence_s: f64,
        costs: &WalkCosts,
    ) -> WalkRates {
        let beyond_tlb = self.share_beyond_tlb(reads, costs);
        let [streamed_per_s, strided_per_s, scattered_per_s] =
            from.map(|from| self.walk_rate_of_touch_kind(from, reads, beyond_tlb));
        let late_per_s = self.scattered_walk_rate_after(residence_s, reads);
        WalkRates {
            streamed_per_s,
            strided_per_s,
            scattered_per_s: late_per_s.unwrap_or(scattered_per_s),
        }
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
    pub(super) fn touches_per_cpu_s(
        &self,
        touches: f64,
        exposed_s: f64,
        read: &ProbeReadTotals,
    ) -> f64 {
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
    pub(super) fn tlb_residence_s(&self, held: f64, reads: &ProbeTotalsByRead) -> f64 {
        let (mut before, mut before_s) = (0.0, 0.0);
        for pool in reads {
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

    pub(super) fn huge_page_walk_rates(
        &self,
        reads: &ProbeTotalsByRead,
        costs: &WalkCosts,
    ) -> WalkRates {
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
}

/// The share of `distinct` pages that a TLB of `held` entries cannot hold.
fn share_not_held_by_tlb(held: f64, distinct: f64) -> f64 {
    (1.0 - ratio_or_zero(held, distinct)).max(0.0) * f64::from(distinct > 0.0)
}
