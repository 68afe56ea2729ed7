//! The order of processes.

use crate::view::ProcessStatus;

/// The columns to sort by, from left to right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortColumn {
    Pid,
    Name,
    Overhead,
    Gain,
    Resident,
    Huge,
    Bloat,
    Promoted,
    Split,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortOrder {
    pub by: SortColumn,
    pub descending: bool,
}

impl Default for SortOrder {
    fn default() -> Self {
        Self { by: SortColumn::Overhead, descending: true }
    }
}

pub fn huge_percent_of_resident(process: &ProcessStatus) -> Option<f64> {
    // The kernel reports the two one after the other, so the share may exceed 100 %.
    let share = process.huge_bytes as f64 * 100.0 / process.rss_bytes as f64;
    (process.rss_bytes > 0).then_some(share.min(100.0))
}

pub fn sorted_processes(processes: &[ProcessStatus], order: SortOrder) -> Vec<&ProcessStatus> {
    let mut sorted: Vec<&ProcessStatus> = processes.iter().collect();
    sorted.sort_by(|a, b| {
        let by = match order.by {
            SortColumn::Name => a.name.cmp(&b.name),
            by => sort_value(a, by).total_cmp(&sort_value(b, by)),
        };
        let by = if order.descending { by.reverse() } else { by };
        by.then_with(|| b.rss_bytes.cmp(&a.rss_bytes)).then_with(|| a.pid.cmp(&b.pid))
    });
    sorted
}

/// A column's value. An unknown value counts as less than any known one.
fn sort_value(process: &ProcessStatus, column: SortColumn) -> f64 {
    let known = match column {
        SortColumn::Pid => Some(process.pid.into()),
        SortColumn::Name => None,
        SortColumn::Overhead => process.overhead.map(|overhead| overhead.percent),
        SortColumn::Gain => process.gain_percent,
        SortColumn::Resident => Some(process.rss_bytes as f64),
        SortColumn::Huge => huge_percent_of_resident(process),
        SortColumn::Bloat => Some(process.bloat_bytes as f64),
        SortColumn::Promoted => Some(process.pace.promoted_per_s),
        SortColumn::Split => Some(process.pace.split_per_s),
    };
    known.unwrap_or(f64::NEG_INFINITY)
}
