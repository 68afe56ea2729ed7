//! Collapses regions and splits huge pages, by the calls that live management makes.

use super::prelude::*;
use hawkeye_linux::processes::process::own_huge_bytes;

/// Number of regions that are collapsed and split; each is a separate turn.
const REGIONS: usize = 64;
/// Pages that were just touched may not be on the LRU list yet, and can't be collapsed then.
const TRIES: usize = 5;

/// Measures three costs per region: making 512 base pages huge, splitting a huge page that is fully
/// used, and splitting one with a single used base page. In the last case the other base pages
/// become the shared zero page.
pub fn measure_collapse_and_split_costs() -> [CostResult; 3] {
    [measure_collapses(), measure_splits(PAGE), measure_splits(REGION)]
}

fn measure_collapses() -> CostResult {
    let memory = ScratchMemory::map_and_write(REGIONS * REGION, PageAdvice::Base)?;
    // Huge pages were forbidden until now, so that base pages were touched.
    memory.madvise_range(0, memory.bytes(), libc::MADV_HUGEPAGE)?;
    let mut took = Vec::new();
    for region in 0..REGIONS {
        for _ in 0..TRIES {
            let begun = Instant::now();
            let done = memory.madvise_range(region * REGION, REGION, libc::MADV_COLLAPSE);
            if done.is_ok() {
                took.push(nanoseconds_since(begun));
                break;
            }
        }
    }
    if took.len() < REGIONS / 2 {
        return Err(not_measured_error("MADV_COLLAPSE fails for most regions here"));
    }
    Ok(MedianAndRange::from_figures(took))
}

/// Splits huge pages that are written to every `step` bytes.
fn measure_splits(step: usize) -> CostResult {
    let before = own_huge_bytes()?;
    let memory = ScratchMemory::map(REGIONS * REGION, PageAdvice::Huge)?;
    memory.time_strided_writes(step, 1);
    let huge = own_huge_bytes()?.saturating_sub(before);
    if huge < (REGIONS / 2 * REGION) as u64 {
        return Err(not_measured_error("page faults give no huge pages that could be split"));
    }
    let mut took = Vec::new();
    for region in 0..REGIONS {
        let begun = Instant::now();
        memory.madvise_range(region * REGION, PAGE, libc::MADV_COLD)?;
        took.push(nanoseconds_since(begun));
    }
    let left = own_huge_bytes()?.saturating_sub(before);
    if left > huge / 10 {
        return Err(not_measured_error(
            "MADV_COLD on a base page does not split its huge page here",
        ));
    }
    Ok(MedianAndRange::from_figures(took))
}
