//! Time that the kernel's work takes, in nanoseconds.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Costs of a kernel's operations: [`KernelCosts::paper`] or [`KernelCosts::development_vm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelCosts {
    /// A fault that maps a base page, without zeroing it.
    pub base_fault_ns: u64,
    /// A fault that maps a huge page, without zeroing it.
    pub huge_fault_ns: u64,
    /// A fault that finds its page and allocates nothing. Simulated programs have such faults on
    /// pages of shared files that are in memory already.
    pub reuse_fault_ns: u64,
    /// Zeroing a base page through the caches.
    pub zero_base_ns: u64,
    /// Zeroing a base page past the caches (non-temporal stores).
    pub zero_base_non_temporal_ns: u64,
    /// Zeroing a huge page through the caches.
    pub zero_huge_ns: u64,
    /// Copying a base page into memory that is in no cache.
    pub copy_base_ns: u64,
    /// Unmapping and freeing a base page.
    pub free_base_ns: u64,
    /// Unmapping and freeing a huge page.
    pub free_huge_ns: u64,
    /// Collapsing a region, except copying and zeroing.
    pub collapse_ns: u64,
    /// Splitting a huge page, except the scan of its content.
    pub split_ns: u64,
    /// Mapping the shared zero page in place of a base page, and freeing that page.
    pub remap_zero_ns: u64,
    /// Scanning a base page that is not zero, up to its first nonzero byte.
    pub scan_used_ns: u64,
    /// Scanning all of a base page that is zero.
    pub scan_zero_ns: u64,
    /// Flushing a mapping from the TLBs of other cores.
    pub shoot_down_ns: u64,
    /// Falling asleep and waking to wait for a collapse that holds the lock, besides the wait.
    pub lock_wait_ns: u64,
    /// Moving a base page for compaction, except copying it.
    pub migrate_base_ns: u64,
    /// Scanning a pageblock for compaction.
    pub scan_block_ns: u64,
    /// Dropping a page of the page cache.
    pub drop_cache_ns: u64,
    /// Swapping a page out or in, except the device's time.
    pub swap_base_ns: u64,
    /// Copying the page table of a region for a fork. No simulated program forks.
    pub fork_region_ns: u64,
    /// Clearing the access bits of a region of base pages.
    pub clear_region_ns: u64,
    /// Clearing the access bit of a huge page.
    pub clear_huge_ns: u64,
    /// Reading the access bits of a region of base pages.
    pub read_region_ns: u64,
    /// Reading the access bit of a huge page.
    pub read_huge_ns: u64,
    /// Additional time of the first access to a base page that zeroing left in no cache.
    pub cold_touch_ns: u64,
    /// Additional time of a program's own work after a fault, which leaves it with an empty
    /// pipeline and with less in its caches and TLBs. Not part of the kernel's time.
    pub after_fault_ns: u64,
}

/// Measured figures from which the costs of faults are derived: of a program that touches new
/// memory page by page, under base pages and under huge pages, all zeroed in the fault.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultCostCalibration {
    /// Mean time of a base page's fault.
    pub base_fault_ns: f64,
    /// Mean time of a huge page's fault.
    pub huge_fault_ns: f64,
    /// Share of a huge page's fault that goes to zeroing (over 0, under 1).
    pub zeroing_share: f64,
    /// System time outside of faults (freeing), for each base page.
    pub free_base_ns: f64,
    /// The same for each huge page.
    pub free_huge_ns: f64,
    /// Making a region huge by copying, in total.
    pub collapse_ns: f64,
    /// See [`KernelCosts::cold_touch_ns`].
    pub cold_touch_ns: f64,
    /// See [`KernelCosts::after_fault_ns`].
    pub after_fault_ns: f64,
}

impl FaultCostCalibration {
    /// The paper's machine: Table 1, its two columns with synchronous zeroing, and no other.
    ///
    /// What these columns don't give is from elsewhere. Each of these values decides a figure of
    /// the other columns:
    /// - Share of zeroing in a fault: 97 % for huge pages, by the text on the same runs (section
    ///   2.2). A base page is then zeroed at the same speed: 879 of 3534 ns, where the text says
    ///   "about 25 %".
    /// - Time of a collapse: 0.84 huge-page faults, as on the development VM (405 of 482 us).
    /// - Additional time of a touch when the page is in no cache: the memory latency of the
    ///   processor's preset, in full. This is chosen: it assumes that a touch of what was just
    ///   zeroed waits for nothing. With the latency of the last cache taken off (71 ns) the last
    ///   column's total would be 3.6 s, where the paper has 4.4.
    /// - Time to free a huge page. System time of the second column is printed as 24 s, so that
    ///   23.5 to 24.5 s were measured, of which 23.9 s are faults. Chosen in this range: 24.4 s,
    ///   9.7 us a page. The reason is that the kernel looks at each of its 512 `struct page` before
    ///   it frees them (`free_pages_prepare`). Decides system time of the last column (1.3 s).
    /// - The program's own time for a touch is what the second column leaves (24.9 - 24.4 s). What
    ///   the first takes more of it (4 s in all) comes after its faults.
    pub const TABLE_1: Self = Self {
        base_fault_ns: 92.6e9 / 26.2e6,
        huge_fault_ns: 23.9e9 / 51.5e3,
        zeroing_share: 0.97,
        free_base_ns: (102.0 - 92.6) * 1e9 / 26.2e6,
        free_huge_ns: (24.4 - 23.9) * 1e9 / 51.5e3,
        collapse_ns: 23.9e9 / 51.5e3 * 405.0 / 482.0,
        cold_touch_ns: crate::mmu::HASWELL.memory.latency_ns,
        after_fault_ns: ((106.0 - 102.0) - (24.9 - 24.4)) * 1e9 / 26.2e6,
    };

