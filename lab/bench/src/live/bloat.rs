//! Memory before and after recovery.

use super::host::{Host, need_bytes};
use super::report::Report;
use super::{Scale, manage};
use crate::error::BenchError;
use hawkeye_linux::memory::system_memory;
use hawkeye_manager::Settings;
use hawkeye_policy::{BASE_PAGE_BYTES, CpuBudget, Watermarks};
use hawkeye_workload::{Event, Request, Workload};
use std::time::Duration;

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// Resident memory before, in bytes.
    pub before_bytes: u64,
    /// And after.
    pub after_bytes: u64,
    /// What the program has written to, and the rest of the program itself, in bytes.
    pub used_bytes: u64,
    /// Huge pages split.
    pub split: u64,
    /// Memory given back, by the manager's own count.
    pub recovered_bytes: u64,
    /// Bytes of the program's memory that were not as it wrote them.
    pub wrong_bytes: u64,
    /// The manager's CPU time, in seconds.
    pub cpu_s: f64,
}

/// Has a program bloat its memory and takes it back.
pub fn recover(host: &Host, mib: u64, used_pages: u64) -> Result<Recovery, BenchError> {
    need_bytes(mib << 20)?;
    let mut workload = host.start(&format!(
        "bloat --mib {mib} --used {used_pages} --pages huge"
    ))?;
    let pid = workload.wait_ready()?.pid;
    let before_bytes = rss(&mut workload)?;
    // Watermarks under what is in use, as if memory were short.
    let used = system_memory::machine()?.percent();
    let settings = Settings {
        cpu: CpuBudget::new(100.0)?,
        watermarks: Watermarks::new(used / 2.0, used / 4.0)?,
        ..Settings::default()
    };
    let regions = mib / 2;
    let managed = manage(
        host.means()?,
        pid,
        "none",
        settings,
        Duration::from_secs(60),
        |journal| journal.totals().scanned >= regions,
    )?;
    // RSS first: reading every page to verify it maps zero pages.
    let after_bytes = rss(&mut workload)?;
    let verified = workload.request(Request::Verify, Duration::from_secs(60))?;
    let Event::Verified { bad_bytes, .. } = verified else {
        return Err(BenchError::Impossible(
            "the program did not verify its memory".into(),
        ));
    };
    let totals = managed.journal.totals();
    Ok(Recovery {
        before_bytes,
        after_bytes,
        used_bytes: regions * used_pages * BASE_PAGE_BYTES + before_bytes.saturating_sub(mib << 20),
        split: totals.split,
        recovered_bytes: totals.recovered_bytes,
        wrong_bytes: bad_bytes,
        cpu_s: managed.cpu.as_secs_f64(),
    })
}

fn rss(workload: &mut Workload) -> Result<u64, BenchError> {
    match workload.request(Request::Rss, Duration::from_secs(10))? {
        Event::Rss { rss_bytes, .. } => Ok(rss_bytes),
        _ => Err(BenchError::Impossible(
            "the program did not say its RSS".into(),
        )),
    }
}

/// 1 GiB of huge pages of which 100 base pages of 512 are used.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let mib = if scale == Scale::Quick { 256 } else { 1024 };
    let seen = recover(host, mib, 100)?;
    let mib_of = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut report = Report::new("bloat");
    report.row("resident before", mib_of(seen.before_bytes), "MiB", "");
    report.row("resident after", mib_of(seen.after_bytes), "MiB", "");
    report.row(
        "in use",
        mib_of(seen.used_bytes),
        "MiB",
        "100 of 512 base pages",
    );
    report.row(
        "after, above what is in use",
        (seen.after_bytes as f64 / seen.used_bytes as f64 - 1.0) * 100.0,
        "%",
        "goal: at most 1",
    );
    report.row("wrong bytes", seen.wrong_bytes as f64, "", "goal: 0");
    report.row("huge pages split", seen.split as f64, "", "");
    report.row(
        "manager CPU per huge page",
        seen.cpu_s * 1e6 / (mib / 2) as f64,
        "us",
        "",
    );
    report.row(
        "recovered per second of CPU",
        mib_of(seen.recovered_bytes) / seen.cpu_s.max(f64::EPSILON),
        "MiB",
        "",
    );
    Ok(report)
}
