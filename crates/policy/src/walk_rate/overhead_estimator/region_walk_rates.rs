//! Page walks of each region.

use crate::page::{PAGES_PER_REGION, RegionAddr};
use crate::saturating_cast::{ratio_or_zero, u32_from_f64};
use crate::walk_rate::expected_touch_rates::{TouchCount, expected_touch_rates};
use crate::walk_rate::touched_pages_by_pattern::TouchedPagesByPattern;
use crate::walk_rate::walk_costs::{
    WalkCostAtInterval, WalkCosts, WalkCostsAtFootprint, WalkRates,
};
use std::collections::HashMap;

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

/// What one read of a region of base pages found.
#[derive(Clone, Copy, Debug)]
pub(super) struct RegionProbeRead {
    pub(super) shape: TouchedPagesByPattern,
    /// CPU time of the process since the region's bits were cleared, in seconds.
    pub(super) cpu_s: f64,
}

/// Page walks of each region, ascending by address.
pub(super) fn region_walks_per_second(
    reads: &HashMap<RegionAddr, Vec<RegionProbeRead>>,
    rates: &WalkRates,
    at: &WalkCostsAtFootprint,
    costs: &WalkCosts,
    residence_s: f64,
) -> Vec<RegionWalksPerSecond> {
    let weight = |cost: WalkCostAtInterval| ratio_or_zero(cost.walk_ns, at.dependent_ns).min(1.0);
    let [strided, streamed] = [rates.strided_walk_cost(costs), rates.streamed_walk_cost(costs)];
    let cost = |shape: &TouchedPagesByPattern| {
        f64::from(shape.scattered)
            + f64::from(shape.strided) * weight(strided)
            + f64::from(shape.streamed) * weight(streamed)
    };
    let seen = reads.iter().filter_map(|(region, reads)| {
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
            let cost = if shape.count_touched_pages() > 0 { per_touch(shape) } else { of_others };
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

/// Pages first touched so late that a translation used right after the clear would have left the
/// TLB, and the shape of all touched pages. Pages in constant use come earlier and cause no walks.
pub(super) fn count_newly_touched_pages(
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
