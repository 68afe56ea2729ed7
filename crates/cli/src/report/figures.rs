//! The figures of a recording. Units are in the names; `--json` prints the same.

use super::decisions::Decisions;
use super::heat_map::HeatMap;
use super::series::TimeSeries;
use serde::Serialize;

/// All figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecordingReport {
    /// Name of the host.
    pub host: String,
    /// Version of the kernel.
    pub kernel: String,
    /// Name of the policy; `none`: nothing was changed.
    pub policy: String,
    /// Start, in seconds since 1970; `null` for simulated time.
    pub began_unix_s: Option<f64>,
    /// Length.
    pub length_s: f64,
    /// Whether it has no end: it is still being made, or its manager was killed.
    pub unfinished: bool,
    /// Number of unreadable rows.
    pub bad_rows: u64,
    /// Processes, those with most memory first.
    pub processes: Vec<ProcessFigures>,
    /// Figures of the machine.
    pub machine: MachineFigures,
    /// The decisions.
    pub decisions: Decisions,
}

/// Figures of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessFigures {
    /// Process id.
    pub pid: u32,
    /// Name of its command.
    pub command: String,
    /// When it was first seen.
    pub from_s: f64,
    /// When it was last seen.
    pub to_s: f64,
    /// Number of sampling windows.
    pub windows: u64,
    /// Source of the access figures: `access-bits`, `probed`, `estimated`, `population`.
    pub source: String,
    /// Resident memory at the end.
    pub rss_end_bytes: u64,
    /// Peak of resident memory.
    pub rss_peak_bytes: u64,
    /// Memory under huge pages at the end.
    pub huge_end_bytes: u64,
    /// Zero-filled memory under huge pages at the end, estimated.
    pub bloat_end_bytes: Option<u64>,
    /// Overhead: mean over windows.
    pub overhead_mean_percent: Option<f64>,
    /// Overhead: maximum.
    pub overhead_max_percent: Option<f64>,
    /// CPU time: mean over windows.
    pub cpu_cores_mean: Option<f64>,
    /// Share of its regions' base pages that is accessed in a window: mean.
    pub coverage_mean_percent: Option<f64>,
    /// Regions promoted.
    pub promoted: u64,
    /// Huge pages split by recovery.
    pub recovered: u64,
    /// Promotions that the kernel refused.
    pub refused: u64,
    /// Overhead over time.
    pub overhead_percent: TimeSeries,
    /// Resident memory over time.
    pub rss_bytes: TimeSeries,
    /// Memory under huge pages over time.
    pub huge_bytes: TimeSeries,
    /// Bloat over time.
    pub bloat_bytes: TimeSeries,
    /// Coverage over addresses and time, for the processes with most memory.
    pub map: Option<HeatMap>,
}

/// Figures of the machine over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MachineFigures {
    /// All memory of the machine.
    pub total_bytes: u64,
    /// Memory in use.
    pub used_bytes: TimeSeries,
    /// Share of time in which a task waited for memory.
    pub pressure_percent: TimeSeries,
    /// Free memory fragmentation index for huge pages.
    pub fmfi: TimeSeries,
    /// CPU time of the manager, in per cent of one core.
    pub manager_cpu_percent: TimeSeries,
}
