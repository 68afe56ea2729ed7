//! Cost of page walks, and the share of CPU time that a process loses to them.

use crate::saturating_cast::ratio_or_zero;
use serde::{Deserialize, Serialize};

/// Translation cost of a touched base page on this machine, for a process that accesses this much
/// memory. Larger page tables fit the caches less well. All in nanoseconds, over 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FootprintCosts {
    /// Memory accessed in the measurement, in bytes.
    pub footprint_bytes: u64,
    /// Pages in address order.
    pub streamed_ns: f64,
    /// Pages at a fixed distance.
    pub strided_ns: f64,
    /// Random pages with addresses known in advance: walks overlap.
    pub independent_ns: f64,
    /// Random pages, each address from the previous read: nothing overlaps.
    pub dependent_ns: f64,
    /// Random pages, far apart in time: the program's other reads have driven the page tables out
    /// of the caches. At least `dependent_ns`.
    pub alone_ns: f64,
}

/// Translation costs of this machine, measured at start-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WalkCosts {
    /// By footprint, ascending; at least one.
    pub by_footprint: Vec<FootprintCosts>,
    /// How the overlap of walks falls as there is more work between them, over the largest
    /// footprint. By distance, ascending.
    pub by_distance: Vec<DistanceCost>,
    /// Time between the reads of a stream when the cost of its walks was measured, walks included.
    pub streamed_apart_ns: f64,
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

/// Independent random reads with work between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DistanceCost {
    /// From one read to the next, walk included.
    pub apart_ns: f64,
    /// The walk's part of that time.
    pub walk_ns: f64,
}

impl FootprintCosts {
    fn is_sound(&self) -> bool {
        [
            self.streamed_ns,
            self.strided_ns,
            self.independent_ns,
            self.dependent_ns,
            self.alone_ns,
        ]
        .into_iter()
        .all(is_cost)
    }
}

/// Whether this is a valid cost: over 0 and at most one millisecond, in nanoseconds.
fn is_cost(ns: f64) -> bool {
    ns > 0.0 && ns <= 1e6
}

impl WalkCosts {
    /// Round figures of typical size.
    pub fn typical() -> Self {
        let at = |mib: u64, independent_ns, dependent_ns| FootprintCosts {
            footprint_bytes: mib << 20,
            streamed_ns: 2.5,
            strided_ns: 1.0,
            independent_ns,
            dependent_ns,
            alone_ns: dependent_ns * 1.5,
        };
        Self {
            by_footprint: vec![at(64, 1.0, 10.0), at(4096, 8.0, 90.0)],
            by_distance: [(20.0, 8.0), (250.0, 90.0)]
                .map(|(apart_ns, walk_ns)| DistanceCost { apart_ns, walk_ns })
                .to_vec(),
            streamed_apart_ns: 20.0,
            data_independent_ns: 12.0,
            data_dependent_ns: 160.0,
            tlb_pages: 2048,
            tlb_huge_pages: 2048,
        }
    }

    /// Whether every figure is within its range. The figures may come from a file.
    pub fn is_sound(&self) -> bool {
        let footprints = &self.by_footprint;
        let distances = &self.by_distance;
        let others = [
            self.streamed_apart_ns,
            self.data_independent_ns,
            self.data_dependent_ns,
        ];
        !footprints.is_empty()
            && footprints.iter().all(FootprintCosts::is_sound)
            && footprints.is_sorted_by(|a, b| a.footprint_bytes < b.footprint_bytes)
            && distances
                .iter()
                .all(|cost| is_cost(cost.apart_ns) && is_cost(cost.walk_ns))
            && others.into_iter().all(is_cost)
            && self.tlb_pages > 0
            && self.tlb_huge_pages > 0
    }

