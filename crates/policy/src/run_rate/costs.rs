//! What page walks cost, and what share of its time a process loses to them.

use serde::{Deserialize, Serialize};

/// What a touched base page costs in translation on this machine, when the process roams over so
/// much memory: larger page tables fit the caches less well. All in nanoseconds, over 0.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FootprintCosts {
    /// Memory that was roamed over, in bytes.
    pub footprint_bytes: u64,
    /// Pages in address order.
    pub streamed_ns: f64,
    /// Pages at a fixed distance.
    pub strided_ns: f64,
    /// Random pages, their addresses known in advance: walks overlap.
    pub independent_ns: f64,
    /// Random pages, each address out of the last read: nothing overlaps.
    pub dependent_ns: f64,
}

/// What translation costs on this machine, measured at start-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WalkCosts {
    /// By footprint, ascending; at least one.
    pub by_footprint: Vec<FootprintCosts>,
    /// A read that misses the caches, independent of the one before it, translation aside, in
    /// nanoseconds.
    pub data_independent_ns: f64,
    /// The same where it depends on the one before it.
    pub data_dependent_ns: f64,
    /// Base pages that the TLB holds at the most.
    pub tlb_pages: u32,
    /// Huge pages that the TLB holds at the most.
    pub tlb_huge_pages: u32,
}

impl WalkCosts {
    /// Costs for a footprint: between two that were measured, by its logarithm.
    pub fn at(&self, footprint_bytes: u64) -> FootprintCosts {
        let all = &self.by_footprint;
        let above = all.partition_point(|c| c.footprint_bytes < footprint_bytes);
        let (Some(low), Some(high)) = (all.get(above.saturating_sub(1)), all.get(above)) else {
            // Beyond the largest: no larger than that is known.
            return all.last().copied().unwrap_or(FootprintCosts {
                footprint_bytes,
                streamed_ns: 0.0,
                strided_ns: 0.0,
                independent_ns: 0.0,
                dependent_ns: 0.0,
            });
        };
        let log = |bytes: u64| (bytes.max(1) as f64).ln();
        let span = log(high.footprint_bytes) - log(low.footprint_bytes);
        let part = if span > 0.0 {
            (log(footprint_bytes) - log(low.footprint_bytes)) / span
        } else {
            0.0
        };
        let between = |a: f64, b: f64| a + (b - a) * part;
        FootprintCosts {
            footprint_bytes,
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

/// A share of CPU time in per cent: best guess, and what it lies between.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Best guess.
    pub percent: f64,
    /// Every walk overlaps with others.
    pub low_percent: f64,
    /// Nothing overlaps.
    pub high_percent: f64,
}

impl WalkRates {
    /// What the walks take of the process's time.
    ///
    /// Scattered pages: from outside one can't see whether a program waits for each walk or has many
    /// under way. Alone, a walk costs what a dependent one does, for a processor finds little else to
    /// do meanwhile; that holds while walks are far apart. The faster they come the more of them must
    /// overlap, and the share tends to that of a program that does nothing but read at random: walk
    /// against walk and data.
    pub fn share(&self, costs: &FootprintCosts, all: &WalkCosts) -> Share {
        let of = |walk: f64, data: f64| {
            if walk > 0.0 {
                walk / (walk + data)
            } else {
                0.0
            }
        };
        let limit = of(costs.independent_ns, all.data_independent_ns)
            .max(of(costs.dependent_ns, all.data_dependent_ns));
        let alone = self.scattered_per_s * costs.dependent_ns * 1e-9;
        let overlapped = self.scattered_per_s * costs.independent_ns * 1e-9;
        let ordered = (self.streamed_per_s * costs.streamed_ns
            + self.strided_per_s * costs.strided_ns)
            * 1e-9;
        let percent = |share: f64| (share * 100.0).clamp(0.0, 100.0);
        Share {
            percent: percent(soft_min(alone, limit) + ordered),
            low_percent: percent(overlapped.min(limit) + ordered),
            high_percent: percent(alone.min(1.0) + ordered),
        }
    }
}

/// The lesser of the two, rounded off where they are about equal.
fn soft_min(a: f64, b: f64) -> f64 {
    const SHARPNESS: f64 = 4.0;
    if a <= 0.0 || b <= 0.0 {
        return 0.0;
    }
    (a.powf(-SHARPNESS) + b.powf(-SHARPNESS)).powf(-1.0 / SHARPNESS)
}
