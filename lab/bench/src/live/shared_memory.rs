//! Memory that processes share, under each policy: copy-on-write pages of forked workers, and pages
//! that KSM has merged.

use super::managed::{Managed, POLICIES};
use super::prelude::*;
use super::programs::answer_within;
use hawkeye_linux::fields::field;
use std::fs;

const WORKERS: usize = 8;
/// Private memory of each worker: its promotion shows that the manager is active.
const PRIVATE_MIB: u64 = 16;
/// How long KSM may merge before the measurement.
const MERGED_WITHIN: Duration = Duration::from_secs(60);
/// Number of different contents of mergeable pages.
const CONTENTS: u64 = 1024;

#[derive(Clone, Copy)]
struct Sizes {
    mib: u64,
    mergeable_mib: u64,
    time: Duration,
}

/// Nine processes share 512 MiB for a minute; then KSM merges 256 MiB for a third of that.
pub fn run(host: &mut Host, scale: Scale, report: &mut Report) -> Result<()> {
    let sizes = Sizes {
        mib: scale.pick(64, 512),
        mergeable_mib: scale.pick(32, 256),
        time: scale.pick(Duration::from_secs(4), Duration::from_secs(60)),
    };
    need_bytes((sizes.mib * WORKERS as u64 + sizes.mergeable_mib) << 20)?;
    for policy in POLICIES {
        forked(host, policy, sizes, report)?;
        report.tell_last();
    }
    for policy in POLICIES {
        merged(host, policy, sizes, report)?;
        report.tell_last();
    }
    report.note(format!(
        "{WORKERS} forked workers read {} MiB that they share with their parent, and {PRIVATE_MIB} MiB each of their own.",
        sizes.mib
    ));
    report.note("The manager looks every 2 s, and its own CPU budget is 100 %.");
    Ok(())
}

/// Settings of a manager without limits.
fn settings() -> Result<Settings> {
    Ok(Settings {
        period: Duration::from_secs(2),
        window: Duration::from_millis(500),
        rate: Some(Rate::per_second(1000.0)?),
        cpu: CpuBudget::new(100.0)?,
        ..Settings::default()
    })
}

/// Forked workers: the sum of their PSS before and while they are managed.
fn forked(host: &Host, policy: &str, sizes: Sizes, report: &mut Report) -> Result<()> {
    let words = format!(
        "shared --mib {} --workers {WORKERS} --private-mib {PRIVATE_MIB}",
        sizes.mib
    );
    let mut program = host.start(&words)?;
    let family = family(&mut program)?;
    let private_kib = (PRIVATE_MIB << 10) * WORKERS as u64;
    wait_until("the workers don't fill their memory", || {
        sum_kib(&family, "Private_Dirty") >= private_kib
    })?;
    let before = sum_kib(&family, "Pss");
    let mut most = before;
    let managed = watched(host, &family, policy, sizes.time, || {
        most = most.max(sum_kib(&family, "Pss"));
    })?;
    most = most.max(sum_kib(&family, "Pss"));
    report.row(
        format!("forked workers, {policy}: growth of their PSS"),
        growth_percent(before, most),
        "%",
        format!(
            "at most {} of {} MiB; {} MiB are huge; passed over {} times",
            most >> 10,
            before >> 10,
            sum_kib(&family, "AnonHugePages") >> 10,
            managed.journal.totals().shared
        ),
    );
    Ok(())
}

/// Merged memory: pages that KSM saves, before and while their owner is managed.
fn merged(host: &mut Host, policy: &str, sizes: Sizes, report: &mut Report) -> Result<()> {
    let sharing = ksm("pages_sharing");
    if !sharing.exists() {
        report.note("This kernel has no KSM.");
        return Ok(());
    }
    let set = [
        ("use_zero_pages", "0"),
        ("sleep_millisecs", "10"),
        ("pages_to_scan", "20000"),
        ("run", "1"),
    ];
    for (file, value) in set {
        host.set_file(&ksm(file), value)?;
    }
    let words = format!(
        "shared --mib {0} --workers 0 --mergeable {CONTENTS} --parent-mib {0}",
        sizes.mergeable_mib
    );
    let mut program = host.start(&words)?;
    let pid = program.wait_ready()?.pid;
    let mut control = host.start("random --mib 32 --pages base --quiet")?;
    let family = [pid, control.wait_ready()?.pid];
    // KSM keeps one page of each content.
    let nearly_all = ((sizes.mergeable_mib << 8) - CONTENTS) * 95 / 100;
    wait_until("KSM does not merge", || number(&sharing) >= nearly_all)?;
    // Otherwise KSM would merge again at once what a promotion has copied.
    host.set_file(&ksm("run"), "0")?;
    let before = number(&sharing);
    let mut least = before;
    watched(host, &family, policy, sizes.time / 3, || {
        least = least.min(number(&sharing));
    })?;
    least = least.min(number(&sharing));
    report.row(
        format!("merged by KSM, {policy}: fewer pages_sharing"),
        -growth_percent(before, least),
        "%",
        format!(
            "at least {least} of {before}; {} MiB of other memory are huge",
            kib(family[1], "AnonHugePages") >> 10
        ),
    );
    for (file, _) in set {
        host.put_back(&ksm(file))?;
    }
    Ok(())
}

fn ksm(file: &str) -> PathBuf {
    Path::new("/sys/kernel/mm/ksm").join(file)
}

fn number(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// Manages processes for some time, and samples them each second.
fn watched(
    host: &Host,
    family: &[u32],
    policy: &str,
    time: Duration,
    mut look: impl FnMut(),
) -> Result<Managed> {
    let mut looked = Instant::now();
    manage_all(host.means()?, family, policy, settings()?, time, |_| {
        if looked.elapsed() >= Duration::from_secs(1) {
            looked = Instant::now();
            look();
        }
        false
    })
}

fn family(program: &mut Workload) -> Result<Vec<u32>> {
    let pid = program.wait_ready()?.pid;
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = listed.unwrap_or_default();
    let children = children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok());
    let family: Vec<u32> = std::iter::once(pid).chain(children).collect();
    if family.len() == WORKERS + 1 {
        Ok(family)
    } else {
        bail!("{} of {WORKERS} workers are there", family.len() - 1)
    }
}

fn wait_until(or_else: &str, is_so: impl Fn() -> bool) -> Result<()> {
    if answer_within(MERGED_WITHIN, || Ok(is_so().then_some(())))?.is_none() {
        bail!("{or_else} within {} s", MERGED_WITHIN.as_secs());
    }
    Ok(())
}

/// The value of a line of `smaps_rollup`, in KiB; 0 for a process that has ended.
fn kib(pid: u32, line: &str) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let kib = field(&rollup, line).and_then(|text| text.strip_suffix(" kB")?.parse().ok());
    kib.unwrap_or(0)
}

fn sum_kib(family: &[u32], line: &str) -> u64 {
    family.iter().map(|pid| kib(*pid, line)).sum()
}

fn growth_percent(before: u64, after: u64) -> f64 {
    (after as f64 / before.max(1) as f64 - 1.0) * 100.0
}
