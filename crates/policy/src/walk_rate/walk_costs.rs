//! Cost of page walks, and the share of CPU time that a process loses to them.

use super::confidence_interval::{CpuShareEstimate, NINETY_PERCENT};
use crate::saturating_cast::ratio_or_zero;
use serde::{Deserialize, Serialize};

/// Translation cost of a touched base page on this machine, for a process that accesses this much
/// memory. Larger page tables fit the caches less well. All in nanoseconds, over 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WalkCostsAtFootprint {
    /// Memory accessed in the measurement, in bytes.
    pub footprint_bytes: u64,
    /// Random pages with addresses known in advance: walks overlap.
    pub independent_ns: f64,
    /// Random pages, each address from the previous read: nothing overlaps.
    pub dependent_ns: f64,
}

/// Translation costs of this machine, measured once after each boot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WalkCosts {
    /// By footprint, ascending; at least one.
    pub by_footprint: Vec<WalkCostsAtFootprint>,
    /// Pages in address order, of which one cache line is read, several, or all. By interval,
    /// ascending; at least one.
    pub streamed: Vec<WalkCostAtInterval>,
    /// Pages 64 KiB apart, with different amounts of work between the reads. By interval,
    /// ascending; at least one.
    pub strided: Vec<WalkCostAtInterval>,
    /// How the overlap of walks falls as there is more work between them, over the largest
    /// footprint. By interval, ascending.
    pub by_distance: Vec<WalkCostAtInterval>,
    /// Cost of a read that misses the caches, independent of the one before it, without
    /// translation, in nanoseconds.
    pub data_independent_ns: f64,
    /// The same where it depends on the one before it.
    pub data_dependent_ns: f64,
    /// Base pages that the TLB holds at most.
    pub tlb_pages: u32,
    /// Huge pages that the TLB holds at most.
    pub tlb_huge_pages: u32,
}

/// Reads of pages with work between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WalkCostAtInterval {
    /// From one page to the next, walk included.
    pub apart_ns: f64,
    /// The walk's part of that time.
    pub walk_ns: f64,
    /// Standard error of `walk_ns`, in nanoseconds.
    #[serde(default)]
    pub error_ns: f64,
}

/// Interpolates between the two costs nearest to an interval. Below the first and beyond the last
/// interval, their values hold.
fn interpolate_by_interval(
    costs: &[WalkCostAtInterval],
    apart_ns: f64,
    value: impl Fn(&WalkCostAtInterval) -> f64,
) -> Option<f64> {
    let above = costs.partition_point(|cost| cost.apart_ns < apart_ns);
    let near = costs.get(above.saturating_sub(1))?;
    let far = costs.get(above).unwrap_or(near);
    let part = ratio_or_zero(apart_ns - near.apart_ns, far.apart_ns - near.apart_ns);
    Some(value(near) + (value(far) - value(near)) * part.clamp(0.0, 1.0))
}

/// Cost of one walk of ordered pages at this interval.
///
/// The loops that were measured are farther apart because they do more work, which hides walks. A
/// program may be as far apart because its reads take longer: then its walks are hidden no better
/// than in a tighter loop. The best estimate is in the middle. Pages farther apart than in any loop
/// may have all of a walk hidden. Pages closer together than in the tightest loop lose the same
/// share of their time.
fn ordered_walk_cost(costs: &[WalkCostAtInterval], apart_ns: f64) -> WalkCostAtInterval {
    let closest_ns = costs.first().map_or(0.0, |cost| cost.apart_ns);
    let closer = ratio_or_zero(apart_ns, closest_ns).min(1.0);
    let at = |value: fn(&WalkCostAtInterval) -> f64| {
        interpolate_by_interval(costs, apart_ns, value).unwrap_or_default() * closer
    };
    let measured_ns = at(|cost| cost.walk_ns);
    let within = costs.last().is_some_and(|loosest| apart_ns <= loosest.apart_ns);
    let hidden_ns = if within { measured_ns } else { 0.0 };
    let tighter = costs.iter().filter(|cost| cost.apart_ns < apart_ns);
    let not_hidden_ns = tighter.map(|cost| cost.walk_ns).fold(measured_ns, f64::max);
    let between_ns = not_hidden_ns - hidden_ns;
    WalkCostAtInterval {
        apart_ns,
        walk_ns: hidden_ns + between_ns / 2.0,
        error_ns: at(|cost| cost.error_ns).hypot(between_ns / 2.0 / NINETY_PERCENT),
    }
}

