//! Memory before and after recovery.

use super::prelude::*;
use hawkeye_linux::memory::system_memory;

/// Base pages in use, of the 512 of a region.
const USED_PAGES: u64 = 100;

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let size_mib: u64 = scale.short_or_long(256, 1024);
    require_available_memory(size_mib << 20)?;
    let words = format!("bloat --mib {size_mib} --used {USED_PAGES} --pages huge");
    let mut workload = host.start_workload(&words)?;
    let pid = workload.wait_ready()?.pid;
    let before = rss_bytes(pid)?;
    // Watermarks below the memory in use simulate a shortage.
    let used_percent = system_memory::machine_memory_use()?.used_percent();
    let settings = Settings {
        cpu: CpuBudget::new(100.0)?,
        watermarks: Watermarks::new(used_percent / 2.0, used_percent / 4.0)?,
        ..Settings::default()
    };
    let (regions, minute) = (size_mib / 2, Duration::from_secs(60));
    let means = host.new_kernel_backend()?;
    let managed = manage_processes_until(means, &[pid], "none", settings, minute, |journal| {
        journal.totals().scanned >= regions
    })?;
    // Read RSS first: the program's verification reads every page, which maps zero pages.
    let after = rss_bytes(pid)?;
    let bad_bytes = workload.count_wrong_bytes(minute)?;
    let totals = managed.journal.totals();
    // The pages that the program has written to, and the rest of the program itself.
    let used = regions * USED_PAGES * BASE_PAGE_BYTES + before.saturating_sub(size_mib << 20);
    let above_percent = (after as f64 / used as f64 - 1.0) * 100.0;
    let cpu_s = managed.cpu.as_secs_f64();
    let per_region_us = cpu_s * 1e6 / regions as f64;
    let mib_per_s = bytes_to_mib(totals.recovered_bytes) / cpu_s.max(f64::EPSILON);
    for (what, value, unit, beside) in [
        ("resident before", bytes_to_mib(before), "MiB", ""),
        ("resident after", bytes_to_mib(after), "MiB", ""),
        ("in use", bytes_to_mib(used), "MiB", "100 of 512 base pages"),
        ("after, above use", above_percent, "%", "goal: at most 1"),
        ("wrong bytes", bad_bytes as f64, "", "goal: 0"),
        ("huge pages split", totals.split as f64, "", ""),
        ("manager CPU per huge page", per_region_us, "us", ""),
        ("recovered per second of CPU", mib_per_s, "MiB", ""),
    ] {
        report.add_row(what, value, unit, beside);
    }
    Ok(())
}
