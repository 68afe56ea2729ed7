//! Turns measured figures into the kernel's costs.

use super::CostRecorder;
use crate::error::BenchResult;
use crate::machine_costs::{
    access_bits, collapse_split, fault_costs, page_contents, tlb_shoot_down,
};
use hawkeye_policy::PAGES_PER_REGION;
use hawkeye_sim::kernel::KernelCosts;

fn round_to_whole_ns(value: f64) -> u64 {
    value.max(0.0).round() as u64
}

/// The costs, with defaults for what could not be measured. A fault and a collapse are measured as
/// a whole; the cost of zeroing and copying is subtracted.
pub(super) fn measure_kernel_costs(
    memory_ns: f64,
    notes: &mut CostRecorder,
) -> BenchResult<KernelCosts> {
    let (faults, copying) =
        (fault_costs::measure_fault_costs()?, page_contents::measure_page_content_costs()?);
    let [collapse, split_used, split_zero] = collapse_split::measure_collapse_and_split_costs();
    let (sampling, shoot_down) =
        (access_bits::measure_access_bit_costs(), tlb_shoot_down::measure_shoot_down_cost());
    let mut costs = KernelCosts::development_vm();
    let pages = f64::from(PAGES_PER_REGION);

    let whats = [
        "zero a base page",
        "zero a base page past the caches",
        "zero a huge page",
        "copy a base page",
        "scan a base page that is not zero",
        "scan a base page that is zero",
    ];
    for (what, spread) in whats.into_iter().zip(copying) {
        notes.add_cost_in_ns(what, spread);
    }
    let medians = copying.map(|spread| spread.median);
    let [zero_base, past, zero_huge, copy, scan_used, scan_zero] = medians;
    costs.zero_base_ns = round_to_whole_ns(zero_base);
    costs.zero_base_non_temporal_ns = round_to_whole_ns(past);
    costs.zero_huge_ns = round_to_whole_ns(zero_huge);
    costs.copy_base_ns = round_to_whole_ns(copy);
    costs.scan_used_ns = round_to_whole_ns(scan_used);
    costs.scan_zero_ns = round_to_whole_ns(scan_zero);

    let what = "fault on a base page, including zeroing";
    costs.base_fault_ns = round_to_whole_ns(notes.add_cost_in_ns(what, faults.base) - zero_base);
    let what = "fault on a huge page, including zeroing";
    if let Some(huge) = notes.add_cost_if_measured(what, faults.huge) {
        costs.huge_fault_ns = round_to_whole_ns(huge - zero_huge);
    }
    costs.free_base_ns =
        round_to_whole_ns(notes.add_cost_in_ns("free a base page", faults.free_base));
    if let Some(free) = notes.add_cost_if_measured("free a huge page", faults.free_huge) {
        costs.free_huge_ns = round_to_whole_ns(free);
    }
    let what = "write to a page that was shared";
    costs.reuse_fault_ns = round_to_whole_ns(notes.add_cost_in_ns(what, faults.reuse));
    let what = "copy a region's page table for a fork";
    costs.fork_region_ns = round_to_whole_ns(notes.add_cost_in_ns(what, faults.fork_region));

    let what = "remove a translation from another core's TLB";
    if let Some(shoot_down) = notes.add_cost_if_measured(what, shoot_down) {
        costs.shoot_down_ns = round_to_whole_ns(shoot_down);
    }
    let zero_page = split_used.as_ref().ok().zip(split_zero.as_ref().ok());
    let remapped = f64::from(PAGES_PER_REGION - 1);
    let zero_page = zero_page.map(|(used, zero)| (zero.median - used.median) / remapped);
    if let Some(collapse) =
        notes.add_cost_if_measured("collapse a region of 512 base pages", collapse)
    {
        let rest = collapse - pages * copy;
        costs.collapse_ns = round_to_whole_ns(rest - costs.shoot_down_ns as f64);
    }
    if let Some(split) = notes.add_cost_if_measured("split a fully used huge page", split_used) {
        // The kernel reads every page up to its first byte that is not zero.
        costs.split_ns = round_to_whole_ns(split - pages * scan_used);
    }
    let what = "split a huge page with 511 zero base pages";
    if notes.add_cost_if_measured(what, split_zero).is_some() {
        let each = zero_page.map(|each| each - (scan_zero - scan_used));
        costs.remap_zero_ns = each.map_or(costs.remap_zero_ns, round_to_whole_ns);
    }

    let sampled = [
        ("clear a region's access bits", &mut costs.clear_region_ns),
        ("clear a huge page's access bit", &mut costs.clear_huge_ns),
        ("read a region's access bits", &mut costs.read_region_ns),
        ("read a huge page's access bit", &mut costs.read_huge_ns),
    ];
    for ((what, cost), found) in sampled.into_iter().zip(sampling) {
        if let Some(found) = notes.add_cost_if_measured(what, found) {
            *cost = round_to_whole_ns(found);
        }
    }
    costs.cold_touch_ns = round_to_whole_ns(memory_ns);
    for (what, why) in [
        ("moving a page for compaction", "no page can be moved without a second memory node"),
        ("scanning a pageblock for compaction", "it is not visible outside the kernel"),
        ("dropping a page of the page cache", "it would remove this machine's files from memory"),
        ("swapping a page", "it needs swap, and a device's time"),
    ] {
        notes.add_unmeasured_cost(what, why);
    }
    Ok(costs)
}
