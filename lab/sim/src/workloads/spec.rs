//! A workload's data, as it is written in TOML.

mod check;

use super::{Size, Tape, WorkloadError};
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION};
use serde::Deserialize;

/// Processes that run together.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// Its name in tables.
    pub name: String,
    /// What it models, and where its figures are from; which were chosen.
    pub source: String,
    /// Who runs on the machine itself.
    #[serde(rename = "process", default)]
    pub processes: Vec<Process>,
    /// Virtual machines on it.
    #[serde(rename = "guest", default)]
    pub guests: Vec<Guest>,
}

/// A virtual machine, or several alike.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guest {
    /// Its name in tables.
    pub name: String,
    /// How many of it there are.
    #[serde(default = "one")]
    pub count: u32,
    /// Its memory, in whole pageblocks of 2 MiB; more is left out.
    pub memory: Size,
    /// Its virtual cores.
    pub cores: u32,
    /// Who runs in it.
    #[serde(rename = "process", default)]
    pub processes: Vec<Process>,
    /// Workloads whose programs run in it too; none are left when it is parsed: their programs are among the others then.
    #[serde(rename = "workload", default)]
    pub workloads: Vec<Included>,
}

/// The programs of another workload.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Included {
    /// Which, of those that there are.
    pub name: String,
    /// How much later they start, in seconds.
    #[serde(default)]
    pub start_s: f64,
}

/// One program, or several alike.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its name in tables.
    pub name: String,
    /// How many of it run.
    #[serde(default = "one")]
    pub count: u32,
    /// When it starts, in seconds.
    #[serde(default)]
    pub start_s: f64,
    /// How often it goes through its phases.
    #[serde(default = "one")]
    pub repeat: u32,
    /// Its threads (1-1024), all of which do what its phases say, each on a core of its own: work is done so much faster.
    #[serde(default = "one")]
    pub threads: u32,
    /// What each thread gets of the cores beside those of others where there are too few, in proportion (1-10000; as a
    /// cgroup's `cpu.weight`).
    #[serde(default = "usual_weight")]
    pub cpu_weight: u32,
    /// Whether nobody waits for its end: a server beside other programs, with which all is over.
    #[serde(default)]
    pub background: bool,
    /// Its memory, from low addresses to high ones.
    #[serde(rename = "area")]
    pub areas: Vec<Area>,
    /// What it does, in this order.
    #[serde(rename = "phase")]
    pub phases: Vec<Phase>,
}

/// A mapping.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Area {
    /// What phases call it.
    pub name: String,
    /// Whole regions of 2 MiB; more is rounded up.
    pub size: Size,
    /// Its first byte, where it has to lie somewhere: at the begin of a region, behind the areas before it.
    #[serde(skip)]
    pub start: Option<u64>,
    /// It is many mappings side by side, and not one.
    pub pieces: Option<Pieces>,
}

/// Mappings that make up an area, such as a program has that allocates pieces of memory of some size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pieces {
    /// Of each, in whole base pages.
    pub size: Size,
    /// Address space without anything in it after each.
    #[serde(default)]
    pub hole: Size,
}

impl Area {
    /// Regions that it has.
    pub fn regions(&self) -> u64 {
        self.size.0.div_ceil(HUGE_PAGE_BYTES)
    }
}

/// What is written into memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
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
        /// Which area.
        area: String,
        /// Which part of it, as shares (0-1).
        #[serde(default = "all")]
        part: [f64; 2],
        /// Base pages of each region (1-512), spread evenly where they are single ones.
        #[serde(default = "every_page")]
        pages_per_region: u16,
        /// Of these so many lie side by side, naturally aligned, anywhere in the region (a power of two).
        #[serde(default = "one_page")]
        pages_per_run: u16,
        /// The program's own work for each base page, its translation included, in nanoseconds.
        page_ns: f64,
        /// What it writes.
        #[serde(default)]
        content: Content,
        /// How much it waits for the first access to a page that is in no cache, in per cent: less than 100 where several
        /// pages are waited for at a time.
        #[serde(default = "hundred")]
        waited_percent: f64,
    },
    /// Accesses what it has filled.
    Access {
        /// What its own work takes altogether, by one thread, without translation, in seconds; or
        ideal_s: Option<f64>,
        /// how many accesses it makes.
        accesses: Option<f64>,
        /// Time without work after each access, in nanoseconds: of a program that waits for requests.
        #[serde(default)]
        idle_ns: f64,
        /// Where the accesses go.
        #[serde(rename = "stream")]
        streams: Vec<Stream>,
    },
    /// Gives pages back, at random; of an area in pieces, whole mappings, which are mapped anew when it is filled again.
    Free {
        /// Which area.
        area: String,
        /// Which share of its pages or pieces (over 0, at most 1).
        share: f64,
        /// In how many rounds through the area, each of which gives as many back: what is freed in no order is freed
        /// all over the area at any time.
        #[serde(default = "one")]
        rounds: u32,
        /// The program's own work for each base page, in nanoseconds.
        #[serde(default)]
        page_ns: f64,
    },
    /// Does nothing.
    Wait {
        /// For so long.
        seconds: f64,
    },
    /// Makes the accesses of a trace, whose memory its areas are; not in files of workloads.
    #[serde(skip)]
    Play(Tape),
}

