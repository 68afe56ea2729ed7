//! Costs of clearing and reading access bits.

use super::prelude::*;
use crate::clear_refs;
use hawkeye_linux::sample::page_table_reader::{PageTableReader, WalkDetail};
use std::slice::from_ref;

/// Memory that is cleared and read: much more than the rest of this process.
const REGIONS: usize = 256;

/// Measures, for a region each: clearing access bits of base pages and of a huge page, and reading
/// them. Reading needs privileges.
pub fn measure_access_bit_costs() -> [CostResult; 4] {
    [
        measure_bit_clearing(PageAdvice::Base),
        measure_bit_clearing(PageAdvice::Huge),
        measure_bit_reading(PageAdvice::Base),
        measure_bit_reading(PageAdvice::Huge),
    ]
}

fn measure_bit_clearing(pages: PageAdvice) -> CostResult {
    let pid = std::process::id();
    let once = || {
        let begun = Instant::now();
        clear_refs::clear_access_bits_of_process(pid).map(|()| nanoseconds_since(begun))
    };
    median_figure_over_turns(|| {
        let alone = once()?;
        let memory = ScratchMemory::map_and_write(REGIONS * REGION, pages)?;
        let together = once()?;
        drop(memory);
        Ok(((together - alone) / REGIONS as f64).max(0.0))
    })
}

fn measure_bit_reading(pages: PageAdvice) -> CostResult {
    let mut tables = PageTableReader::load_bpf_programs()?;
    let memory = ScratchMemory::map_and_write(REGIONS * REGION, pages)?;
    let range = memory.start_address()..memory.start_address() + memory.bytes() as u64;
    let target = tables.bind_to_process(std::process::id())?;
    median_figure_over_turns(|| {
        let mut regions = Vec::new();
        let begun = Instant::now();
        tables.walk_ranges(&target, from_ref(&range), WalkDetail::Regions, &mut regions, |_| {})?;
        let took = nanoseconds_since(begun);
        if regions.len() < REGIONS / 2 {
            return Err(not_measured_error("the walk of page tables found too few regions"));
        }
        Ok(took / regions.len() as f64)
    })
}
