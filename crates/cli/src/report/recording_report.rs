//! The figures of a recording. Units are in the names; `--json` prints the same.

use super::decisions::Decisions;
use super::heat_map::HeatMap;
use super::memory_by_kind::MemoryByKind;
use super::time_series::TimeSeries;
use serde::Serialize;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RecordingReport {
    pub host: String,
    pub kernel: String,
    /// Name of the policy; `none`: HawkEye promoted nothing.
    pub policy: String,
    /// Start, in seconds since 1970; `null` for simulated time.
    pub began_unix_s: Option<f64>,
    pub length_s: f64,
    /// Whether it has no end: it is still being made, or its manager was killed.
    pub unfinished: bool,
    pub bad_rows: u64,
    /// Processes, those with most memory first.
    pub processes: Vec<ProcessFigures>,
    /// Further processes, with less memory; their decisions are counted. At most 65,536.
    pub processes_left_out: usize,
    pub memory: MemoryByKind,
    pub machine: MachineFigures,
    pub decisions: Decisions,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProcessFigures {
    pub pid: u32,
    pub command: String,
    pub from_s: f64,
    pub to_s: f64,
    pub windows: u64,
    /// Source of the access figures: `access-bits`, `probed`, `estimated`, `population`.
    pub source: String,
    pub rss_end_bytes: u64,
    pub rss_peak_bytes: u64,
    pub huge_end_bytes: u64,
    /// Shared memory in its regions, in its last window. Other processes may map it as well.
    pub shared_end_bytes: u64,
    pub shared_huge_end_bytes: u64,
    /// Zero-filled memory under huge pages at the end, estimated.
    pub bloat_end_bytes: Option<u64>,
    pub overhead_mean_percent: Option<f64>,
    pub overhead_max_percent: Option<f64>,
    pub cpu_cores_mean: Option<f64>,
    /// Share of its regions' base pages that is accessed in a window: mean.
    pub coverage_mean_percent: Option<f64>,
    pub promoted: u64,
    /// Huge pages split by recovery.
    pub recovered: u64,
    pub refused: u64,
    pub overhead_percent: TimeSeries,
    pub rss_bytes: TimeSeries,
    pub huge_bytes: TimeSeries,
    pub bloat_bytes: TimeSeries,
    /// Coverage over addresses and time, for the processes with most memory.
    pub map: Option<HeatMap>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MachineFigures {
    pub total_bytes: u64,
    pub used_bytes: TimeSeries,
    /// Share of time in which a task waited for memory.
    pub pressure_percent: TimeSeries,
    /// Free memory fragmentation index for huge pages.
    pub fmfi: TimeSeries,
    /// CPU time of the manager, in per cent of one core.
    pub manager_cpu_percent: TimeSeries,
}