impl WalkCosts {
    /// Round figures of typical size.
    pub fn typical() -> Self {
        let at = |mib: u64, independent_ns, dependent_ns| WalkCostsAtFootprint {
            footprint_bytes: mib << 20,
            independent_ns,
            dependent_ns,
        };
        let costs = |all: &[(f64, f64, f64)]| {
            let cost =
                |&(apart_ns, walk_ns, error_ns)| WalkCostAtInterval { apart_ns, walk_ns, error_ns };
            all.iter().map(cost).collect()
        };
        Self {
            by_footprint: vec![at(64, 1.0, 10.0), at(4096, 8.0, 90.0)],
            streamed: costs(&[(8.0, 0.8, 0.1), (40.0, 2.0, 0.3), (300.0, 2.5, 0.5)]),
            strided: costs(&[(10.0, 2.0, 0.2), (100.0, 6.0, 1.0)]),
            by_distance: costs(&[(20.0, 8.0, 0.5), (250.0, 90.0, 5.0)]),
            data_independent_ns: 12.0,
            data_dependent_ns: 160.0,
            tlb_pages: 2048,
            tlb_huge_pages: 2048,
        }
    }

    /// Whether every figure is within its range. The figures may come from a file.
    pub fn is_sound(&self) -> bool {
        let footprints = &self.by_footprint;
        let ordered = [&self.streamed, &self.strided];
        let loops = || ordered.into_iter().chain([&self.by_distance]).flatten();
        let mut ns: Vec<f64> = vec![self.data_independent_ns, self.data_dependent_ns];
        ns.extend(footprints.iter().flat_map(|c| [c.independent_ns, c.dependent_ns]));
        ns.extend(loops().flat_map(|c| [c.apart_ns, c.walk_ns]));
        // Over 0 and at most one millisecond.
        ns.into_iter().all(|ns| ns > 0.0 && ns <= 1e6)
            && loops().all(|c| (0.0..=1e6).contains(&c.error_ns))
            && !footprints.is_empty()
            && footprints.is_sorted_by(|a, b| a.footprint_bytes < b.footprint_bytes)
            && ordered.iter().all(|costs| {
                !costs.is_empty() && costs.is_sorted_by(|a, b| a.apart_ns < b.apart_ns)
            })
            && self.tlb_pages > 0
            && self.tlb_huge_pages > 0
    }

    /// How much of a walk the program waits for when walks are `apart_ns` apart. From 0, as in a
    /// loop of independent reads, to 1, where each read depends on the one before.
    fn stall_share(&self, apart_ns: f64) -> f64 {
        let largest = self.at_footprint(u64::MAX);
        let costs = self.by_distance.iter().map(|c| c.walk_ns);
        // Cost of walks that overlap in full.
        let least_ns = costs.fold(f64::INFINITY, f64::min).max(largest.independent_ns);
        let span_ns = largest.dependent_ns - least_ns;
        let share = |cost: &WalkCostAtInterval| {
            if span_ns > 0.0 { ((cost.walk_ns - least_ns) / span_ns).clamp(0.0, 1.0) } else { 1.0 }
        };
        match self.by_distance.first() {
            Some(first) if first.apart_ns < apart_ns => {
                interpolate_by_interval(&self.by_distance, apart_ns, share).unwrap_or_default()
            }
            _ => 0.0,
        }
    }