    /// How much of a walk the program waits for when walks are `apart_ns` apart. From 0, as in a
    /// loop of independent reads, to 1, where each read depends on the one before.
    fn stall_share(&self, apart_ns: f64) -> f64 {
        let largest = self.at(u64::MAX);
        let costs = self.by_distance.iter().map(|c| c.walk_ns);
        // Cost of walks that overlap in full.
        let least_ns = costs
            .fold(f64::INFINITY, f64::min)
            .max(largest.independent_ns);
        let span_ns = largest.dependent_ns - least_ns;
        let share = |cost: &DistanceCost| {
            if span_ns > 0.0 {
                ((cost.walk_ns - least_ns) / span_ns).clamp(0.0, 1.0)
            } else {
                1.0
            }
        };
        let above = self.by_distance.partition_point(|c| c.apart_ns < apart_ns);
        match (
            above.checked_sub(1).and_then(|n| self.by_distance.get(n)),
            self.by_distance.get(above),
        ) {
            (Some(near), Some(far)) => {
                let part = (apart_ns - near.apart_ns) / (far.apart_ns - near.apart_ns);
                share(near) + (share(far) - share(near)) * part
            }
            (Some(last), None) => share(last),
            (None, _) => 0.0,
        }
    }

    /// Costs for a footprint. Between two measured footprints it interpolates by the logarithm.
    pub fn at(&self, footprint_bytes: u64) -> FootprintCosts {
        let all = &self.by_footprint;
        let above = all.partition_point(|c| c.footprint_bytes < footprint_bytes);
        let (Some(low), Some(high)) = (all.get(above.saturating_sub(1)), all.get(above)) else {
            // Beyond the largest footprint its costs hold, because nothing larger was measured.
            return all.last().copied().unwrap_or(FootprintCosts {
                footprint_bytes,
                ..FootprintCosts::default()
            });
        };
        let log = |bytes: u64| (bytes.max(1) as f64).ln();
        let span = log(high.footprint_bytes) - log(low.footprint_bytes);
        let part = ratio_or_zero(log(footprint_bytes) - log(low.footprint_bytes), span);
        let between = |a: f64, b: f64| a + (b - a) * part;
        FootprintCosts {
            footprint_bytes: footprint_bytes.clamp(low.footprint_bytes, high.footprint_bytes),
            alone_ns: between(low.alone_ns, high.alone_ns),
            streamed_ns: between(low.streamed_ns, high.streamed_ns),
            strided_ns: between(low.strided_ns, high.strided_ns),
            independent_ns: between(low.independent_ns, high.independent_ns),
            dependent_ns: between(low.dependent_ns, high.dependent_ns),
        }
    }
}

/// Page walks per second of CPU time, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WalkRates {
    /// Of pages in address order.
    pub streamed_per_s: f64,
    /// Of pages at a fixed distance.
    pub strided_per_s: f64,
    /// Of pages at random.
    pub scattered_per_s: f64,
}

/// A share of CPU time in per cent: best estimate and bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuShare {
    /// Best estimate.
    pub percent: f64,
    /// Lower bound: every walk overlaps with others.
    pub low_percent: f64,
    /// Upper bound: nothing overlaps.
    pub high_percent: f64,
}

impl WalkRates {
    /// The share of the process's time that the walks take.
    ///
    /// Scattered pages: from outside one cannot see whether a program waits for each walk or has
    /// many under way. But the distance between walks shows it. A processor works on what lies
    /// within its reorder window. Walks closer together than that overlap, as in a loop of
    /// independent reads. The overlap falls with more work between them. Walks farther apart than
    /// dependent reads also find the page tables driven out of the caches. The upper limit is the
    /// loss of a program that only reads at random.
    pub fn share(&self, costs: &FootprintCosts, all: &WalkCosts) -> CpuShare {
        let of = |walk: f64, data: f64| {
            if walk > 0.0 {
                walk / (walk + data)
            } else {
                0.0
            }
        };
        let limit = of(costs.independent_ns, all.data_independent_ns)
            .max(of(costs.dependent_ns, all.data_dependent_ns));
        let taken = |ns: f64| self.scattered_per_s * ns * 1e-9;
        let ordered = (self.streamed_per_s * self.streamed_ns(costs, all)
            + self.strided_per_s * costs.strided_ns)
            * 1e-9;
        let percent = |share: f64| (share * 100.0).clamp(0.0, 100.0);
        let low = taken(costs.independent_ns).min(limit);
        let high = taken(costs.alone_ns).min(1.0).max(low);
        let best = taken(self.scattered_ns(costs, all)).min(limit);
        CpuShare {
            percent: percent(best.clamp(low, high) + ordered),
            low_percent: percent(low + ordered),
            high_percent: percent(high + ordered),
        }
    }

