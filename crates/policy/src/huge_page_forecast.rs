//! What huge pages for every program (`enabled=always`) would add to each cgroup, and what part of
//! that recovery would leave.
//!
//! Under `always` a region becomes huge at its first touch, or when khugepaged reaches it. Its
//! empty base pages then take memory. So the regions that a program populates now show what it
//! would hold then.

use crate::bloat_recovery::BloatThreshold;
use crate::observation::{MemoryUse, RegionSample};
use crate::page::{BASE_PAGE_BYTES, PAGES_PER_REGION};
use crate::watermarks::{MemoryScope, WatermarkTable};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;

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
}

impl HugePageGrowth {
    /// The growth of one process. The regions are those that the kernel may make huge.
    ///
    /// The `family` processes that were forked from one program (1 or more) share a huge page until
    /// one of them writes to it, so each counts for its part of a region with shared pages.
    /// `recovery` is the threshold of recovery; `None` where this kernel cannot give memory back.
    pub fn of_process(
        regions: &[RegionSample],
        family: usize,
        recovery: Option<BloatThreshold>,
    ) -> Self {
        let mut growth = Self::default();
        for region in regions {
            let used = region.present.saturating_add(region.swapped);
            let empty = PAGES_PER_REGION.saturating_sub(used);
            // A region that was only read is the huge zero page, which takes no memory.
            if region.is_huge() || used == 0 {
                continue;
            }
            let sharers = if region.maybe_shared > 0 { family.max(1) as u64 } else { 1 };
            let bytes = u64::from(empty) * BASE_PAGE_BYTES / sharers;
            growth.added_bytes += bytes;
            if recovery.is_some_and(|threshold| empty >= threshold.zero_pages()) {
                growth.recoverable_bytes += bytes;
            }
        }
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
    }

    /// What is left when recovery has split all that it would split, in bytes.
    pub fn unrecoverable_bytes(self) -> u64 {
        self.added_bytes.saturating_sub(self.recoverable_bytes)
    }
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
    /// given back themselves.
    pub guard_least_added_bytes: u64,
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
    /// The least of that.
    least_left_bytes: u64,
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
/// not split even there. It also frees what processes have given back themselves.
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
            let unrecoverable = total.growth.unrecoverable_bytes();
            let left_under = |percent| usage.room_bytes_under(percent).max(unrecoverable);
            let most = left_under(marks.high_percent());
            recovering[index] = total.left_bytes > most;
            if recovering[index] {
                total.left_bytes = most;
                total.least_left_bytes =
                    total.least_left_bytes.min(left_under(marks.low_percent()));
            }
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
            let unrecoverable = total.growth.unrecoverable_bytes();
            total.least_left_bytes = total.least_left_bytes.min(unrecoverable);
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
        least_left_bytes: group.growth.added_bytes.saturating_sub(group.growth.given_back_bytes),
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
