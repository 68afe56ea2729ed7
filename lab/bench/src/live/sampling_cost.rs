//! The cost of reading coverage, beside a plain walk of the same memory.

use super::prelude::*;
use crate::clear_refs;
use hawkeye_linux::processes::mappings;
use hawkeye_linux::sample::page_table_reader::{PageTableReader, WalkDetail};
use hawkeye_linux::sample::pagemap::read_mappings_from_smaps;

const TIMES: usize = 15;

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let mib = scale.short_or_long(256, 4096);
    require_available_memory(2 * (mib << 20))?;
    let mut tables = PageTableReader::load_bpf_programs()?;
    for (pages, goal) in [("base", ""), ("huge", "goal: 0.1")] {
        let mut workload =
            host.start_workload(&format!("random --mib {mib} --pages {pages} --quiet"))?;
        let pid = workload.wait_ready()?.pid;
        let mut walks = Vec::new();
        let mut clears = Vec::new();
        let mut longest = Duration::ZERO;
        for _ in 0..TIMES {
            let target = tables.bind_to_process(pid)?;
            let ranges = mappings::collect_eligible_ranges(&read_mappings_from_smaps(pid)?).ranges;
            let begun = Instant::now();
            clear_refs::clear_access_bits_of_process(pid)?;
            clears.push(begun.elapsed().as_secs_f64() * 1e3);
            std::thread::sleep(Duration::from_millis(10));
            let mut regions = Vec::new();
            let begun = Instant::now();
            let detail = WalkDetail::Regions;
            tables.walk_ranges(&target, &ranges, detail, &mut regions, |took| {
                longest = longest.max(took);
            })?;
            let took = begun.elapsed().as_secs_f64() * 1e6;
            walks.push(took / regions.len().max(1) as f64);
        }
        let gib = mib as f64 / 1024.0;
        let mut rows = report.prefixed_row_writer(format!("{pages} pages"));
        rows.add_row("read a region", median(&walks), "us", goal);
        rows.add_row("longest slice", longest.as_secs_f64() * 1e3, "ms", "");
        rows.add_row("clear a GiB", median(&clears) / gib, "ms", "one call");
    }
    Ok(())
}