    /// Cost of one walk of a stream, in nanoseconds. The processor knows its address in advance. So
    /// more work from one page to the next hides more of the walk.
    fn streamed_ns(&self, costs: &FootprintCosts, all: &WalkCosts) -> f64 {
        let apart_per_s = all.streamed_apart_ns * 1e-9 * self.streamed_per_s;
        costs.streamed_ns * apart_per_s.min(1.0)
    }

    /// Cost of one scattered walk at these rates, in nanoseconds.
    fn scattered_ns(&self, costs: &FootprintCosts, all: &WalkCosts) -> f64 {
        /// At this many times the distance of dependent reads, the caches hold other things.
        const FAR: f64 = 2.5;
        if self.scattered_per_s <= 0.0 {
            return 0.0;
        }
        let apart_ns = 1e9 / self.scattered_per_s;
        let near_ns = costs.independent_ns
            + (costs.dependent_ns - costs.independent_ns).max(0.0) * all.stall_share(apart_ns);
        let chained_ns = all.data_dependent_ns + costs.dependent_ns;
        let far = ((apart_ns - chained_ns) / (chained_ns * (FAR - 1.0))).clamp(0.0, 1.0);
        near_ns + (costs.alone_ns - near_ns).max(0.0) * far
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> WalkCosts {
        WalkCosts::typical()
    }

    fn scattered(per_s: f64) -> CpuShare {
        let rates = WalkRates {
            scattered_per_s: per_s,
            ..WalkRates::default()
        };
        rates.share(&machine().at(4 << 30), &machine())
    }

    #[test]
    fn costs_out_of_range_are_invalid() {
        assert!(machine().is_sound());
        let wrong: [fn(&mut WalkCosts); 7] = [
            |costs| costs.by_footprint.clear(),
            |costs| costs.by_footprint.reverse(),
            |costs| costs.by_footprint[0].dependent_ns = -1.0,
            |costs| costs.by_footprint[1].alone_ns = f64::NAN,
            |costs| costs.by_distance[0].walk_ns = 1e9,
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
        assert_eq!(costs.at(1 << 20), costs.by_footprint[0]);
        assert_eq!(costs.at(64 << 30), costs.by_footprint[1]);
        // The middle by the logarithm: 512 MiB.
        let half = costs.at(512 << 20);
        assert!((half.dependent_ns - 50.0).abs() < 1e-9, "{half:?}");
    }

    #[test]
    fn walks_overlap_the_less_the_farther_they_are_apart() {
        for (per_s, percent) in [
            // Far apart: paid in full.
            (100_000.0, 1.35),
            // 250 ns a read, of which the walk takes 90; 20 ns a read, of which it takes 8.
            (4e6, 36.0),
            (50e6, 40.0),
            // 135 ns apart: the middle between 8 and 90 ns.
            (1e9 / 135.0, 49.0 / 135.0 * 100.0),
        ] {
            let share = scattered(per_s);
            assert!((share.percent - percent).abs() < 1e-9, "{share:?}");
        }
    }

    #[test]
    fn ordered_walks_are_cheap() {
        let rates = WalkRates {
            streamed_per_s: 5e6,
            strided_per_s: 1e6,
            scattered_per_s: 0.0,
        };
        let share = rates.share(&machine().at(4 << 30), &machine());
        // 2.5 ns a page, of which nine tenths are hidden; 1 ns, all of it.
        assert!((share.percent - 0.225).abs() < 1e-9, "{share:?}");
    }

    #[test]
    fn the_best_guess_lies_between_the_others() {
        for exponent in 0..90 {
            let share = scattered(10f64.powf(f64::from(exponent) / 10.0));
            let all = [share.low_percent, share.percent, share.high_percent];
            assert!(all.is_sorted(), "{share:?}");
        }
    }
}
