//! Memory that processes share, under each policy: forked workers' copy-on-write pages, and pages that KSM has merged.

use super::Scale;
use super::host::{Host, need_bytes};
use super::managed::{Managed, manage_all};
use super::report::Report;
use crate::error::BenchError;
use hawkeye_manager::Settings;
use hawkeye_policy::{CpuBudget, Rate};
use hawkeye_workload::Workload;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const POLICIES: [&str; 5] = ["hawkeye", "hawkeye-g", "hawkeye-pmu", "ingens", "linux"];
const WORKERS: usize = 8;
/// What each worker has for itself: its promotion shows that the manager is at work.
const PRIVATE_MIB: u64 = 16;
/// What KSM has merged within this time is what is looked at.
const MERGED_WITHIN: Duration = Duration::from_secs(60);
/// Different contents of mergeable pages.
const CONTENTS: u64 = 1024;

#[derive(Clone, Copy)]
struct Sizes {
    mib: u64,
    mergeable_mib: u64,
    time: Duration,
}

/// 512 MiB between nine processes for a minute, and 256 MiB merged for a third of that.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    let sizes = match scale {
        Scale::Quick => Sizes {
            mib: 64,
            mergeable_mib: 32,
            time: Duration::from_secs(4),
        },
        Scale::Full => Sizes {
            mib: 512,
            mergeable_mib: 256,
            time: Duration::from_secs(60),
        },
    };
    need_bytes((sizes.mib * WORKERS as u64 + sizes.mergeable_mib) << 20)?;
    let mut report = Report::new("shared-memory");
    for policy in POLICIES {
        forked(host, policy, sizes, &mut report)?;
        report.tell_last();
    }
    for policy in POLICIES {
        merged(host, policy, sizes, &mut report)?;
        report.tell_last();
    }
    report.note(format!(
        "{WORKERS} forked workers read {} MiB that they share with their parent, and {PRIVATE_MIB} MiB each of their own.",
        sizes.mib
    ));
    report.note("The manager looks every 2 s, and its own CPU budget is 100 %.");
    Ok(report)
}

/// A manager that holds nothing back.
fn settings() -> Result<Settings, BenchError> {
    Ok(Settings {
        period: Duration::from_secs(2),
        window: Duration::from_millis(500),
        rate: Some(Rate::per_second(1000.0)?),
        cpu: CpuBudget::new(100.0)?,
        ..Settings::default()
    })
}

/// Forked workers: the sum of their PSS before and while they are managed.
fn forked(host: &Host, policy: &str, sizes: Sizes, report: &mut Report) -> Result<(), BenchError> {
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

/// Merged memory: pages that KSM saves, before and while its owner is managed.
fn merged(
    host: &mut Host,
    policy: &str,
    sizes: Sizes,
    report: &mut Report,
) -> Result<(), BenchError> {
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
    // One page of each is kept.
    let nearly_all = ((sizes.mergeable_mib << 8) - CONTENTS) * 95 / 100;
    wait_until("KSM does not merge", || number(&sharing) >= nearly_all)?;
    // Otherwise it merges at once again what a promotion has copied.
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

/// Manages processes for some time, and looks at them each second.
fn watched(
    host: &Host,
    family: &[u32],
    policy: &str,
    time: Duration,
    mut look: impl FnMut(),
) -> Result<Managed, BenchError> {
    let mut looked = Instant::now();
    manage_all(host.means()?, family, policy, settings()?, time, |_| {
        if looked.elapsed() >= Duration::from_secs(1) {
            looked = Instant::now();
            look();
        }
        false
    })
}

/// The workload and its children.
fn family(program: &mut Workload) -> Result<Vec<u32>, BenchError> {
    let pid = program.wait_ready()?.pid;
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let listed = listed.unwrap_or_default();
    let mut family: Vec<u32> = vec![pid];
    family.extend(
        listed
            .split_whitespace()
            .filter_map(|pid| pid.parse::<u32>().ok()),
    );
    if family.len() == WORKERS + 1 {
        Ok(family)
    } else {
        let message = format!("{} of {WORKERS} workers are there", family.len() - 1);
        Err(BenchError::Impossible(message))
    }
}

fn wait_until(or_else: &str, mut is_so: impl FnMut() -> bool) -> Result<(), BenchError> {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > MERGED_WITHIN {
            let seconds = MERGED_WITHIN.as_secs();
            let message = format!("{or_else} within {seconds} s");
            return Err(BenchError::Impossible(message));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// A line of `smaps_rollup`, in KiB; 0 for a process that has ended.
fn kib(pid: u32, line: &str) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let rest = rollup.lines().find_map(|text| text.strip_prefix(line));
    let kib = rest.and_then(|text| text.strip_prefix(':')?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse().ok()).unwrap_or(0)
}

fn sum_kib(family: &[u32], line: &str) -> u64 {
    family.iter().map(|pid| kib(*pid, line)).sum()
}

fn growth_percent(before: u64, after: u64) -> f64 {
    (after as f64 / before.max(1) as f64 - 1.0) * 100.0
}
