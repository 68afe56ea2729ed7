//! The cost of managing when there is nothing to do.

use super::prelude::*;
use crate::error::BenchError;

/// Measures a random reader with and without a manager, base pages and huge.
pub fn run(host: &mut Host, scale: Scale, report: &mut Report) -> Result<()> {
    let mib = scale.pick(512, 8192);
    let length = scale.pick(Duration::from_millis(1500), Duration::from_secs(120));
    need_bytes(mib << 20)?;
    for (pages, goal) in [("base", "goal: at most 2"), ("huge", "goal: at most 0.3")] {
        let words = format!("random --mib {mib} --pages {pages} --report-ms 500");
        let mut workload = host.start(&words)?;
        let pid = workload.wait_ready()?.pid;
        let settings = Settings {
            max_promotions: Some(0),
            ..Settings::default()
        };
        // Half before and half after, which cancels a drift of the machine's speed.
        let before = workload.measure(length / 2)?;
        let (with, managed) = std::thread::scope(|scope| {
            let managing = scope
                .spawn(|| manage(host.means()?, pid, "hawkeye-g", settings, length, |_| false));
            let rate = workload.measure(length);
            let managed = joined(managing);
            Ok::<_, BenchError>((rate?, managed?))
        })?;
        let after = workload.measure(length / 2)?;
        let slower = (1.0 - with / ((before + after) / 2.0)) * 100.0;
        let longest = managed.longest_call.as_secs_f64() * 1e3;
        let windows = managed.journal.totals().samples as f64;
        let mut rows = report.of(format!("{pages} pages"));
        rows.row("program slower by", slower, "%", goal);
        rows.row(
            "manager",
            managed.cpu_percent(),
            "% core",
            "goal: at most 1",
        );
        rows.row("windows", windows, "", "");
        rows.row("longest call", longest, "ms", "");
    }
    report.note(format!(
        "The program reads {mib} MiB at random; turns of {} s, default settings.",
        length.as_secs()
    ));
    Ok(())
}
