//! How fast regions are promoted.

use super::error::BenchError;
use super::host::{Host, need_bytes};
use super::primitives::collapse_all;
use super::report::{Report, median};
use super::{Scale, manage};
use hawkeye_linux::process::ProcessHandle;
use hawkeye_manager::{Event, Settings};
use hawkeye_policy::CpuBudget;
use std::time::Duration;

/// Promotes a whole process by the loop, and another by bare calls, in turn.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let mib: u64 = if scale == Scale::Quick { 512 } else { 2048 };
    let rounds = if scale == Scale::Quick { 2 } else { 3 };
    need_bytes(mib << 20)?;
    let bytes = (mib << 20) as f64;
    let mut loops = Vec::new();
    let mut bare = Vec::new();
    let mut spans = Vec::new();
    for _ in 0..rounds {
        let mut workload = host.start(&format!("burner --mib {mib} --pages base"))?;
        let ready = workload.wait_ready()?;
        let process = ProcessHandle::open(ready.pid)?;
        let took = collapse_all(&process, ready.start..ready.start + ready.bytes)?;
        bare.push(bytes / 1e9 / took.as_secs_f64());
        drop(workload);

        let mut workload = host.start(&format!("burner --mib {mib} --pages base"))?;
        let pid = workload.wait_ready()?.pid;
        let settings = Settings {
            cpu: CpuBudget::new(100.0)?,
            ..Settings::default()
        };
        let regions = mib / 2;
        let managed = manage(
            host.means()?,
            pid,
            "linux",
            Settings {
                rate: Some(hawkeye_policy::Rate::per_second(1e9)?),
                ..settings
            },
            Duration::from_secs(60),
            |journal| journal.totals().promoted >= regions,
        )?;
        let calls: Vec<(Duration, Duration)> = managed
            .journal
            .entries()
            .filter_map(|entry| match &entry.event {
                Event::Promoted { took, .. } => Some((entry.at, *took)),
                _ => None,
            })
            .collect();
        let (Some(first), Some(last)) = (calls.first(), calls.last()) else {
            return Err(BenchError::Impossible("nothing was promoted".into()));
        };
        let span = last.0 + last.1 - first.0;
        loops.push(calls.len() as f64 * 2.097_152e-3 / span.as_secs_f64());
        spans.push(calls.iter().map(|c| c.1.as_secs_f64() * 1e6).sum::<f64>() / calls.len() as f64);
    }
    let mut report = Report::new("collapse");
    let ratio = median(&loops) / median(&bare);
    report.row(
        "promoted by the loop",
        median(&loops),
        "GB/s",
        "goal: at least 2",
    );
    report.row(
        "by bare calls, nothing in between",
        median(&bare),
        "GB/s",
        "",
    );
    report.row("ratio", ratio, "", "goal: at least 0.9");
    report.row("one call", median(&spans), "us", "mean");
    Ok(report)
}
