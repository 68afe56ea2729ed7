//! How fast regions are promoted.

use super::prelude::*;
use super::programs::whole_process_promotion::collapse_range;
use hawkeye_manager::Event;

const GB: f64 = 1e9;

pub fn run(host: &mut BenchHost, scale: Scale, report: &mut LiveReport) -> BenchResult<()> {
    let mib: u64 = scale.short_or_long(256, 2048);
    let rounds = scale.short_or_long(2, 6);
    require_available_memory(mib << 20)?;
    let mut loops = Vec::new();
    let mut bare = Vec::new();
    let mut calls = Vec::new();
    for round in 0..rounds {
        // The second of the two gets the memory that the first has freed, so the order alternates
        // too.
        if round % 2 == 0 {
            bare.push(measure_bare_collapse_calls(host, mib)?);
        }
        let (gb_per_s, us_per_call) = measure_promotion_by_manager(host, mib)?;
        loops.push(gb_per_s);
        calls.push(us_per_call);
        if round % 2 == 1 {
            bare.push(measure_bare_collapse_calls(host, mib)?);
        }
    }
    let ratios: Vec<f64> = loops.iter().zip(&bare).map(|(l, b)| l / b).collect();
    let by_loop = "promoted by the manager";
    report.add_row(by_loop, median(&loops), "GB/s", "goal: at least 2");
    report.add_row("by calls without pauses", median(&bare), "GB/s", "");
    let spread: Vec<String> = ratios.iter().map(|ratio| format!("{ratio:.2}")).collect();
    let beside = format!("goal: at least 0.9; rounds: {}", spread.join(" "));
    report.add_row("ratio", median(&ratios), "", beside);
    report.add_row("one call", median(&calls), "us", "mean");
    Ok(())
}

fn measure_bare_collapse_calls(host: &BenchHost, mib: u64) -> BenchResult<f64> {
    let mut workload = host.start_workload(&format!("burner --mib {mib} --pages base"))?;
    let ready = workload.wait_ready()?;
    let process = ProcessHandle::open(ready.pid)?;
    let took = collapse_range(&process, ready.start..ready.start + ready.bytes)?;
    Ok((mib << 20) as f64 / GB / took.as_secs_f64())
}

/// Throughput in GB/s, and microseconds per call.
fn measure_promotion_by_manager(host: &BenchHost, mib: u64) -> BenchResult<(f64, f64)> {
    let mut workload = host.start_workload(&format!("burner --mib {mib} --pages base"))?;
    let pid = workload.wait_ready()?.pid;
    let settings = Settings {
        cpu: CpuBudget::new(100.0)?,
        rate: Some(RatePerSecond::new(1e9)?),
        ..Settings::default()
    };
    let regions = mib / 2;
    let at_most = Duration::from_secs(60);
    let means = host.new_kernel_backend()?;
    let managed = manage_processes_until(means, &[pid], "linux", settings, at_most, |journal| {
        journal.totals().promoted >= regions
    })?;
    let entries = managed.journal.entries();
    let calls = entries.filter_map(|entry| match &entry.event {
        Event::Promoted { took, .. } => Some((entry.at, *took)),
        _ => None,
    });
    let calls: Vec<(Duration, Duration)> = calls.collect();
    let (Some(first), Some(last)) = (calls.first(), calls.last()) else {
        bail!("the manager promoted nothing within 60 s");
    };
    let span = last.0 + last.1 - first.0;
    let bytes = calls.len() as f64 * HUGE_PAGE_BYTES as f64;
    let in_calls: Duration = calls.iter().map(|(_, took)| *took).sum();
    Ok((bytes / GB / span.as_secs_f64(), in_calls.as_secs_f64() * 1e6 / calls.len() as f64))
}
