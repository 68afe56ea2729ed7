//! The cost of searching for zero pages.

use super::prelude::*;
use hawkeye_linux::processes::mappings;
use hawkeye_linux::sample::page_table_reader::{PageTableReader, WalkDetail};
use hawkeye_linux::sample::pagemap::read_mappings_from_smaps;

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let mib = scale.short_or_long(256, 1024);
    require_available_memory(mib << 20)?;
    let mut tables = PageTableReader::load_bpf_programs()?;
    let enough = BloatThreshold::default().zero_pages();
    for (used, name, goal) in [
        (512, "fully used", "goal: at most 40"),
        (100, "100 of 512 used", ""),
        (1, "nearly empty (1 of 512 used)", "goal: at most 200"),
    ] {
        let mut workload =
            host.start_workload(&format!("bloat --mib {mib} --used {used} --pages huge"))?;
        let pid = workload.wait_ready()?.pid;
        let target = tables.bind_to_process(pid)?;
        let ranges = mappings::collect_eligible_ranges(&read_mappings_from_smaps(pid)?).ranges;
        let mut regions = Vec::new();
        tables.walk_ranges(&target, &ranges, WalkDetail::HugeOnly, &mut regions, |_| {})?;
        for (limit, what) in
            [(enough, "up to the bloat threshold"), (PAGES_PER_REGION, "to the end")]
        {
            let mut times = Vec::new();
            let mut zero = 0u64;
            for region in &regions {
                let begun = Instant::now();
                let found = tables.count_zero_pages(&target, region.region, limit)?;
                times.push(begun.elapsed().as_secs_f64() * 1e6);
                zero += u64::from(found.unwrap_or(0));
            }
            let mean_zero = zero as f64 / regions.len().max(1) as f64;
            let goal = if limit == enough { goal } else { "" };
            report.add_row(
                format!("huge page {name}, {what}"),
                median(&times),
                "us",
                format!("{mean_zero:.0} zero pages found {goal}"),
            );
        }
    }
    report.add_note("Recovery scans a huge page up to the bloat threshold (64 zero pages). The kernel checks every byte again when it splits.");
    Ok(())
}
