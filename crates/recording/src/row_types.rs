//! The rows of a recording.

use hawkeye_policy::{CoverageSource, ProcessId, ProcessSample, RegionAddr, RegionSample};
use std::sync::Arc;
use std::time::Duration;

/// Source of a window's access figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum AccessSource {
    /// All access bits were cleared at the start of the window and read at its end.
    AccessBits,
    /// Some regions were probed for their page walks, and only their bits were ever cleared.
    /// Accessed pages are those accessed since then.
    Probed,
    /// Estimated from sampled pages (DAMON).
    Estimated,
    /// Accesses are unknown: accessed pages repeat the present ones.
    Population,
}

impl AccessSource {
    /// The source of a sample. `all_cleared`: each window clears the bits of all regions, where
    /// access bits are read at all.
    pub fn from_coverage_source(source: CoverageSource, all_cleared: bool) -> Self {
        match source {
            CoverageSource::AccessBits if all_cleared => Self::AccessBits,
            CoverageSource::AccessBits => Self::Probed,
            CoverageSource::Estimated => Self::Estimated,
            CoverageSource::Population => Self::Population,
        }
    }

    /// Its name in a recording.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One region in one sampling window.
#[derive(Clone, Debug, PartialEq)]
pub struct CoverageRow {
    /// End of the window, since recording began.
    pub at: Duration,
    /// Length of a window, as configured. One in which regions are probed may differ.
    pub window: Duration,
    /// How the access figures were obtained.
    pub source: AccessSource,
    /// The process.
    pub process: ProcessId,
    /// The process's command.
    pub command: Arc<str>,
    /// CPU time of the process, in cores.
    pub cpu_cores: f64,
    /// Cost of address translation, in per cent of the process's time; `None` where it could not be
    /// determined.
    pub overhead_percent: Option<f64>,
    /// The region.
    pub region: RegionSample,
}

impl CoverageRow {
    /// The rows of a sample, from a window that ended `at`.
    pub fn rows_of_sample(
        at: Duration,
        window: Duration,
        source: AccessSource,
        command: &Arc<str>,
        sample: &ProcessSample,
    ) -> impl Iterator<Item = Self> {
        sample.regions.iter().map(move |region| Self {
            at,
            window,
            source,
            process: sample.process,
            command: Arc::clone(command),
            cpu_cores: sample.cpu_cores,
            overhead_percent: sample.overhead.map(|overhead| overhead.percent),
            region: *region,
        })
    }
}

/// A process at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessRow {
    /// Time since recording began.
    pub at: Duration,
    /// The process.
    pub process: ProcessId,
    /// Its command.
    pub command: Arc<str>,
    /// CPU time in the last window, in cores; `None` before the first window.
    pub cpu_cores: Option<f64>,
    /// Cost of address translation, in per cent of the process's time; `None` where it could not be
    /// determined.
    pub overhead_percent: Option<f64>,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// Memory under huge pages, in bytes.
    pub huge_bytes: u64,
    /// Zero-filled private memory under huge pages, in bytes, estimated from some of them; `None`
    /// where it was not measured.
    pub bloat_bytes: Option<u64>,
}

/// The machine's memory at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryRow {
    /// Time since recording began.
    pub at: Duration,
    /// Memory in use, in bytes.
    pub used_bytes: u64,
    /// Total memory, in bytes.
    pub total_bytes: u64,
    /// Share of the last 10 s in which some task waited for memory, in per cent; `None` where the
    /// kernel does not report it.
    pub pressure_percent: Option<f64>,
    /// Free memory fragmentation index for huge pages, 0-1.
    pub fmfi: Option<f64>,
    /// CPU time of the manager, in per cent of one core.
    pub manager_cpu_percent: Option<f64>,
}

/// A decision of the manager, or an event around it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionRow {
    /// Time since recording began.
    pub at: Duration,
    /// The process, if it concerns one.
    pub process: Option<(ProcessId, Arc<str>)>,
    /// The region, if it concerns one.
    pub region: Option<RegionAddr>,
    /// Kind of the event: `promoted`, `recovered`, `refused`, `held` and so on.
    pub event: Arc<str>,
    /// The event and its reason, as a clause of a sentence.
    pub reason: Arc<str>,
}

/// One row of a recording.
#[derive(Clone, Debug, PartialEq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum RecordingRow {
    /// A region in a sampling window.
    Region(CoverageRow),
    /// A process.
    Process(ProcessRow),
    /// The machine.
    Memory(MemoryRow),
    /// A decision.
    Decision(DecisionRow),
}

impl RecordingRow {
    /// Time since recording began.
    pub fn time_since_start(&self) -> Duration {
        match self {
            Self::Region(row) => row.at,
            Self::Process(row) => row.at,
            Self::Memory(row) => row.at,
            Self::Decision(row) => row.at,
        }
    }

    /// Moves the row to another time.
    pub fn set_time_since_start(&mut self, to: Duration) {
        match self {
            Self::Region(row) => row.at = to,
            Self::Process(row) => row.at = to,
            Self::Memory(row) => row.at = to,
            Self::Decision(row) => row.at = to,
        }
    }
}
