//! A virtual machine frees most of its memory; its host gets memory back by recovery alone (the
//! effect of the paper's Figure 11). A kernel with `init_on_free=1` zeroes freed memory, and the
//! host recovers zero pages from its huge pages. There is no balloon, and nothing in the guest
//! knows of it.

use super::Rows;
use super::guest::Guest;
use super::prelude::*;
use super::programs::huge::huge_regions;

const GUEST_MIB: u64 = 1024;
/// Memory that the program in the guest takes.
const TAKEN_MIB: u64 = 700;
/// The part of it that the program frees.
const FREED_MIB: u64 = 600;
/// Timeout of one answer from the guest.
const ANSWER: Duration = Duration::from_secs(120);
/// Timeout of recovery, which ends once everything was searched.
const AT_MOST: Duration = Duration::from_secs(60);
const QUIET: Duration = Duration::from_secs(5);

/// Runs one guest: it takes and frees memory, the host recovers, and the guest verifies what it
/// kept.
fn observe(host: &Host, guest: &Guest, parameters: &str, mut rows: Rows) -> Result<()> {
    let words = format!("burner --mib {TAKEN_MIB} --pages base");
    let mut program = guest.start(GUEST_MIB, parameters, &words)?;
    let pid = program.pid();
    program.wait_ready()?;
    let taken = format!("{TAKEN_MIB} MiB taken in the guest");
    rows.row("at the host", mib(rss_bytes(pid)?), "MiB", taken);
    let regions = (FREED_MIB << 20) / HUGE_PAGE_BYTES;
    match program.request(Request::Free(regions as usize), ANSWER)? {
        Event::Freed { freed_bytes } if freed_bytes == FREED_MIB << 20 => {}
        other => bail!("the program in the guest freed something else: {other:?}"),
    }
    let freed = mib(rss_bytes(pid)?);
    let beside = format!("{FREED_MIB} MiB of them freed in the guest");
    rows.row("at the host", freed, "MiB", beside);
    let huge = huge_regions(pid)?;
    // More than this is always in use, so memory counts as short.
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
    let recovered = mib(rss_bytes(pid)?);
    rows.row("at the host", recovered, "MiB", "after recovery");
    let goal = format!("goal: {FREED_MIB} with init_on_free=1, 0 without");
    rows.row("given back", freed - recovered, "MiB", goal);
    let wrong = program.wrong_bytes(ANSWER)? as f64;
    let kept = format!("of {} MiB kept; goal: 0", TAKEN_MIB - FREED_MIB);
    rows.row("wrong bytes", wrong, "", kept);
    Ok(())
}

/// Runs the same guest twice: with and without zeroing of freed memory.
pub fn run(host: &mut Host, _scale: Scale, report: &mut Report) -> Result<()> {
    need_bytes(2 * (GUEST_MIB << 20))?;
    let guest = Guest::of(host.program())?;
    for (name, parameters) in [
        ("init_on_free=1", "init_on_free=1"),
        ("control, init_on_free=0", "init_on_free=0"),
    ] {
        observe(host, &guest, parameters, report.of(name))?;
    }
    report.note(format!(
        "{GUEST_MIB} MiB for each guest and what its files take, huge pages at the host, QEMU without KVM. What the guest \
         has never used, or has freed while it started, is given back too."
    ));
    Ok(())
}
