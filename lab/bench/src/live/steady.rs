//! What managing costs when there is nothing to do.

use super::host::{Host, need_bytes};
use super::report::Report;
use super::{Scale, manage};
use crate::error::BenchError;
use crate::statistics::median;
use hawkeye_manager::Settings;
use hawkeye_workload::Workload;
use std::time::Duration;

/// Measures a random reader with and without a manager, base pages and huge.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let (mib, length, turns) = match scale {
        Scale::Quick => (512, Duration::from_millis(1500), 1),
        Scale::Full => (8192, Duration::from_secs(120), 1),
    };
    need_bytes(mib << 20)?;
    let mut report = Report::new("steady");
    for (pages, goal) in [("base", "goal: at most 2"), ("huge", "goal: at most 0.3")] {
        let words = format!("random --mib {mib} --pages {pages} --report-ms 500");
        let mut workload = host.start(&words)?;
        let pid = workload.wait_ready()?.pid;
        let settings = Settings {
            max_promotions: Some(0),
            ..Settings::default()
        };
        let mut slower = Vec::new();
        let mut cpu = Vec::new();
        let mut windows = 0;
        let mut longest = Duration::ZERO;
        for _ in 0..turns {
            // Half before and half after, so that a drift of the machine's speed falls out.
            let before = workload.measure(length / 2)?;
            let (with, managed) = beside(&mut workload, length, || {
                manage(host.means()?, pid, "hawkeye-g", settings, length, |_| false)
            })?;
            let after = workload.measure(length / 2)?;
            slower.push((1.0 - with / ((before + after) / 2.0)) * 100.0);
            cpu.push(managed.cpu.as_secs_f64() * 100.0 / managed.wall.as_secs_f64());
            windows = managed.journal.totals().samples;
            longest = longest.max(managed.longest_call);
        }
        report.row(
            format!("{pages} pages: program slower by"),
            median(&slower),
            "%",
            goal,
        );
        report.row(
            format!("{pages} pages: manager"),
            median(&cpu),
            "% core",
            "goal: at most 1",
        );
        report.row(format!("{pages} pages: windows"), windows as f64, "", "");
        report.row(
            format!("{pages} pages: longest call"),
            longest.as_secs_f64() * 1e3,
            "ms",
            "",
        );
        let spread = slower
            .iter()
            .map(|s| format!("{s:.2}"))
            .collect::<Vec<_>>()
            .join(", ");
        report.note(format!("{pages} pages, slower by, each turn: {spread} %"));
    }
    report.note(format!(
        "{mib} MiB read at random, {} s a turn, default settings.",
        length.as_secs()
    ));
    Ok(report)
}

/// Measures the workload for `length` while `work` goes on in this process.
fn beside<T: Send>(
    workload: &mut Workload,
    length: Duration,
    work: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<(f64, T), BenchError> {
    std::thread::scope(|scope| {
        let working = scope.spawn(work);
        let rate = workload.measure(length);
        let result = working
            .join()
            .map_err(|_| BenchError::Impossible("the manager's thread panicked".into()))?;
        Ok((rate?, result?))
    })
}
