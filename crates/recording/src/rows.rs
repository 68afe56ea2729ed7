//! What a recording consists of.

use hawkeye_policy::{CoverageSource, ProcessId, ProcessSample, RegionAddr, RegionSample};
use std::sync::Arc;
use std::time::Duration;

/// Where the access figures of a window come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessSource {
    /// All access bits were cleared as the window began, and read at its end.
    AccessBits,
    /// Some regions were probed for their page walks, and only their bits were ever cleared: accessed pages are those since then.
    Probed,
    /// Estimated from sampled pages (DAMON).
    Estimated,
    /// Nothing is known of accesses: accessed pages repeat those that are present.
    Population,
}

impl AccessSource {
    pub(crate) const NAMES: [(Self, &'static str); 4] = [
        (Self::AccessBits, "access-bits"),
        (Self::Probed, "probed"),
        (Self::Estimated, "estimated"),
        (Self::Population, "population"),
    ];

    /// That of a sample. `all_cleared`: where access bits are read at all, those of all regions are cleared for each window.
    pub fn of(source: CoverageSource, all_cleared: bool) -> Self {
        match source {
            CoverageSource::AccessBits if all_cleared => Self::AccessBits,
            CoverageSource::AccessBits => Self::Probed,
            CoverageSource::Estimated => Self::Estimated,
            CoverageSource::Population => Self::Population,
        }
    }

    /// Its name in a recording.
    pub fn name(self) -> &'static str {
        let known = Self::NAMES.iter().find(|(source, _)| *source == self);
        known.map_or("", |(_, name)| name)
    }
}

/// One region in one sampling window.
#[derive(Clone, Debug, PartialEq)]
pub struct CoverageRow {
    /// When the window ended, since recording began.
    pub at: Duration,
    /// How long it was.
    pub window: Duration,
    /// How trustworthy the access figures are.
    pub source: AccessSource,
    /// Whose region.
    pub process: ProcessId,
    /// The process's command.
    pub command: Arc<str>,
    /// CPU time that the process used, in cores.
    pub cpu_cores: f64,
    /// What translation cost it, in per cent of its time, where that could be found out.
    pub overhead_percent: Option<f64>,
    /// The region.
    pub region: RegionSample,
}

impl CoverageRow {
    /// The rows of a sample, of a window that ended `at`.
    pub fn of_sample(
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
    /// When, since recording began.
    pub at: Duration,
    /// Which.
    pub process: ProcessId,
    /// Its command.
    pub command: Arc<str>,
    /// CPU time that it used in the last window, in cores; `None` before there was one.
    pub cpu_cores: Option<f64>,
    /// What translation cost it, in per cent of its time, where that could be found out.
    pub overhead_percent: Option<f64>,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
    /// Memory under huge pages, in bytes.
    pub huge_bytes: u64,
    /// Zero-filled memory under huge pages, in bytes, estimated from some of them; `None` where that was not looked at.
    pub bloat_bytes: Option<u64>,
}

/// The machine's memory at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryRow {
    /// When, since recording began.
    pub at: Duration,
    /// In use, in bytes.
    pub used_bytes: u64,
    /// All of it, in bytes.
    pub total_bytes: u64,
    /// Share of the last 10 s in which some task waited for memory, in per cent; `None` where the kernel does not say.
    pub pressure_percent: Option<f64>,
    /// Free memory fragmentation index for huge pages, 0-1.
    pub fmfi: Option<f64>,
    /// CPU time of the manager, in per cent of one core.
    pub manager_cpu_percent: Option<f64>,
}

/// Something that the manager decided, or that happened to it.
#[derive(Clone, Debug, PartialEq)]
pub struct DecisionRow {
    /// When, since recording began.
    pub at: Duration,
    /// Whom it concerns, where it is one.
    pub process: Option<(ProcessId, Arc<str>)>,
    /// Where, if it is about a region.
    pub region: Option<RegionAddr>,
    /// What kind of event: `promoted`, `recovered`, `refused`, `held` and so on.
    pub event: Arc<str>,
    /// What happened and why, as a clause.
    pub reason: Arc<str>,
}

/// One row of a recording.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// A region in a sampling window.
    Region(CoverageRow),
    /// A process.
    Process(ProcessRow),
    /// The machine.
    Memory(MemoryRow),
    /// A decision.
    Decision(DecisionRow),
}

impl Row {
    pub(crate) const REGION: &'static str = "region";
    pub(crate) const PROCESS: &'static str = "process";
    pub(crate) const MEMORY: &'static str = "memory";
    pub(crate) const DECISION: &'static str = "decision";

    /// When, since recording began.
    pub fn at(&self) -> Duration {
        match self {
            Self::Region(row) => row.at,
            Self::Process(row) => row.at,
            Self::Memory(row) => row.at,
            Self::Decision(row) => row.at,
        }
    }

    /// The same at another time.
    pub fn set_at(&mut self, to: Duration) {
        match self {
            Self::Region(row) => row.at = to,
            Self::Process(row) => row.at = to,
            Self::Memory(row) => row.at = to,
            Self::Decision(row) => row.at = to,
        }
    }
}
