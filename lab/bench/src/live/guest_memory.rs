//! A virtual machine that has freed most of its memory, and what its host gets back of it by recovery alone (the effect of
//! the paper's Figure 11): a kernel with `init_on_free=1` zeroes what is freed, and the host takes zero pages back from
//! its huge pages. No balloon, nothing in the guest knows of it.

use super::guest::Guest;
use super::host::{Host, need_bytes};
use super::programs::huge::huge_regions;
use super::report::Report;
use super::{Scale, manage};
use crate::error::BenchError;
use hawkeye_linux::processes::process::rss_bytes;
use hawkeye_manager::Settings;
use hawkeye_policy::{CpuBudget, HUGE_PAGE_BYTES, Watermarks};
use hawkeye_workload::{Event, Request};
use std::time::{Duration, Instant};

const GUEST_MIB: u64 = 1024;
/// What the program in the guest takes, ...
const TAKEN_MIB: u64 = 700;
/// ... and what it frees of that.
const FREED_MIB: u64 = 600;
/// For one answer from the guest.
const ANSWER: Duration = Duration::from_secs(120);
/// For recovery, which ends when everything was searched, or nothing is any more.
const AT_MOST: Duration = Duration::from_secs(60);
const QUIET: Duration = Duration::from_secs(5);

/// Memory of the virtual machine, as its host counts it.
struct Seen {
    taken_bytes: u64,
    freed_bytes: u64,
    recovered_bytes: u64,
    /// Of what the program in the guest has kept.
    wrong_bytes: u64,
}

/// One guest's life: memory taken, freed, recovered by the host, and what was kept verified.
fn observe(host: &Host, guest: &Guest, parameters: &str) -> Result<Seen, BenchError> {
    let words = format!("burner --mib {TAKEN_MIB} --pages base");
    let mut program = guest.start(GUEST_MIB, parameters, &words)?;
    let pid = program.pid();
    program.wait_ready()?;
    let taken_bytes = rss_bytes(pid)?;
    let regions = (FREED_MIB << 20) / HUGE_PAGE_BYTES;
    match program.request(Request::Free(regions as usize), ANSWER)? {
        Event::Freed { freed_bytes } if freed_bytes == FREED_MIB << 20 => {}
        other => {
            return Err(BenchError::Impossible(format!(
                "the program in the guest freed something else: {other:?}"
            )));
        }
    }
    let freed_bytes = rss_bytes(pid)?;
    let huge = huge_regions(pid)?;
    // As if memory were short: so little is always in use.
    let settings = Settings {
        cpu: CpuBudget::new(100.0)?,
        watermarks: Watermarks::new(0.02, 0.01)?,
        ..Settings::default()
    };
    let mut last = (0, Instant::now());
    manage(host.means()?, pid, "none", settings, AT_MOST, |journal| {
        let scanned = journal.totals().scanned;
        if scanned != last.0 {
            last = (scanned, Instant::now());
        }
        scanned >= huge || last.1.elapsed() >= QUIET
    })?;
    let recovered_bytes = rss_bytes(pid)?;
    let Event::Verified { bad_bytes, .. } = program.request(Request::Verify, ANSWER)? else {
        return Err(BenchError::Impossible(
            "the program in the guest did not verify its memory".into(),
        ));
    };
    Ok(Seen {
        taken_bytes,
        freed_bytes,
        recovered_bytes,
        wrong_bytes: bad_bytes,
    })
}

/// The same guest twice: one that zeroes what is freed, one that does not.
pub fn run(host: &mut Host, _scale: Scale) -> Result<Report, BenchError> {
    need_bytes(2 * (GUEST_MIB << 20))?;
    let guest = Guest::of(host.program())?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut report = Report::new("guest-memory");
    for (name, parameters) in [
        ("init_on_free=1", "init_on_free=1"),
        ("control, init_on_free=0", "init_on_free=0"),
    ] {
        let seen = observe(host, &guest, parameters)?;
        let mut row = |what: &str, value, unit, beside: String| {
            report.row(format!("{name}: {what}"), value, unit, beside);
        };
        let taken = format!("{TAKEN_MIB} MiB taken in the guest");
        row("at the host", mib(seen.taken_bytes), "MiB", taken);
        let freed = format!("{FREED_MIB} MiB of them freed in the guest");
        row("at the host", mib(seen.freed_bytes), "MiB", freed);
        let recovered = "after recovery";
        row(
            "at the host",
            mib(seen.recovered_bytes),
            "MiB",
            recovered.into(),
        );
        row(
            "given back",
            mib(seen.freed_bytes) - mib(seen.recovered_bytes),
            "MiB",
            format!("goal: {FREED_MIB} with init_on_free=1, 0 without"),
        );
        row(
            "wrong bytes",
            seen.wrong_bytes as f64,
            "",
            format!("of {} MiB kept; goal: 0", TAKEN_MIB - FREED_MIB),
        );
    }
    report.note(format!(
        "{GUEST_MIB} MiB for each guest and what its files take, huge pages at the host, QEMU without KVM. What the guest \
         has never used, or has freed while it started, is given back too."
    ));
    Ok(report)
}
