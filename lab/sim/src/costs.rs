//! How long everything takes.

use crate::error::SimError;
use serde::Serialize;
use std::time::Duration;

/// What accesses and calls cost. The defaults are those of the virtual machine of
/// `kernel-facts.md` (Linux 6.18, 4 GiB process), the middle of the range where there is one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Costs {
    /// One access to a region under base pages, in nanoseconds (over 0).
    /// "random 8-byte reads, 4 KiB pages: 290-315".
    pub base_access_ns: f64,
    /// One access to a region under a huge page, in nanoseconds (over 0).
    /// "random 8-byte reads, 2 MiB pages: 158-170".
    pub huge_access_ns: f64,
    /// What the first access to a page adds after its access bit was cleared.
    /// "a hypervisor exit of 0.5-0.7 us".
    pub first_touch: Duration,
    /// A page fault that installs a zeroed base page. "the owner touches 1 GiB in 555 ms (4 KiB
    /// faults)".
    pub base_fault: Duration,
    /// Clearing the access bit of one base page. "clear_refs: 5-7 ms per GiB mapped with 4 KiB pages".
    pub clear_per_page: Duration,
    /// Clearing the access bit of one huge page. "0.1 ms per GiB when huge".
    pub clear_per_huge: Duration,
    /// Reading the page table of one region of base pages. "BPF walk: 0.9-1.1 us per region".
    pub walk_per_region: Duration,
    /// Reading the entry of one huge page. "0.04 us per huge page".
    pub walk_per_huge: Duration,
    /// Making a region huge. "MADV_COLLAPSE from outside: 370-440 us".
    pub collapse: Duration,
    /// Splitting a huge page and giving its zero pages back. "490-510 us".
    pub split: Duration,
    /// Searching a base page that is not zero. Not measured yet: the aim of at most 40 us for a huge
    /// page that is fully used.
    pub scan_used_page: Duration,
    /// Searching a base page that is all zero. Not measured yet: the aim of at most 200 us for an
    /// empty huge page.
    pub scan_zero_page: Duration,
}

impl Default for Costs {
    fn default() -> Self {
        Self {
            base_access_ns: 302.0,
            huge_access_ns: 164.0,
            first_touch: Duration::from_nanos(600),
            base_fault: Duration::from_nanos(555_000_000 / 262_144),
            clear_per_page: Duration::from_nanos(6_000_000 / 262_144),
            clear_per_huge: Duration::from_nanos(100_000 / 512),
            walk_per_region: Duration::from_nanos(1_000),
            walk_per_huge: Duration::from_nanos(40),
            collapse: Duration::from_micros(405),
            split: Duration::from_micros(500),
            scan_used_page: Duration::from_nanos(40_000 / 512),
            scan_zero_page: Duration::from_nanos(200_000 / 512),
        }
    }
}

impl Costs {
    pub(crate) fn check(&self) -> Result<(), SimError> {
        let costs = [
            ("base_access_ns", self.base_access_ns),
            ("huge_access_ns", self.huge_access_ns),
        ];
        match costs.iter().find(|(_, ns)| !(ns.is_finite() && *ns > 0.0)) {
            Some((cost, ns)) => Err(SimError::Cost { cost, ns: *ns }),
            None => Ok(()),
        }
    }
}
