//! khugepaged, the kernel's own promoter: its pace and its results.

use crate::live::prelude::*;
use crate::live::programs::program_launcher::process_name;
use hawkeye_linux::processes::process::cpu_time;
use std::fs;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KhugepagedPace {
    Resting,
    /// The kernel's default: it scans 8 regions every 10 s (mm/khugepaged.c).
    Shipped,
    /// This many regions per second.
    Paced(f64),
    Unpaced,
}

impl KhugepagedPace {
    pub fn apply_pace(self, host: &mut BenchHost) -> BenchResult<()> {
        let mut settings = self.thp_settings().into_iter();
        settings.try_for_each(|(file, value)| host.set_thp_setting(file, &value))
    }

    /// The files of its settings, in the order in which they must be written, and their values.
    pub fn thp_settings(self) -> [(&'static str, String); 3] {
        let scanned = |regions: f64| (regions * f64::from(PAGES_PER_REGION)).round().max(1.0);
        // Pages per pass, the pause after a pass, and the pause after a failed allocation of a huge
        // page.
        let (pages, pause_ms, alloc_pause_ms) = match self {
            Self::Resting => (1.0, 86_400_000, 86_400_000),
            Self::Shipped => (scanned(8.0), 10_000, 60_000),
            // Ten passes per second to avoid bursts, if that is at least one region per pass.
            Self::Paced(per_s) if per_s >= 10.0 => (scanned(per_s / 10.0), 100, 100),
            Self::Paced(per_s) => (scanned(1.0), (1000.0 / per_s) as u64, 100),
            Self::Unpaced => (1e6, 0, 0),
        };
        // Writing a pause wakes khugepaged, so the amount comes first.
        [
            ("khugepaged/pages_to_scan", format!("{pages:.0}")),
            ("khugepaged/alloc_sleep_millisecs", alloc_pause_ms.to_string()),
            ("khugepaged/scan_sleep_millisecs", pause_ms.to_string()),
        ]
    }
}

/// Sets how many pages of a huge page may be empty: as few as `kernel_split = "on"` sets, or any
/// number, which is the kernel's default. The kernel's shrinker is on, also by default; it splits
/// huge pages that are emptier (6.12 and later).
pub(in crate::live) fn set_empty_page_limit_and_shrinker(
    host: &mut BenchHost,
    limited: bool,
) -> BenchResult<()> {
    let none = if limited { BloatThreshold::default().zero_pages() - 1 } else { 511 };
    host.set_thp_setting("khugepaged/max_ptes_none", &none.to_string())?;
    if Path::new(THP_DIR).join(SHRINK_UNDERUSED).exists() {
        host.set_thp_setting(SHRINK_UNDERUSED, "1")?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KhugepagedTotals {
    /// Regions that became huge, including those that managers had the kernel collapse.
    pub collapsed: u64,
    /// Its CPU time; zero if the thread is not running now.
    pub cpu: Duration,
}

impl KhugepagedTotals {
    pub(super) fn read_totals() -> BenchResult<Self> {
        let file = Path::new(THP_DIR).join("khugepaged/pages_collapsed");
        let collapsed =
            fs::read_to_string(&file).map_err(LinuxError::wrap_io_error("reading", &file))?;
        Ok(Self {
            collapsed: collapsed.trim().parse().unwrap_or(0),
            cpu: find_khugepaged_pid().map_or(Ok(Duration::ZERO), cpu_time)?,
        })
    }
}

/// khugepaged's thread. It exists while huge pages are enabled for any program.
fn find_khugepaged_pid() -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?;
    let mut pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.find(|pid: &u32| process_name(*pid) == "khugepaged")
}
