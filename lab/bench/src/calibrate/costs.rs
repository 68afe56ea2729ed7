//! From what was measured to the kernel's costs.

use super::Notes;
use crate::machine_costs::Found;
use crate::machine_costs::changing::{ChangeCosts, REMAPPED};
use crate::machine_costs::copying::CopyCosts;
use crate::machine_costs::faults::FaultCosts;
use crate::machine_costs::sampling::SamplingCosts;
use hawkeye_policy::PAGES_PER_REGION;
use hawkeye_sim::kernel::KernelCosts;

/// What was measured.
pub(super) struct Measured {
    pub(super) faults: FaultCosts,
    pub(super) copying: CopyCosts,
    pub(super) changing: ChangeCosts,
    pub(super) sampling: SamplingCosts,
    pub(super) shoot_down: Found,
}

/// Whole nanoseconds, not below 0.
fn ns(value: f64) -> u64 {
    value.max(0.0).round() as u64
}

/// The costs, with defaults for what could not be measured. A fault and a collapse are measured as a whole; what zeroing and copying
/// take of them is taken off.
pub(super) fn of(measured: Measured, memory_ns: f64, notes: &mut Notes) -> KernelCosts {
    let Measured {
        faults,
        copying,
        changing,
        sampling,
        shoot_down,
    } = measured;
    let mut costs = KernelCosts::this_machine();
    let pages = f64::from(PAGES_PER_REGION);

    let zero_base = notes.note("zero a base page", "ns", copying.zero_base);
    let past = copying.zero_base_non_temporal;
    let past = notes.note("zero a base page past the caches", "ns", past);
    let zero_huge = notes.note("zero a huge page", "ns", copying.zero_huge);
    let copy = notes.note("copy a base page", "ns", copying.copy_base);
    let scan_used = notes.note(
        "look at a base page that is not zero",
        "ns",
        copying.scan_used,
    );
    let scan_zero = notes.note(
        "look at all of a base page that is zero",
        "ns",
        copying.scan_zero,
    );
    costs.zero_base_ns = ns(zero_base.median);
    costs.zero_base_non_temporal_ns = ns(past.median);
    costs.zero_huge_ns = ns(zero_huge.median);
    costs.copy_base_ns = ns(copy.median);
    costs.scan_used_ns = ns(scan_used.median);
    costs.scan_zero_ns = ns(scan_zero.median);

    let base = notes.note("fault on a base page, zeroing included", "ns", faults.base);
    costs.base_fault_ns = ns(base.median - zero_base.median);
    if let Some(huge) = notes.found("fault on a huge page, zeroing included", faults.huge) {
        costs.huge_fault_ns = ns(huge.median - zero_huge.median);
    }
    costs.free_base_ns = ns(notes
        .note("free a base page", "ns", faults.free_base)
        .median);
    if let Some(free) = notes.found("free a huge page", faults.free_huge) {
        costs.free_huge_ns = ns(free.median);
    }
    let reuse = notes.note("write to a page that was shared", "ns", faults.reuse);
    costs.reuse_fault_ns = ns(reuse.median);
    let fork = notes.note(
        "copy a region's page table for a fork",
        "ns",
        faults.fork_region,
    );
    costs.fork_region_ns = ns(fork.median);

    if let Some(shoot_down) =
        notes.found("take a translation out of another core's TLB", shoot_down)
    {
        costs.shoot_down_ns = ns(shoot_down.median);
    }
    let zero_page = changing.zero_page().ok();
    if let Some(collapse) = notes.found("collapse a region of 512 base pages", changing.collapse) {
        let rest = collapse.median - pages * copy.median;
        costs.collapse_ns = ns(rest - costs.shoot_down_ns as f64);
    }
    if let Some(split) = notes.found("split a huge page in full use", changing.split_used) {
        // The kernel looks at every page, up to its first byte that is not zero.
        costs.split_ns = ns(split.median - pages * scan_used.median);
    }
    let what = "split one of which 511 base pages are zero";
    if notes.found(what, changing.split_zero).is_some() {
        let each = zero_page.map(|each| each - (scan_zero.median - scan_used.median));
        costs.remap_zero_ns = each.map_or(costs.remap_zero_ns, ns);
        debug_assert_eq!(REMAPPED, 511);
    }

    let SamplingCosts {
        clear_region,
        clear_huge,
        read_region,
        read_huge,
    } = sampling;
    for (what, found, cost) in [
        (
            "clear a region's access bits",
            clear_region,
            &mut costs.clear_region_ns,
        ),
        (
            "clear a huge page's access bit",
            clear_huge,
            &mut costs.clear_huge_ns,
        ),
        (
            "read a region's access bits",
            read_region,
            &mut costs.read_region_ns,
        ),
        (
            "read a huge page's access bit",
            read_huge,
            &mut costs.read_huge_ns,
        ),
    ] {
        if let Some(found) = notes.found(what, found) {
            *cost = ns(found.median);
        }
    }
    costs.cold_touch_ns = ns(memory_ns);
    for (what, why) in [
        (
            "moving a page for compaction",
            "no page can be moved without a second memory node",
        ),
        (
            "looking at a pageblock for compaction",
            "nothing outside the kernel sees it",
        ),
        (
            "dropping a page of the page cache",
            "it would take files of the machine's out of memory",
        ),
        ("swapping a page", "it would take swap, and a device's time"),
    ] {
        notes.never(what, why);
    }
    costs
}
