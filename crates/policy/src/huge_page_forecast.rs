//! What huge pages for every program (`enabled=always`) would add to each cgroup, and what part of
//! that recovery would leave.
//!
//! Under `always` a region becomes huge at its first touch, or when khugepaged reaches it. Its
//! empty base pages then take memory. So the regions that a program populates now show what it
//! would hold then.

use crate::bloat_recovery::BloatThreshold;
use crate::observation::{MemoryUse, RegionSample};
use crate::page::{BASE_PAGE_BYTES, PAGES_PER_REGION};
use crate::saturating_cast::{i64_from_u64, u64_from_f64};
use crate::watermarks::{MemoryScope, WatermarkTable};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;

/// The use of memory varies by about this, in per cent of a limit: recovery may begin although a
/// single reading is below its mark.
const USE_VARIES_BY_PERCENT: f64 = 1.0;

/// Memory that huge pages would add to some processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugePageGrowth {
    /// Empty base pages in all regions that are not empty, in bytes.
    pub added_bytes: u64,
    /// The part in regions that recovery would split.
    pub recoverable_bytes: u64,
    /// The part of that which the process may have given back itself, at most. Recovery frees such
    /// memory also while there is room.
    pub given_back_bytes: u64,
    /// Memory in use that recovery would take back as well: base pages in the same regions that
    /// the program has filled with zeros itself.
    pub zero_filled_bytes: u64,
}

/// Base pages that a program has filled with zeros itself, in some of its regions. They stand for
/// the others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ZeroFilledSample {
    /// The regions, which are not huge, each with the number of these base pages.
    pub regions: Vec<(RegionSample, u16)>,
    /// How many regions each of them stands for; 0 where none was read.
    pub regions_each: f64,
}

impl HugePageGrowth {
    /// The growth of one process. The regions are those that the kernel may make huge.
    ///
    /// The `family` processes that were forked from one program (1 or more) share a huge page until
    /// one of them writes to it, so each counts for its part of a region with shared pages.
    /// `recovery` is the threshold of recovery; `None` where this kernel cannot give memory back.
    pub fn of_process(
        regions: &[RegionSample],
        zero_filled: &ZeroFilledSample,
        family: usize,
        recovery: Option<BloatThreshold>,
    ) -> Self {
        let is_split = |zero_pages| recovery.is_some_and(|it| zero_pages >= it.zero_pages());
        let bytes_of = |region: &RegionSample, pages: u16| {
            let sharers = if region.maybe_shared > 0 { family.max(1) as u64 } else { 1 };
            u64::from(pages) * BASE_PAGE_BYTES / sharers
        };
        let mut growth = Self::default();
        for region in regions {
            let empty = empty_pages(region);
            // A region that was only read is the huge zero page, which takes no memory.
            if region.is_huge() || empty == PAGES_PER_REGION {
                continue;
            }
            growth.added_bytes += bytes_of(region, empty);
            if is_split(empty) {
                growth.recoverable_bytes += bytes_of(region, empty);
            }
        }
        let split = zero_filled.regions.iter().filter(|(region, zero_filled_pages)| {
            is_split(empty_pages(region).saturating_add(*zero_filled_pages))
        });
        let read_bytes: u64 = split.map(|(region, pages)| bytes_of(region, *pages)).sum();
        growth.zero_filled_bytes = u64_from_f64(read_bytes as f64 * zero_filled.regions_each);
        growth
    }

    /// The same where recovery splits nothing of the process.
    #[must_use]
    pub fn without_recovery(self) -> Self {
        Self { added_bytes: self.added_bytes, ..Self::default() }
    }

    /// The same of a process that had `bytes` more at its peak than now. From outside, memory that
    /// was given back and memory that was never touched look the same.
    #[must_use]
    pub fn with_given_back(self, bytes: u64) -> Self {
        Self { given_back_bytes: bytes.min(self.recoverable_bytes), ..self }
    }

    /// Adds the growth of other processes.
    pub fn add(&mut self, other: Self) {
        self.added_bytes += other.added_bytes;
        self.recoverable_bytes += other.recoverable_bytes;
        self.given_back_bytes += other.given_back_bytes;
        self.zero_filled_bytes += other.zero_filled_bytes;
    }

    /// What is left when recovery has split all that it would split, in bytes.
    pub fn unrecoverable_bytes(self) -> u64 {
        self.added_bytes.saturating_sub(self.recoverable_bytes)
    }

    /// The same, less the memory in use that it would take back.
    fn least_bytes(self) -> i64 {
        i64_from_u64(self.unrecoverable_bytes()) - i64_from_u64(self.zero_filled_bytes)
    }
}

fn empty_pages(region: &RegionSample) -> u16 {
    PAGES_PER_REGION.saturating_sub(region.present.saturating_add(region.swapped))
}

/// A cgroup as it is now, with the processes that are directly in it. The machine is the cgroup
/// `/`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CgroupPopulation {
    /// Path of the cgroup.
    pub cgroup: String,
    /// Use against the limit; `None`: it has no limit.
    pub usage: Option<MemoryUse>,
    /// Anonymous memory of these processes, in bytes.
    pub anonymous_bytes: u64,
    /// Number of these processes.
    pub processes: usize,
    /// Growth of these processes.
    pub growth: HugePageGrowth,
}

