//! By what processes are sorted.

use crate::view::ProcessStatus;
use std::cmp::Ordering;

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortBy {
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

impl SortBy {
    const ALL: [Self; 9] = [
        Self::Pid,
        Self::Name,
        Self::Overhead,
        Self::Gain,
        Self::Resident,
        Self::Huge,
        Self::Bloat,
        Self::Promoted,
        Self::Split,
    ];

    /// The column so far to the right (or left); the last one where there is none.
    pub fn moved(self, by: isize) -> Self {
        let at = Self::ALL.iter().position(|column| *column == self);
        let at = at.unwrap_or(0).saturating_add_signed(by);
        Self::ALL[at.min(Self::ALL.len() - 1)]
    }
}

/// How rows are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    pub by: SortBy,
    pub descending: bool,
}

impl Default for Order {
    fn default() -> Self {
        Self {
            by: SortBy::Overhead,
            descending: true,
        }
    }
}

/// Of its resident memory, what is under huge pages.
pub fn huge_percent(process: &ProcessStatus) -> Option<f64> {
    // The two are read one after the other.
    let share = process.huge_bytes as f64 * 100.0 / process.rss_bytes as f64;
    (process.rss_bytes > 0).then_some(share.min(100.0))
}

/// The processes as they are to be shown.
pub fn sorted(processes: &[ProcessStatus], order: Order) -> Vec<&ProcessStatus> {
    let mut sorted: Vec<&ProcessStatus> = processes.iter().collect();
    sorted.sort_by(|a, b| {
        let by = compare(a, b, order.by);
        let by = if order.descending { by.reverse() } else { by };
        by.then_with(|| b.rss_bytes.cmp(&a.rss_bytes))
            .then_with(|| a.pid.cmp(&b.pid))
    });
    sorted
}

/// What isn't known counts as less than everything.
fn compare(a: &ProcessStatus, b: &ProcessStatus, by: SortBy) -> Ordering {
    let numbers = |number: fn(&ProcessStatus) -> Option<f64>| {
        let number = |process| number(process).unwrap_or(f64::NEG_INFINITY);
        number(a).total_cmp(&number(b))
    };
    match by {
        SortBy::Pid => a.pid.cmp(&b.pid),
        SortBy::Name => a.name.cmp(&b.name),
        SortBy::Overhead => numbers(|p| p.overhead.map(|overhead| overhead.percent)),
        SortBy::Gain => numbers(|p| p.gain_percent),
        SortBy::Resident => a.rss_bytes.cmp(&b.rss_bytes),
        SortBy::Huge => numbers(huge_percent),
        SortBy::Bloat => a.bloat_bytes.cmp(&b.bloat_bytes),
        SortBy::Promoted => numbers(|p| Some(p.pace.promoted_per_s)),
        SortBy::Split => numbers(|p| Some(p.pace.split_per_s)),
    }
}
