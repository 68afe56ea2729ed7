//! A workload's data, as written in TOML.

mod check;

use super::built_in::text_by_name;
use super::{ByteSize, TraceReplay, WorkloadSpecError};
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION};
use serde::Deserialize;

/// Processes that run together.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Its name in tables.
    pub name: String,
    /// What it models, the source of its figures, and which figures were chosen.
    pub source: String,
    /// Processes that run on the machine itself.
    #[serde(rename = "process", default)]
    pub processes: Vec<Process>,
    /// Virtual machines on it.
    #[serde(rename = "guest", default)]
    pub guests: Vec<GuestSpec>,
}

/// A virtual machine, or several equal ones.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestSpec {
    /// Its name in tables.
    pub name: String,
    /// Number of such virtual machines.
    #[serde(default = "default_one")]
    pub count: u32,
    /// Its memory, in whole pageblocks of 2 MiB; a remainder is dropped.
    pub memory: ByteSize,
    /// Its virtual cores.
    pub cores: u32,
    /// Processes that run in it.
    #[serde(rename = "process", default)]
    pub processes: Vec<Process>,
    /// Workloads with programs that also run in it. The parser moves these to `processes`.
    #[serde(rename = "workload", default)]
    pub workloads: Vec<IncludedWorkload>,
}

/// The programs of another workload.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IncludedWorkload {
    /// Name of the workload.
    pub name: String,
    /// Delay of their start, in seconds.
    #[serde(default)]
    pub start_s: f64,
}

/// One program, or several equal ones.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its name in tables.
    pub name: String,
    /// Number of such programs.
    #[serde(default = "default_one")]
    pub count: u32,
    /// When it starts, in seconds.
    #[serde(default)]
    pub start_s: f64,
    /// Number of times that it goes through its phases.
    #[serde(default = "default_one")]
    pub repeat: u32,
    /// Its threads (1-1024). Each does what the phases say, on a core of its own.
    #[serde(default = "default_one")]
    pub threads: u32,
    /// Each thread's share of the cores when they are too few (1-10000, as `cpu.weight`).
    #[serde(default = "default_cpu_weight")]
    pub cpu_weight: u32,
    /// Whether the run can end before this program does: a server beside other programs.
    #[serde(default)]
    pub background: bool,
    /// Its memory, from low to high addresses.
    #[serde(rename = "area")]
    pub areas: Vec<Area>,
    /// Its phases, in order.
    #[serde(rename = "phase")]
    pub phases: Vec<Phase>,
}

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Area {
    /// Name that phases refer to.
    pub name: String,
    /// Its size, rounded up to whole regions of 2 MiB.
    pub size: ByteSize,
    /// Its first byte, if fixed: at the start of a region, after the areas before it.
    #[serde(skip)]
    pub start: Option<u64>,
    /// Splits the area into many mappings side by side.
    pub pieces: Option<AreaPieces>,
    /// Name of the file of shared memory that it maps; `None`: private memory. All areas with this
    /// name, of all programs of the same machine, map the same file.
    pub file: Option<String>,
}

/// Mappings that make up an area, as in a program that allocates pieces of memory of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AreaPieces {
    /// Size of each mapping, in whole base pages.
    pub size: ByteSize,
    /// Unmapped address space after each mapping.
    #[serde(default)]
    pub hole: ByteSize,
}

impl Area {
    /// Number of its regions.
    pub fn regions(&self) -> u64 {
        self.size.0.div_ceil(HUGE_PAGE_BYTES)
    }
}

/// What a program writes into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FillContent {
    /// Data.
    #[default]
    Data,
    /// Zeros.
    Zeros,
}

/// One thing that a program does.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Phase {
    /// Touches pages for the first time (or again), in ascending order.
    Fill {
        /// Name of the area.
        area: String,
        /// Part of the area, as shares (0-1).
        #[serde(default = "whole_area")]
        part: [f64; 2],
        /// Base pages of each region (1-512), spread evenly if runs are single pages.
        #[serde(default = "default_pages_per_region")]
        pages_per_region: u16,
        /// Of these, the number in each run of neighbours, naturally aligned, anywhere in the
        /// region (a power of two).
        #[serde(default = "default_one")]
        pages_per_run: u16,
        /// The program's own work for each base page, its translation included, in nanoseconds.
        page_ns: f64,
        /// What it writes.
        #[serde(default)]
        content: FillContent,
        /// Share of the cache-miss latency of a page's first access that it waits for, in per cent.
        /// Less than 100 where it waits for several pages at a time.
        #[serde(default = "hundred_percent")]
        waited_percent: f64,
    },
    /// Accesses memory that it has filled.
    Access {
        /// Total time of its own work, by one thread, without translation, in seconds; or
        ideal_s: Option<f64>,
        /// number of accesses.
        accesses: Option<f64>,
        /// Idle time after each access, in nanoseconds: for a program that waits for requests.
        #[serde(default)]
        idle_ns: f64,
        /// Distribution of the accesses.
        #[serde(rename = "stream")]
        streams: Vec<AccessStream>,
    },
    /// Frees random pages. An area in pieces loses whole mappings, until the next fill.
    Free {
        /// Name of the area.
        area: String,
        /// Share of its pages or pieces to free (over 0, at most 1).
        share: f64,
        /// Number of rounds through the area, each of which frees as much. Memory that is freed in
        /// no order is freed everywhere in the area at any time.
        #[serde(default = "default_one")]
        rounds: u32,
        /// The program's own work for each base page, in nanoseconds.
        #[serde(default)]
        page_ns: f64,
    },
    /// Does nothing.
    Wait {
        /// Length of the wait.
        seconds: f64,
    },
    /// Makes the accesses of a trace, with the trace's memory as areas. Not for workload files.
    #[serde(skip)]
    Play(TraceReplay),
}