    /// The virtual machine of docs/research/measured.md:
    ///
    /// - 1 GiB touched in 555 ms under base pages and 247 ms under huge ones
    /// - 330-370 us to have a huge page zeroed by a remote read, nearly all of it zeroing
    /// - 370-440 us to collapse a region
    ///
    /// Freeing was not measured: the figures are the paper's. A touch's own time is part of the
    /// measured ones here.
    pub const DEVELOPMENT_VM: Self = Self {
        base_fault_ns: 555e6 / 262_144.0,
        huge_fault_ns: 247e6 / 512.0,
        zeroing_share: 350.0 / 482.0,
        collapse_ns: 405e3,
        after_fault_ns: 0.0,
        cold_touch_ns: crate::mmu::SKYLAKE.memory.latency_ns,
        ..Self::TABLE_1
    };

    /// All costs: from the calibration, or else from that machine or a comment's source.
    pub fn costs(&self) -> KernelCosts {
        const COLLAPSE_NS: u64 = 20_000;
        const SHOOT_DOWN_NS: u64 = 4_000;
        let zero_huge = self.huge_fault_ns * self.zeroing_share;
        let zero_base = zero_huge / 512.0;
        let overhead = (COLLAPSE_NS + SHOOT_DOWN_NS) as f64;
        KernelCosts {
            base_fault_ns: (self.base_fault_ns - zero_base).round() as u64,
            huge_fault_ns: (self.huge_fault_ns - zero_huge).round() as u64,
            zero_base_ns: zero_base.round() as u64,
            // "Non-temporal store instructions provide performance similar to regular" (section
            // 3.1).
            zero_base_non_temporal_ns: zero_base.round() as u64,
            zero_huge_ns: zero_huge.round() as u64,
            copy_base_ns: ((self.collapse_ns - overhead) / 512.0).round() as u64,
            free_base_ns: self.free_base_ns.round() as u64,
            free_huge_ns: self.free_huge_ns.round() as u64,
            cold_touch_ns: self.cold_touch_ns.round() as u64,
            after_fault_ns: self.after_fault_ns.round() as u64,
            // A fault that finds its page and allocates nothing; estimated.
            reuse_fault_ns: 500,
            // The small part of a collapse's 405 us that is not copying; estimated.
            collapse_ns: COLLAPSE_NS,
            // Split and de-duplication: 500 us, with 412 pages scanned and remapped; estimated.
            split_ns: 50_000,
            remap_zero_ns: 400,
            // Aims of the live scan: 40 us for a full huge page, 200 us for an empty one.
            scan_used_ns: 78,
            scan_zero_ns: 390,
            // An interrupt to other cores and its answer; estimated.
            shoot_down_ns: SHOOT_DOWN_NS,
            // Two context switches and an interrupt; estimated.
            lock_wait_ns: 5_000,
            // Unmapping, remapping and the bookkeeping of `migrate_pages`; estimated.
            migrate_base_ns: 2_000,
            scan_block_ns: 200,
            drop_cache_ns: 300,
            swap_base_ns: 2_000,
            fork_region_ns: 5_000,
            // "5-7 ms per GiB mapped with 4 KiB pages; 0.1 ms per GiB when huge."
            clear_region_ns: 6_000_000 / 512,
            clear_huge_ns: 100_000 / 512,
            // "0.9-1.1 us per region of base pages, 0.04 us per huge page."
            read_region_ns: 1_000,
            read_huge_ns: 40,
        }
    }
}

impl KernelCosts {
    /// The paper's Haswell server with Linux 4.3 ([`FaultCostCalibration::TABLE_1`]).
    pub fn paper() -> Self {
        FaultCostCalibration::TABLE_1.costs()
    }

    /// The virtual machine that this was written on ([`FaultCostCalibration::DEVELOPMENT_VM`]).
    pub fn development_vm() -> Self {
        FaultCostCalibration::DEVELOPMENT_VM.costs()
    }
}

pub(crate) fn time_of_operations(count: u64, ns: u64) -> Duration {
    Duration::from_nanos(count.saturating_mul(ns))
}
