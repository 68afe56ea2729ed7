//! The kernel's own promoter: its pace, and what it has done.

use crate::error::BenchError;
use crate::live::host::Host;
use hawkeye_linux::LinuxError;
use hawkeye_linux::processes::process::cpu_time;
use hawkeye_linux::takeover::thp_settings::{SHRINK_UNDERUSED, THP_DIR};
use hawkeye_policy::{BloatThreshold, PAGES_PER_REGION};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// How fast it works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Khugepaged {
    /// It promotes nothing.
    Resting,
    /// As every kernel comes: 8 regions scanned every 10 s (mm/khugepaged.c).
    Shipped,
    /// So many regions a second.
    Paced(f64),
    /// Without pauses.
    Unpaced,
}

impl Khugepaged {
    /// Has it work so from now on.
    ///
    /// # Errors
    /// A setting can't be changed.
    pub fn apply(self, host: &mut Host) -> Result<(), BenchError> {
        let scanned = |regions: f64| (regions * f64::from(PAGES_PER_REGION)).round().max(1.0);
        // Pages a pass, pause after a pass, pause after no huge page could be had.
        let (pages, pause_ms, alloc_pause_ms) = match self {
            Self::Resting => (1.0, 86_400_000, 86_400_000),
            Self::Shipped => (scanned(8.0), 10_000, 60_000),
            // Ten passes a second, so that it does not come in bursts, where that is a region a pass at the least.
            Self::Paced(per_s) if per_s >= 10.0 => (scanned(per_s / 10.0), 100, 100),
            Self::Paced(per_s) => (scanned(1.0), (1000.0 / per_s) as u64, 100),
            Self::Unpaced => (1e6, 0, 0),
        };
        // Writing a pause wakes it, so the amount comes first.
        host.set_thp("khugepaged/pages_to_scan", &format!("{pages:.0}"))?;
        host.set_thp(
            "khugepaged/alloc_sleep_millisecs",
            &alloc_pause_ms.to_string(),
        )?;
        host.set_thp("khugepaged/scan_sleep_millisecs", &pause_ms.to_string())
    }
}

/// How much of a huge page may be nothing: as the kernel comes (a region with one page in it may become huge, and huge pages full of
/// zeros are split by nobody), or as a manager has it.
///
/// # Errors
/// A setting can't be changed.
pub(super) fn bloat(host: &mut Host, managed: bool) -> Result<(), BenchError> {
    let none = if managed {
        BloatThreshold::default().zero_pages() - 1
    } else {
        511
    };
    host.set_thp("khugepaged/max_ptes_none", &none.to_string())?;
    if Path::new(THP_DIR).join(SHRINK_UNDERUSED).exists() {
        host.set_thp(SHRINK_UNDERUSED, "1")?;
    }
    Ok(())
}

/// What it has done since the machine started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    /// Regions that it has made huge. Those that managers have the kernel collapse count here, too.
    pub collapsed: u64,
    /// Its CPU time; nothing where there is no such thread now.
    pub cpu: Duration,
}

impl Done {
    pub(super) fn now() -> Result<Self, BenchError> {
        let file = Path::new(THP_DIR).join("khugepaged/pages_collapsed");
        let collapsed = fs::read_to_string(&file).map_err(LinuxError::file("reading", &file))?;
        Ok(Self {
            collapsed: collapsed.trim().parse().unwrap_or(0),
            cpu: thread().map_or(Ok(Duration::ZERO), cpu_time)?,
        })
    }
}

/// Its thread. It is there as long as anybody may have huge pages.
fn thread() -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?;
    let mut pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.find(|pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.trim_end() == "khugepaged")
    })
}