/// Accesses of one kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AccessStream {
    /// Name of the area.
    pub area: String,
    /// Part of the area, as shares (0-1).
    #[serde(default = "whole_area")]
    pub part: [f64; 2],
    /// Their pattern.
    pub pattern: StreamPattern,
    /// Proportional share of the program's accesses (over 0).
    #[serde(default = "default_one")]
    pub weight: f64,
    /// Share of stores among them, in per cent.
    #[serde(default)]
    pub stores_percent: f64,
    /// The program's own work for each access, without translation, in cycles (at least 1).
    pub cycles: f64,
    /// Share of walk time that it waits for, in per cent: 100 for dependent accesses.
    #[serde(default = "hundred_percent")]
    pub waited_percent: f64,
}

/// How accesses lie. Every pattern accesses only pages in use.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamPattern {
    /// Any word, all equally likely.
    Random,
    /// Pages by rank: `1 / rank^theta`. Popular pages are not neighbours.
    Zipf(f64),
    /// At this distance in bytes, from the start again and again.
    Stride(u64),
}

pub(crate) const DEFAULT_CPU_WEIGHT: u32 = 100;

fn default_one<T: From<u8>>() -> T {
    1.into()
}

fn default_cpu_weight() -> u32 {
    DEFAULT_CPU_WEIGHT
}

fn hundred_percent() -> f64 {
    100.0
}

fn whole_area() -> [f64; 2] {
    [0.0, 1.0]
}

fn default_pages_per_region() -> u16 {
    PAGES_PER_REGION
}

impl Process {
    /// One program with one thread that starts at once; all else is default.
    pub(super) fn new(name: String, areas: Vec<Area>, phases: Vec<Phase>) -> Self {
        Self {
            name,
            count: default_one(),
            start_s: 0.0,
            repeat: default_one(),
            threads: default_one(),
            cpu_weight: default_cpu_weight(),
            background: false,
            areas,
            phases,
        }
    }

    fn delayed_by(self, by_s: f64) -> Self {
        Self { start_s: self.start_s + by_s, ..self }
    }
}

/// The built-in workload of that name.
///
/// # Errors
/// None has it.
pub fn by_name(name: &str) -> Result<WorkloadSpec, WorkloadSpecError> {
    WorkloadSpec::parse(name, text_by_name(name)?)
}

impl WorkloadSpec {
    /// Parses a workload; errors call it `name`.
    ///
    /// # Errors
    /// Text that is no workload (reported with line and column), or a value out of range (with its
    /// key and place).
    pub fn parse(name: &str, text: &str) -> Result<Self, WorkloadSpecError> {
        let mut parsed: Self = toml::from_str(text).map_err(|error| WorkloadSpecError::Parse {
            name: name.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })?;
        for guest in &mut parsed.guests {
            for included in std::mem::take(&mut guest.workloads) {
                let found = by_name(&included.name)?;
                let later = found.processes.into_iter().map(|p| p.delayed_by(included.start_s));
                guest.processes.extend(later);
            }
        }
        parsed.check()?;
        Ok(parsed)
    }

    /// The same programs in one virtual machine, and nothing beside it.
    #[must_use]
    pub fn in_guest(self, memory: ByteSize, cores: u32) -> Self {
        let guest = GuestSpec {
            name: "guest".to_owned(),
            count: 1,
            memory,
            cores,
            processes: self.processes,
            workloads: Vec::new(),
        };
        let guests = std::iter::once(guest).chain(self.guests).collect();
        Self { processes: Vec::new(), guests, ..self }
    }

    /// Adds the programs and virtual machines of another workload, `after_s` seconds later.
    #[must_use]
    pub fn with_delayed_workload(mut self, other: Self, after_s: f64) -> Self {
        let later = |process: Process| process.delayed_by(after_s);
        self.name = format!("{}, {}", self.name, other.name);
        self.source = format!("{}\n{}", self.source, other.source);
        self.processes.extend(other.processes.into_iter().map(later));
        self.guests.extend(other.guests.into_iter().map(|guest| GuestSpec {
            processes: guest.processes.into_iter().map(later).collect(),
            ..guest
        }));
        self
    }
}
