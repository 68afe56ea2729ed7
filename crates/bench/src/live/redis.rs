//! Redis with most of its keys deleted, then memory runs short: never, always and managed.

mod server;

use super::Scale;
use super::error::BenchError;
use super::host::{Host, available_bytes, need_bytes};
use super::programs::packages;
use super::report::{Report, median};
use hawkeye_linux::system_memory;
use serde_json::Value;
use server::{Managing, Server};
use std::path::Path;
use std::time::Duration;

/// How huge pages are had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Never,
    Always,
    Run,
    Attach,
}

impl System {
    fn name(self) -> &'static str {
        match self {
            Self::Never => "THP never",
            Self::Always => "THP always",
            Self::Run => "hawkeye run",
            Self::Attach => "hawkeye attach",
        }
    }

    fn thp_enabled(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Always => "always",
            Self::Run | Self::Attach => "madvise",
        }
    }
}

/// Figures at one point of the run.
#[derive(Clone, Copy, Debug)]
struct Point {
    requests_per_s: f64,
    rss_mib: f64,
}

struct Run {
    /// The manager's summary, where there was one.
    managed: Option<Value>,
    full: Point,
    deleted: Point,
    short: Point,
}

/// One million values of 4 KiB; 80 % deleted; then a neighbour takes the memory.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    packages::need("redis-server", "redis-server")?;
    packages::need("redis-cli", "redis-tools")?;
    packages::need("redis-benchmark", "redis-tools")?;
    let keys: u64 = if scale == Scale::Quick {
        100_000
    } else {
        1_000_000
    };
    need_bytes(keys * 4096 * 5 / 4)?;
    let mut report = Report::new("redis");
    let systems = [System::Never, System::Always, System::Run, System::Attach];
    for system in systems {
        host.set_enabled(system.thp_enabled())?;
        let run = measure(host, system, keys)?;
        let name = system.name();
        for (when, point) in [
            ("all keys", run.full),
            ("80 % deleted", run.deleted),
            ("then memory short", run.short),
        ] {
            report.row(
                format!("{name}: {when}"),
                point.requests_per_s / 1e3,
                "k GET/s",
                format!("{:.0} MiB resident", point.rss_mib),
            );
        }
        if let Some(summary) = run.managed {
            report.note(format!(
                "{name}: {} promoted, {} split, {} bytes recovered, {} s of CPU, longest call {} ms",
                summary["promoted"],
                summary["split"],
                summary["recovered_bytes"],
                summary["manager_cpu_s"],
                summary["longest_call_ms"],
            ));
        }
    }
    host.set_enabled("madvise")?;
    report.note(format!(
        "{keys} values of 4 KiB, redis-benchmark -P 16 -c 50, median of 3."
    ));
    report.note("Memory short: a neighbour fills the machine to 88 %, and is gone again when the speed is measured.");
    Ok(report)
}

fn measure(host: &Host, system: System, keys: u64) -> Result<Run, BenchError> {
    let managing = match system {
        System::Never | System::Always => Managing::Not,
        System::Run => Managing::Run(host.program()),
        System::Attach => Managing::Attach(host.program()),
    };
    let server = Server::start(managing)?;
    server.fill(keys)?;
    // Time for the manager's windows and its promotions, under load; the others have it too.
    server.load(keys, Duration::from_secs(35))?;
    let full = point(&server, keys)?;
    server.delete_four_of_five(keys)?;
    server.load(keys, Duration::from_secs(35))?;
    let deleted = point(&server, keys)?;
    press(host.program(), || server.rss_bytes())?;
    let short = point(&server, keys)?;
    Ok(Run {
        full,
        deleted,
        short,
        managed: server.stop()?,
    })
}

fn point(server: &Server, keys: u64) -> Result<Point, BenchError> {
    let mut rates = Vec::new();
    for _ in 0..3 {
        rates.push(server.gets_per_s(keys)?);
    }
    Ok(Point {
        requests_per_s: median(&rates),
        rss_mib: server.rss_bytes()? as f64 / f64::from(1 << 20),
    })
}

/// Fills the machine's memory to 88 % for as long as that frees any of the server's, half a minute at
/// the most.
fn press(
    program: &Path,
    mut rss_bytes: impl FnMut() -> Result<u64, BenchError>,
) -> Result<(), BenchError> {
    let machine = system_memory::machine()?;
    let wanted = (machine.total_bytes as f64 * 0.88) as u64;
    let mib = wanted
        .saturating_sub(machine.used_bytes)
        .min(available_bytes())
        >> 20;
    let words = ["workload", "burner", "--pages", "huge", "--mib"];
    let mut neighbour = crate::workload::Workload::spawn(
        program,
        words
            .iter()
            .map(|word| (*word).to_owned())
            .chain([mib.to_string()]),
    )?;
    neighbour.wait_ready()?;
    let mut before = rss_bytes()?;
    let mut unchanged = 0;
    for _ in 0..30 {
        std::thread::sleep(Duration::from_secs(1));
        let now = rss_bytes()?;
        unchanged = if now < before { 0 } else { unchanged + 1 };
        before = now;
        if unchanged >= 8 {
            break;
        }
    }
    Ok(())
}