/// The forecast for a cgroup, including the cgroups below it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CgroupForecast {
    /// Path of the cgroup; `/` is the machine.
    pub cgroup: String,
    /// Processes with anonymous memory.
    pub processes: usize,
    /// Their anonymous memory now.
    pub anonymous_bytes: u64,
    /// Memory in use that is not cheap to reclaim; `None`: the cgroup has no limit.
    pub used_bytes: Option<u64>,
    /// The limit, or the memory of the machine.
    pub limit_bytes: Option<u64>,
    /// Memory that `always` would add at most.
    pub always_added_bytes: u64,
    /// Memory in use then, in per cent of the limit.
    pub always_percent_of_limit: Option<f64>,
    /// The most of that which would stay where recovery keeps use under the high watermark.
    pub guard_added_bytes: u64,
    /// The least of that: recovery goes on to the low watermark, and frees what processes may have
    /// given back themselves. Below 0 where it takes more back than `always` adds: what programs
    /// have filled with zeros.
    pub guard_least_added_bytes: i64,
    /// Memory in use then, in per cent of the limit.
    pub guard_percent_of_limit: Option<f64>,
}

#[derive(Clone, Copy, Default)]
struct SubtreeTotal {
    processes: usize,
    anonymous_bytes: u64,
    growth: HugePageGrowth,
    /// What recovery leaves in its parts, each with the limits below.
    left_bytes: u64,
    /// The least of that; below 0: recovery takes memory in use back.
    least_left_bytes: i64,
}

impl SubtreeTotal {
    fn add(&mut self, other: Self) {
        self.processes += other.processes;
        self.anonymous_bytes += other.anonymous_bytes;
        self.growth.add(other.growth);
        self.left_bytes += other.left_bytes;
        self.least_left_bytes += other.least_left_bytes;
    }
}

/// The forecast for each cgroup, in the order of `populations`. A cgroup that is listed includes
/// the listed ones below it.
///
/// Recovery begins above the high watermark and goes on to the low one, but leaves what it would
/// not split even there. It also frees what processes have given back themselves. The least
/// assumes that it begins a little below the mark, because the use of programs varies.
pub fn forecast_cgroups(
    populations: &[CgroupPopulation],
    watermarks: &WatermarkTable,
) -> Vec<CgroupForecast> {
    let paths = || populations.iter().map(|group| Path::new(&group.cgroup));
    let index_of: HashMap<&Path, usize> = paths().zip(0..).collect();
    let mut totals: Vec<SubtreeTotal> = populations.iter().map(own_total).collect();
    let mut recovering = vec![false; totals.len()];
    let mut deepest_first: Vec<(usize, &Path)> = paths().enumerate().collect();
    deepest_first.sort_by_key(|(_, path)| Reverse(path.components().count()));
    for (index, path) in deepest_first {
        let total = &mut totals[index];
        if let Some(usage) = populations[index].usage {
            let marks = watermarks.for_scope(&scope_of_path(path));
            let (high, low) = (marks.high_percent(), marks.low_percent());
            let safely_below = usage.bytes_up_to(high - USE_VARIES_BY_PERCENT);
            recovering[index] = i64_from_u64(total.left_bytes) > safely_below;
            if recovering[index] {
                let least = usage.bytes_up_to(low).max(total.growth.least_bytes());
                total.least_left_bytes = total.least_left_bytes.min(least);
            }
            let most = usage.room_bytes_under(high).max(total.growth.unrecoverable_bytes());
            total.left_bytes = total.left_bytes.min(most);
        }
        let total = *total;
        if let Some(parent) = path.ancestors().skip(1).find_map(|above| index_of.get(above)) {
            totals[*parent].add(total);
        }
    }
    // Recovery of a cgroup may take memory from any of those below it.
    for (path, total) in paths().zip(&mut totals) {
        let mut above = path.ancestors().skip(1).filter_map(|above| index_of.get(above));
        if above.any(|above| recovering[*above]) {
            total.least_left_bytes = total.least_left_bytes.min(total.growth.least_bytes());
        }
    }
    populations.iter().zip(totals).map(|(group, total)| cgroup_forecast(group, total)).collect()
}

fn own_total(group: &CgroupPopulation) -> SubtreeTotal {
    SubtreeTotal {
        processes: group.processes,
        anonymous_bytes: group.anonymous_bytes,
        growth: group.growth,
        left_bytes: group.growth.added_bytes,
        least_left_bytes: i64_from_u64(
            group.growth.added_bytes.saturating_sub(group.growth.given_back_bytes),
        ),
    }
}

fn scope_of_path(path: &Path) -> MemoryScope {
    match path.parent() {
        None => MemoryScope::Machine,
        Some(_) => MemoryScope::Group(path.display().to_string()),
    }
}

fn cgroup_forecast(group: &CgroupPopulation, total: SubtreeTotal) -> CgroupForecast {
    let percent_with = |added_bytes: u64| {
        let used_bytes = group.usage?.used_bytes.saturating_add(added_bytes);
        Some(MemoryUse { used_bytes, ..group.usage? }.used_percent())
    };
    CgroupForecast {
        cgroup: group.cgroup.clone(),
        processes: total.processes,
        anonymous_bytes: total.anonymous_bytes,
        used_bytes: group.usage.map(|usage| usage.used_bytes),
        limit_bytes: group.usage.map(|usage| usage.total_bytes),
        always_added_bytes: total.growth.added_bytes,
        always_percent_of_limit: percent_with(total.growth.added_bytes),
        guard_added_bytes: total.left_bytes,
        guard_least_added_bytes: total.least_left_bytes,
        guard_percent_of_limit: percent_with(total.left_bytes),
    }
}

#[cfg(test)]
mod tests;