    /// Costs for a footprint. Between two measured footprints it interpolates by the logarithm.
    pub fn at_footprint(&self, footprint_bytes: u64) -> WalkCostsAtFootprint {
        let all = &self.by_footprint;
        let above = all.partition_point(|c| c.footprint_bytes < footprint_bytes);
        let (Some(low), Some(high)) = (all.get(above.saturating_sub(1)), all.get(above)) else {
            // Beyond the largest footprint its costs hold, because nothing larger was measured.
            return all.last().copied().unwrap_or(WalkCostsAtFootprint {
                footprint_bytes,
                ..WalkCostsAtFootprint::default()
            });
        };
        let log = |bytes: u64| (bytes.max(1) as f64).ln();
        let span = log(high.footprint_bytes) - log(low.footprint_bytes);
        let part = ratio_or_zero(log(footprint_bytes) - log(low.footprint_bytes), span);
        let between = |a: f64, b: f64| a + (b - a) * part;
        WalkCostsAtFootprint {
            footprint_bytes: footprint_bytes.clamp(low.footprint_bytes, high.footprint_bytes),
            independent_ns: between(low.independent_ns, high.independent_ns),
            dependent_ns: between(low.dependent_ns, high.dependent_ns),
        }
    }
}

/// A kind of touched pages, and the index of its figure among those of all kinds.
#[derive(Clone, Copy, Debug)]
pub(super) enum TouchKind {
    Streamed,
    Strided,
    Scattered,
}

impl TouchKind {
    pub(super) const ALL: [Self; 3] = [Self::Streamed, Self::Strided, Self::Scattered];
}

/// Page walks per second of CPU time: of pages in address order, at a fixed distance, and at
/// random.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WalkRates {
    pub(super) streamed_per_s: f64,
    pub(super) strided_per_s: f64,
    pub(super) scattered_per_s: f64,
}

/// Relative standard error of the cost of scattered walks. Programs overlap their walks in ways
/// that no loop covers. In a virtual machine it also matters how the host maps a program's memory,
/// which a guest cannot see. There, the gain of the same program changed by up to four times within
/// an hour and a half (docs/research/measured.md).
pub(super) const SCATTERED_ERROR: f64 = 0.35;

impl WalkRates {
    pub(super) fn only_scattered(scattered_per_s: f64) -> Self {
        Self { scattered_per_s, ..Self::default() }
    }

    /// The shares of the process's time that the walks of each kind take. Their errors contain
    /// those of the costs, but not those of the rates.
    ///
    /// Ordered pages: prefetchers and page walkers know the addresses in advance. What remains of
    /// a walk was measured for loops with the same distance between pages.
    ///
    /// Scattered pages: from outside one cannot see whether a program waits for each walk or has
    /// many under way. But the distance between walks shows it. A processor works on what lies
    /// within its reorder window. Walks closer together than that overlap, as in a loop of
    /// independent reads. The overlap falls with more work between them. Walks farther apart than
    /// dependent reads also find the page tables driven out of the caches. The upper limit is the
    /// loss of a program that only reads at random.
    pub(super) fn cpu_shares(
        &self,
        costs: &WalkCostsAtFootprint,
        all: &WalkCosts,
    ) -> [CpuShareEstimate; 3] {
        let ordered = |per_s: f64, cost: WalkCostAtInterval| {
            let taken = |ns: f64| (per_s * ns * 1e-9).min(1.0);
            CpuShareEstimate {
                percent: taken(cost.walk_ns) * 100.0,
                added_error: taken(cost.error_ns) * 100.0,
                factor_error: 0.0,
            }
        };
        let of = |walk: f64, data: f64| ratio_or_zero(walk, walk + data);
        let limit = of(costs.independent_ns, all.data_independent_ns)
            .max(of(costs.dependent_ns, all.data_dependent_ns));
        let scattered = self.scattered_per_s * self.scattered_walk_ns(costs, all) * 1e-9;
        let percent = scattered.min(limit) * 100.0;
        let scattered =
            CpuShareEstimate { percent, added_error: 0.0, factor_error: percent * SCATTERED_ERROR };
        [
            ordered(self.streamed_per_s, self.streamed_walk_cost(all)),
            ordered(self.strided_per_s, self.strided_walk_cost(all)),
            scattered,
        ]
    }