/// Accesses of one kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Which area.
    pub area: String,
    /// Which part of it, as shares (0-1).
    #[serde(default = "all")]
    pub part: [f64; 2],
    /// How they lie.
    pub pattern: Pattern,
    /// How many of the program's accesses they are, in proportion (over 0).
    #[serde(default = "full")]
    pub weight: f64,
    /// How many of them are stores, in per cent.
    #[serde(default)]
    pub stores_percent: f64,
    /// The program's own work for each, translation left out, in cycles (at least 1).
    pub cycles: f64,
    /// How much of the time of walks it waits for, in per cent: 100 where each access depends on the one before.
    #[serde(default = "hundred")]
    pub waited_percent: f64,
}

/// How accesses lie. In each pattern only pages in use are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Any word, all equally likely.
    Random,
    /// Pages by rank: `1 / rank^theta`. Popular pages are no neighbours.
    Zipf(f64),
    /// At this distance in bytes, from the begin again and again.
    Stride(u64),
}

/// Weight of a thread of which none is given.
pub(crate) const DEFAULT_CPU_WEIGHT: u32 = 100;

fn one() -> u32 {
    1
}

fn usual_weight() -> u32 {
    DEFAULT_CPU_WEIGHT
}

fn all() -> [f64; 2] {
    [0.0, 1.0]
}

fn every_page() -> u16 {
    PAGES_PER_REGION
}

fn one_page() -> u16 {
    1
}

fn full() -> f64 {
    1.0
}

fn hundred() -> f64 {
    100.0
}

impl Process {
    /// One program of one thread that starts at once and goes through its phases once; nothing else is said of it.
    pub(super) fn new(name: String, areas: Vec<Area>, phases: Vec<Phase>) -> Self {
        Self {
            name,
            count: one(),
            start_s: 0.0,
            repeat: one(),
            threads: one(),
            cpu_weight: usual_weight(),
            background: false,
            areas,
            phases,
        }
    }

    fn later(self, by_s: f64) -> Self {
        Self {
            start_s: self.start_s + by_s,
            ..self
        }
    }
}

impl Workload {
    /// Reads one; `name` is what errors call it.
    ///
    /// # Errors
    /// Text that is no workload, with line and column; a value out of range, with its key and place.
    pub fn parse(name: &str, text: &str) -> Result<Self, WorkloadError> {
        let mut parsed: Self = toml::from_str(text).map_err(|error| WorkloadError::Parse {
            name: name.to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })?;
        for guest in &mut parsed.guests {
            for included in std::mem::take(&mut guest.workloads) {
                let found = super::by_name(&included.name)?;
                let later = found
                    .processes
                    .into_iter()
                    .map(|p| p.later(included.start_s));
                guest.processes.extend(later);
            }
        }
        parsed.check()?;
        Ok(parsed)
    }

    /// The same programs in one virtual machine, and nothing beside it.
    #[must_use]
    pub fn in_guest(self, memory: Size, cores: u32) -> Self {
        let guest = Guest {
            name: "guest".to_owned(),
            count: 1,
            memory,
            cores,
            processes: self.processes,
            workloads: Vec::new(),
        };
        let guests = std::iter::once(guest).chain(self.guests).collect();
        Self {
            processes: Vec::new(),
            guests,
            ..self
        }
    }

    /// The same, and the programs and virtual machines of another workload `after_s` seconds later.
    #[must_use]
    pub fn then(mut self, other: Self, after_s: f64) -> Self {
        let later = |process: Process| process.later(after_s);
        self.name = format!("{}, {}", self.name, other.name);
        self.source = format!("{}\n{}", self.source, other.source);
        self.processes
            .extend(other.processes.into_iter().map(later));
        self.guests
            .extend(other.guests.into_iter().map(|guest| Guest {
                processes: guest.processes.into_iter().map(later).collect(),
                ..guest
            }));
        self
    }
}
