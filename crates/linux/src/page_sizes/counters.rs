//! The kernel's counters of a page size, for the whole machine.

use serde::Serialize;
use std::fs;
use std::path::Path;

/// Counts since the machine started, except `nr_anon` and `nr_anon_partially_mapped`. Counters that
/// the kernel does not have are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SizeCounters {
    /// Pages given at first touches.
    pub anon_fault_alloc: Option<u64>,
    /// First touches for which no page of the size was available.
    pub anon_fault_fallback: Option<u64>,
    /// First touches without a page of the size because a cgroup was at its limit.
    pub anon_fault_fallback_charge: Option<u64>,
    /// Pages of anonymous memory that exist now.
    pub nr_anon: Option<u64>,
    /// Of these, pages of which parts are unmapped.
    pub nr_anon_partially_mapped: Option<u64>,
    /// Pages swapped out whole.
    pub swpout: Option<u64>,
    /// Pages split.
    pub split: Option<u64>,
}

impl SizeCounters {
    /// Reads a `stats` folder.
    pub fn read(folder: &Path) -> Self {
        let count = |name| {
            let text = fs::read_to_string(folder.join(name)).ok()?;
            text.trim().parse().ok()
        };
        Self {
            anon_fault_alloc: count("anon_fault_alloc"),
            anon_fault_fallback: count("anon_fault_fallback"),
            anon_fault_fallback_charge: count("anon_fault_fallback_charge"),
            nr_anon: count("nr_anon"),
            nr_anon_partially_mapped: count("nr_anon_partially_mapped"),
            swpout: count("swpout"),
            split: count("split"),
        }
    }
}