    /// Cost of one walk of a stream at these rates.
    pub(super) fn streamed_walk_cost(&self, all: &WalkCosts) -> WalkCostAtInterval {
        ordered_walk_cost(&all.streamed, ratio_or_zero(1e9, self.streamed_per_s))
    }

    /// Cost of one walk of a stride at these rates.
    pub(super) fn strided_walk_cost(&self, all: &WalkCosts) -> WalkCostAtInterval {
        ordered_walk_cost(&all.strided, ratio_or_zero(1e9, self.strided_per_s))
    }

    /// Cost of one scattered walk at these rates, in nanoseconds.
    fn scattered_walk_ns(&self, costs: &WalkCostsAtFootprint, all: &WalkCosts) -> f64 {
        /// Share of a stall that programs do not fill with other work. The measured loops fill none
        /// of it. Of programs over 3 GiB, Redis and Zipf-distributed reads had 0.3 to 0.8,
        /// memcached and a pointer chase 0.6 to 1.1 (`hawkeye-lab bench --live walk-rate`, two runs
        /// on one virtual machine, November 2026).
        const UNFILLED: f64 = 0.7;
        if self.scattered_per_s <= 0.0 {
            return 0.0;
        }
        let apart_ns = 1e9 / self.scattered_per_s;
        let waited_ns = (costs.dependent_ns - costs.independent_ns).max(0.0);
        costs.independent_ns + waited_ns * all.stall_share(apart_ns) * UNFILLED
    }
}

