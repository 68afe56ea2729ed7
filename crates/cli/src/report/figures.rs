//! What a recording comes to. Units are in the names; this is also what `--json` prints.

use super::decisions::Decisions;
use super::heat::HeatMap;
use super::series::Series;
use serde::Serialize;

/// Everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Where it was recorded.
    pub host: String,
    /// On which kernel.
    pub kernel: String,
    /// Under which policy; `none`: nothing was changed.
    pub policy: String,
    /// When it began, in seconds since 1970; `null` where time was simulated.
    pub began_unix_s: Option<f64>,
    /// How long it is.
    pub length_s: f64,
    /// Whether it was not ended: it is being made, or who made it was killed.
    pub unfinished: bool,
    /// Rows that could not be.
    pub bad_rows: u64,
    /// Processes, those that held most memory first.
    pub processes: Vec<ProcessFigures>,
    /// The machine.
    pub machine: MachineFigures,
    /// What was decided.
    pub decisions: Decisions,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessFigures {
    /// Process id.
    pub pid: u32,
    /// Its command.
    pub command: String,
    /// When it was first seen.
    pub from_s: f64,
    /// When it was last seen.
    pub to_s: f64,
    /// Sampling windows.
    pub windows: u64,
    /// Where access figures come from: `access-bits`, `probed`, `estimated`, `population`.
    pub source: String,
    /// Resident memory at the end.
    pub rss_end_bytes: u64,
    /// At its peak.
    pub rss_peak_bytes: u64,
    /// Memory under huge pages at the end.
    pub huge_end_bytes: u64,
    /// Zero-filled memory under huge pages at the end, estimated.
    pub bloat_end_bytes: Option<u64>,
    /// What translation cost, on average over windows.
    pub overhead_mean_percent: Option<f64>,
    /// At most.
    pub overhead_max_percent: Option<f64>,
    /// CPU time, on average over windows.
    pub cpu_cores_mean: Option<f64>,
    /// Base pages accessed in a window, of those of its regions, on average.
    pub coverage_mean_percent: Option<f64>,
    /// Regions promoted.
    pub promoted: u64,
    /// Huge pages split.
    pub recovered: u64,
    /// Promotions that the kernel refused.
    pub refused: u64,
    /// Over time, in per cent.
    pub overhead_percent: Series,
    /// Over time, in bytes.
    pub rss_bytes: Series,
    /// Over time, in bytes.
    pub huge_bytes: Series,
    /// Over time, in bytes.
    pub bloat_bytes: Series,
    /// Coverage over addresses and time; for those that held most memory.
    pub map: Option<HeatMap>,
}

/// The machine over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MachineFigures {
    /// All its memory.
    pub total_bytes: u64,
    /// In use.
    pub used_bytes: Series,
    /// Share of time in which some task waited for memory.
    pub pressure_percent: Series,
    /// Free memory fragmentation index for huge pages.
    pub fmfi: Series,
    /// CPU time of the manager, of one core.
    pub manager_cpu_percent: Series,
}
