//! What reading coverage costs, beside a plain walk of the same memory.

use super::host::{Host, need_bytes};
use super::report::Report;
use super::{Scale, probe};
use crate::error::BenchError;
use crate::statistics::median;
use hawkeye_linux::processes::mappings;
use hawkeye_linux::sample::access_bits;
use hawkeye_linux::sample::page_tables::{Detail, PageTables};
use std::time::{Duration, Instant};

/// Repetitions of each measurement.
const TIMES: usize = 15;

/// Walks a process of base pages and one of huge pages.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let mib = if scale == Scale::Quick { 256 } else { 4096 };
    need_bytes(2 * (mib << 20))?;
    let mut report = Report::new("sampling");
    let mut tables = PageTables::load()?;
    for (pages, goal) in [
        ("base", "goal: at most 1.2 times the probe"),
        ("huge", "goal: 0.1"),
    ] {
        let mut workload = host.start(&format!("random --mib {mib} --pages {pages} --quiet"))?;
        let pid = workload.wait_ready()?.pid;
        let mut walks = Vec::new();
        let mut clears = Vec::new();
        let mut longest = Duration::ZERO;
        let mut probed = Vec::new();
        for _ in 0..TIMES {
            let target = tables.bind(pid)?;
            let ranges = mappings::eligible(&tables.mappings(&target)?).ranges;
            let begun = Instant::now();
            access_bits::clear(pid)?;
            clears.push(begun.elapsed().as_secs_f64() * 1e3);
            std::thread::sleep(Duration::from_millis(10));
            let mut regions = Vec::new();
            let begun = Instant::now();
            tables.walk(&target, &ranges, Detail::Regions, &mut regions, |took| {
                longest = longest.max(took);
            })?;
            let took = begun.elapsed().as_secs_f64() * 1e6;
            walks.push(took / regions.len().max(1) as f64);
            probed.extend(probe::us_per_region(pid)?);
        }
        let gib = mib as f64 / 1024.0;
        report.row(
            format!("{pages} pages: read a region"),
            median(&walks),
            "us",
            goal,
        );
        if !probed.is_empty() {
            report.row(
                format!("{pages} pages: the same by probes/coverage"),
                median(&probed),
                "us",
                format!("ratio {:.2}", median(&walks) / median(&probed)),
            );
        }
        report.row(
            format!("{pages} pages: longest slice"),
            longest.as_secs_f64() * 1e3,
            "ms",
            "",
        );
        report.row(
            format!("{pages} pages: clear a GiB"),
            median(&clears) / gib,
            "ms",
            "one call",
        );
    }
    if !probe::available() {
        report
            .note("Set HAWKEYE_PROBES to the folder with coverage.c to have the probe beside it.");
    }
    Ok(report)
}