/// The share of its time that the tightest loop measured loses to walks, in per cent.
pub(super) fn tightest_loop_walk_percent(costs: &[WalkCostAtInterval]) -> f64 {
    let share = |cost: &WalkCostAtInterval| ratio_or_zero(cost.walk_ns, cost.apart_ns).min(1.0);
    costs.iter().map(share).fold(0.0, f64::max) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn machine() -> WalkCosts {
        WalkCosts::typical()
    }

    fn shares(rates: WalkRates) -> [CpuShareEstimate; 3] {
        rates.cpu_shares(&machine().at_footprint(4 << 30), &machine())
    }

    fn scattered(per_s: f64) -> CpuShareEstimate {
        CpuShareEstimate::sum(shares(WalkRates::only_scattered(per_s)))
    }

    #[test]
    fn costs_out_of_range_are_invalid() {
        assert!(machine().is_sound());
        let wrong: [fn(&mut WalkCosts); 10] = [
            |costs| costs.by_footprint.clear(),
            |costs| costs.by_footprint.reverse(),
            |costs| costs.by_footprint[0].dependent_ns = -1.0,
            |costs| costs.by_footprint[1].dependent_ns = f64::NAN,
            |costs| costs.by_distance[0].walk_ns = 1e9,
            |costs| costs.streamed.reverse(),
            |costs| costs.strided.clear(),
            |costs| costs.strided[0].error_ns = -1.0,
            |costs| costs.data_dependent_ns = 0.0,
            |costs| costs.tlb_pages = 0,
        ];
        for (n, break_it) in wrong.into_iter().enumerate() {
            let mut costs = machine();
            break_it(&mut costs);
            assert!(!costs.is_sound(), "{n}: {costs:?}");
        }
    }

    #[test]
    fn costs_lie_between_the_footprints_that_were_measured() {
        let costs = machine();
        assert_eq!(costs.at_footprint(1 << 20), costs.by_footprint[0]);
        assert_eq!(costs.at_footprint(64 << 30), costs.by_footprint[1]);
        // The middle by the logarithm: 512 MiB.
        let half = costs.at_footprint(512 << 20);
        assert!((half.dependent_ns - 50.0).abs() < 1e-9, "{half:?}");
    }

    #[test]
    fn walks_overlap_the_less_the_farther_they_are_apart() {
        for (per_s, percent) in [
            // Far apart: 8 ns, and 0.7 of the 82 ns for which a chain of reads waits.
            (100_000.0, 0.654),
            (4e6, 26.16),
            // 20 ns a read, of which the walk takes 8.
            (50e6, 40.0),
            // 135 ns apart: half of that wait.
            (1e9 / 135.0, (8.0 + 0.7 * 41.0) / 135.0 * 100.0),
        ] {
            let share = scattered(per_s);
            assert!((share.percent - percent).abs() < 1e-9, "{share:?}");
            let error = percent * SCATTERED_ERROR;
            assert!((share.factor_error - error).abs() < 1e-9);
        }
    }

    #[test]
    fn ordered_walks_cost_what_loops_at_their_distance_lose() {
        let error = |measured: f64, between: f64| measured.hypot(between / 2.0 / NINETY_PERCENT);
        for (streamed_apart_ns, strided_apart_ns, percents, errors) in [
            // At the distances that were measured.
            (8.0, 10.0, [10.0, 20.0], [1.25, 2.0]),
            // The middle between two of them.
            (24.0, 55.0, [1.4 / 0.24, 4.0 / 0.55], [0.2 / 0.24, 0.6 / 0.55]),
            // Closer together than any: several threads, or a faster loop.
            (4.0, 5.0, [10.0, 20.0], [1.25, 2.0]),
            // Farther apart than any: between nothing and 2.5 and 6 ns.
            (3000.0, 1000.0, [1.25 / 30.0, 0.3], [error(0.5, 2.5) / 30.0, error(1.0, 6.0) / 10.0]),
        ] {
            let found = shares(WalkRates {
                streamed_per_s: 1e9 / streamed_apart_ns,
                strided_per_s: 1e9 / strided_apart_ns,
                scattered_per_s: 0.0,
            });
            for (n, share) in found[..2].iter().enumerate() {
                let off = (share.percent - percents[n]).abs();
                assert!(off < 1e-9, "{streamed_apart_ns} {share:?}");
                let off = (share.added_error - errors[n]).abs();
                assert!(off < 1e-9, "{streamed_apart_ns} {share:?}");
            }
        }
    }

    #[test]
    fn a_loop_with_slower_reads_hides_no_more_than_a_tight_one() {
        let cost = |apart_ns, walk_ns| WalkCostAtInterval { apart_ns, walk_ns, error_ns: 0.0 };
        let found = ordered_walk_cost(&[cost(10.0, 6.0), cost(30.0, 2.0), cost(90.0, 4.0)], 60.0);
        // Between 3 ns, as with work between the reads, and the 6 ns of the tightest loop.
        assert!((found.walk_ns - 4.5).abs() < 1e-9, "{found:?}");
        let either_side_ns = NINETY_PERCENT * found.error_ns;
        assert!((either_side_ns - 1.5).abs() < 1e-9, "{found:?}");
    }

    proptest! {
        #[test]
        fn shares_are_between_nothing_and_everything(
            streamed_per_s in 0.0..1e12f64, strided_per_s in 0.0..1e12f64,
            scattered_per_s in 0.0..1e12f64,
        ) {
            let rates = WalkRates { streamed_per_s, strided_per_s, scattered_per_s };
            let found = shares(rates);
            for share in found {
                prop_assert!((0.0..=100.0).contains(&share.percent), "{share:?}");
                for error in [share.added_error, share.factor_error] {
                    prop_assert!((0.0..=100.0).contains(&error), "{share:?}");
                }
            }
            prop_assert!(CpuShareEstimate::sum(found).factor_error >= found[2].factor_error);
        }
    }
}
