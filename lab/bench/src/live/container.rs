//! A container that bloats itself to its memory limit: killed or not.

use super::cgroup::MemoryCgroup;
use super::host::{Host, need_bytes};
use super::report::Report;
use super::{Scale, manage};
use crate::error::BenchError;
use crate::statistics::median;
use hawkeye_linux::stop::let_signals_through;
use hawkeye_linux::takeover::thp_settings::{SHRINK_UNDERUSED, THP_DIR};
use hawkeye_manager::Settings;
use hawkeye_policy::BloatThreshold;
use hawkeye_workload::{Event, HandleError, Request, Workload};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The limit, how far the program grows, and what it uses of that: 128 MiB.
const LIMIT_MIB: u64 = 2048;
const GROWS_TO_MIB: u64 = 4096;
const USED_PAGES: u64 = 16;

/// Under what the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    /// Base pages, no manager.
    Never,
    /// Huge pages for all, the kernel's defaults, no manager.
    Always,
    /// Huge pages for all, managed.
    Managed,
    /// The same, where the kernel can't split by itself at the limit (before 6.12).
    ManagedAlone,
}

impl System {
    fn name(self) -> &'static str {
        match self {
            Self::Never => "THP never",
            Self::Always => "THP always",
            Self::Managed => "managed",
            Self::ManagedAlone => "managed, without the kernel's shrinker",
        }
    }

    fn prepare(self, host: &mut Host) -> Result<(), BenchError> {
        let (enabled, shrink, none) = match self {
            Self::Never => ("never", "1", 511),
            Self::Always => ("always", "1", 511),
            Self::Managed => ("always", "1", BloatThreshold::default().zero_pages() - 1),
            Self::ManagedAlone => ("always", "0", 511),
        };
        host.set_enabled(enabled)?;
        host.set_thp("khugepaged/max_ptes_none", &none.to_string())?;
        if Path::new(THP_DIR).join(SHRINK_UNDERUSED).exists() {
            host.set_thp(SHRINK_UNDERUSED, shrink)?;
        }
        Ok(())
    }
}

/// How one run ended.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    killed: bool,
    /// Huge pages that the manager split, and that the kernel did at the limit.
    split: u64,
    kernel_split: u64,
    manager_cpu_s: f64,
    /// How long it took to grow, where it got there.
    grown_s: Option<f64>,
}

/// Runs the program once in a container of its own.
fn trial(host: &Host, system: System, mb_per_s: Option<u64>) -> Result<Trial, BenchError> {
    let group = MemoryCgroup::new("hawkeye-bench-container", LIMIT_MIB << 20)?;
    let mut words = format!("workload grow --mib {GROWS_TO_MIB} --used {USED_PAGES}");
    if let Some(rate) = mb_per_s {
        words += &format!(" --mb-per-s {rate}");
    }
    let mut command = group.command(host.program(), &words);
    let_signals_through(&mut command);
    let mut program = Workload::spawn_command(command)?;
    let pid = program.wait_ready()?.pid;
    let before = kernel_splits();
    let mut found = Trial::default();
    if matches!(system, System::Managed | System::ManagedAlone) {
        let mut told = Ok(());
        let mut waiting = true;
        // Managing ends with the program.
        let managed = manage(
            host.means()?,
            pid,
            "hawkeye-g",
            Settings::default(),
            Duration::from_secs(300),
            |_| {
                if std::mem::take(&mut waiting) {
                    told = program.command(Request::Go);
                }
                told.is_err()
            },
        )?;
        told?;
        found.split = managed.journal.totals().split;
        found.manager_cpu_s = managed.cpu.as_secs_f64();
    } else {
        program.command(Request::Go)?;
    }
    found.kernel_split = kernel_splits().saturating_sub(before);
    loop {
        match program.next_event(Duration::from_secs(300)) {
            Ok(Event::Progress { elapsed_s, .. }) => found.grown_s = Some(elapsed_s),
            Ok(Event::Verified { bad_bytes: 0, .. }) => return Ok(found),
            Ok(Event::Verified { bad_bytes, .. }) => {
                let message = format!("{bad_bytes} bytes of the program are wrong");
                return Err(BenchError::Impossible(message));
            }
            Ok(_) => {}
            Err(HandleError::Ended) => {
                found.killed = true;
                return Ok(found);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Huge pages that the kernel has split because they were underused.
fn kernel_splits() -> u64 {
    let vmstat = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    vmstat
        .lines()
        .find_map(|line| line.strip_prefix("thp_underused_split_page "))
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

/// Runs it `runs` times, and says how often it lived.
fn repeat(
    host: &mut Host,
    report: &mut Report,
    system: System,
    mb_per_s: Option<u64>,
    runs: u32,
) -> Result<(), BenchError> {
    system.prepare(host)?;
    let mut trials = Vec::new();
    for _ in 0..runs {
        trials.push(trial(host, system, mb_per_s)?);
    }
    let lived = trials.iter().filter(|trial| !trial.killed).count();
    let of = |figure: fn(&Trial) -> f64| median(&trials.iter().map(figure).collect::<Vec<_>>());
    let speed = mb_per_s.map_or("as fast as it can".to_owned(), |rate| {
        format!("{rate} MB/s")
    });
    let grown: Vec<f64> = trials.iter().filter_map(|trial| trial.grown_s).collect();
    report.row(
        format!("{}, {speed}: lived", system.name()),
        lived as f64,
        "runs",
        format!(
            "of {runs}; grown in {:.1} s; huge pages split: {} by the manager ({:.1} s of CPU), {} by the kernel at the limit",
            median(&grown),
            of(|trial| trial.split as f64),
            of(|trial| trial.manager_cpu_s),
            of(|trial| trial.kernel_split as f64),
        ),
    );
    Ok(())
}

/// A limit of 2 GiB; the program grows to 4 GiB of huge pages, of which it uses 128 MiB.
pub fn run(host: &mut Host, scale: Scale) -> Result<Report, BenchError> {
    need_bytes(LIMIT_MIB << 20)?;
    let (runs, sweep, rates): (_, _, &[_]) = match scale {
        Scale::Quick => (1, 1, &[]),
        Scale::Full => (20, 3, &[Some(100), Some(500), Some(1000)]),
    };
    let mut report = Report::new("container");
    repeat(host, &mut report, System::Never, None, sweep)?;
    repeat(host, &mut report, System::Always, None, runs)?;
    repeat(host, &mut report, System::Managed, None, runs)?;
    for rate in rates {
        repeat(host, &mut report, System::Managed, *rate, sweep)?;
    }
    for rate in rates.iter().chain(&[None]) {
        repeat(host, &mut report, System::ManagedAlone, *rate, sweep)?;
    }
    host.set_enabled("madvise")?;
    report.note("Limit 2 GiB; 4 GiB of huge pages are touched, 16 base pages of each, and verified at the end.");
    report.note("MB/s are of huge pages touched. The manager's settings are the defaults; counts are medians.");
    Ok(report)
}
