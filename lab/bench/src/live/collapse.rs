//! How fast regions are promoted.

use super::host::{Host, need_bytes};
use super::primitives::collapse_all;
use super::report::Report;
use super::{Scale, manage};
use crate::error::BenchError;
use crate::statistics::median;
use hawkeye_linux::processes::process::ProcessHandle;
use hawkeye_manager::{Event, Settings};
use hawkeye_policy::{CpuBudget, HUGE_PAGE_BYTES, Rate};
use std::time::Duration;

const GB: f64 = 1e9;

/// Promotes whole processes by the loop and by bare calls, in turn.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let mib: u64 = if scale == Scale::Quick { 256 } else { 2048 };
    let rounds = if scale == Scale::Quick { 2 } else { 6 };
    need_bytes(mib << 20)?;
    let mut loops = Vec::new();
    let mut bare = Vec::new();
    let mut calls = Vec::new();
    for round in 0..rounds {
        // Whoever comes second gets the memory that the first has left: take turns at that too.
        if round % 2 == 0 {
            bare.push(by_bare_calls(host, mib)?);
        }
        let (gb_per_s, us_per_call) = by_the_loop(host, mib)?;
        loops.push(gb_per_s);
        calls.push(us_per_call);
        if round % 2 == 1 {
            bare.push(by_bare_calls(host, mib)?);
        }
    }
    let ratios: Vec<f64> = loops.iter().zip(&bare).map(|(l, b)| l / b).collect();
    let mut report = Report::new("collapse");
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
    let spread: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    let beside = format!("goal: at least 0.9; rounds: {}", spread.join(" "));
    report.row("ratio", median(&ratios), "", beside);
    report.row("one call", median(&calls), "us", "mean");
    Ok(report)
}

fn by_bare_calls(host: &Host, mib: u64) -> Result<f64, BenchError> {
    let mut workload = host.start(&format!("burner --mib {mib} --pages base"))?;
    let ready = workload.wait_ready()?;
    let process = ProcessHandle::open(ready.pid)?;
    let took = collapse_all(&process, ready.start..ready.start + ready.bytes)?;
    Ok((mib << 20) as f64 / GB / took.as_secs_f64())
}

/// GB/s, and microseconds a call.
fn by_the_loop(host: &Host, mib: u64) -> Result<(f64, f64), BenchError> {
    let mut workload = host.start(&format!("burner --mib {mib} --pages base"))?;
    let pid = workload.wait_ready()?.pid;
    let settings = Settings {
        cpu: CpuBudget::new(100.0)?,
        rate: Some(Rate::per_second(1e9)?),
        ..Settings::default()
    };
    let regions = mib / 2;
    let at_most = Duration::from_secs(60);
    let managed = manage(host.means()?, pid, "linux", settings, at_most, |journal| {
        journal.totals().promoted >= regions
    })?;
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
    let bytes = calls.len() as f64 * HUGE_PAGE_BYTES as f64;
    let in_calls: Duration = calls.iter().map(|(_, took)| *took).sum();
    Ok((
        bytes / GB / span.as_secs_f64(),
        in_calls.as_secs_f64() * 1e6 / calls.len() as f64,
    ))
}
