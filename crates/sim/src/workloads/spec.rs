//! A workload's data, as it is written in TOML.

use super::{Size, WorkloadError};
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
        /// Base pages of each region (1-512), spread evenly.
        #[serde(default = "every_page")]
        pages_per_region: u16,
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
        /// What its own work takes altogether, without translation, in seconds; or
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
    /// Gives pages back, at random.
    Free {
        /// Which area.
        area: String,
        /// Which share of its pages (over 0, at most 1).
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

fn one() -> u32 {
    1
}

fn all() -> [f64; 2] {
    [0.0, 1.0]
}

fn every_page() -> u16 {
    PAGES_PER_REGION
}

fn full() -> f64 {
    1.0
}

fn hundred() -> f64 {
    100.0
}

impl Process {
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

    pub(super) fn check(&self) -> Result<(), WorkloadError> {
        let top = Checker {
            workload: &self.name,
            place: "workload".to_owned(),
        };
        let some = !self.processes.is_empty() || !self.guests.is_empty();
        top.require("process", some, "there at least once, or a guest", 0)?;
        for guest in &self.guests {
            guest.check(&self.name)?;
        }
        for process in &self.processes {
            process.check(&self.name, "process")?;
        }
        Ok(())
    }
}

impl Guest {
    fn check(&self, workload: &str) -> Result<(), WorkloadError> {
        let at = Checker {
            workload,
            place: format!("guest {}", self.name),
        };
        at.require("count", self.count > 0, "1 or more", self.count)?;
        at.require("cores", self.cores > 0, "1 or more", self.cores)?;
        let bytes = self.memory.0;
        let fits = (HUGE_PAGE_BYTES..=1 << 40).contains(&bytes);
        at.require("memory", fits, "2 MiB to 1 TiB", bytes)?;
        let some = !self.processes.is_empty();
        at.require("process", some, "there at least once", 0)?;
        let place = format!("guest {}, process", self.name);
        self.processes
            .iter()
            .try_for_each(|process| process.check(workload, &place))
    }
}

/// Says where a value is.
struct Checker<'a> {
    workload: &'a str,
    place: String,
}

impl Checker<'_> {
    fn require(
        &self,
        key: &'static str,
        holds: bool,
        allowed: &'static str,
        value: impl ToString,
    ) -> Result<(), WorkloadError> {
        holds.then_some(()).ok_or_else(|| WorkloadError::Value {
            workload: self.workload.to_owned(),
            place: self.place.clone(),
            key,
            allowed,
            value: value.to_string(),
        })
    }

    fn time(&self, key: &'static str, value: f64) -> Result<(), WorkloadError> {
        let fits = (0.0..=1e9).contains(&value);
        self.require(key, fits, "at least 0 and at most 1e9", value)
    }

    fn percent(&self, key: &'static str, value: f64) -> Result<(), WorkloadError> {
        let fits = (0.0..=100.0).contains(&value);
        self.require(key, fits, "0 to 100", value)
    }

    fn part(&self, [from, to]: [f64; 2]) -> Result<(), WorkloadError> {
        let fits = from >= 0.0 && from < to && to <= 1.0;
        let shown = format!("{from} to {to}");
        self.require("part", fits, "two shares of 0-1 in ascending order", shown)
    }
}

impl Process {
    fn check(&self, workload: &str, kind: &str) -> Result<(), WorkloadError> {
        let mut at = Checker {
            workload,
            place: format!("{kind} {}", self.name),
        };
        at.require("count", self.count > 0, "1 or more", self.count)?;
        at.require("repeat", self.repeat > 0, "1 or more", self.repeat)?;
        at.time("start_s", self.start_s)?;
        at.require("area", !self.areas.is_empty(), "there at least once", 0)?;
        let bytes: u128 = self.areas.iter().map(|a| u128::from(a.size.0)).sum();
        at.require("size", bytes <= 1 << 40, "1 TiB in all at the most", bytes)?;
        at.require("phase", !self.phases.is_empty(), "there at least once", 0)?;
        for (number, phase) in (1..).zip(&self.phases) {
            at.place = format!("{kind} {}, phase {number}", self.name);
            self.check_phase(&at, phase)?;
        }
        Ok(())
    }

    fn check_phase(&self, at: &Checker, phase: &Phase) -> Result<(), WorkloadError> {
        let area = |name: &String| {
            let there = self.areas.iter().any(|area| area.name == *name);
            at.require("area", there, "one of the process's areas", name)
        };
        match phase {
            Phase::Fill {
                area: name,
                part,
                pages_per_region,
                page_ns,
                waited_percent,
                ..
            } => {
                area(name)?;
                at.part(*part)?;
                at.percent("waited_percent", *waited_percent)?;
                let fits = (1..=PAGES_PER_REGION).contains(pages_per_region);
                at.require("pages_per_region", fits, "1 to 512", pages_per_region)?;
                at.time("page_ns", *page_ns)
            }
            Phase::Access {
                ideal_s,
                accesses,
                idle_ns,
                streams,
            } => {
                at.time("idle_ns", *idle_ns)?;
                let given = ideal_s.is_some() != accesses.is_some();
                at.require("ideal_s", given, "given, or else accesses", "both or none")?;
                at.time("ideal_s", ideal_s.unwrap_or(0.0))?;
                let count = accesses.unwrap_or(0.0);
                let fits = (0.0..=1e15).contains(&count);
                at.require("accesses", fits, "at least 0 and at most 1e15", count)?;
                at.require("stream", !streams.is_empty(), "there at least once", 0)?;
                for stream in streams {
                    area(&stream.area)?;
                    stream.check(at)?;
                }
                Ok(())
            }
            Phase::Free {
                area: name,
                share,
                rounds,
                page_ns,
            } => {
                area(name)?;
                at.require("rounds", *rounds > 0, "1 or more", rounds)?;
                let fits = *share > 0.0 && *share <= 1.0;
                at.require("share", fits, "over 0 and at most 1", share)?;
                at.time("page_ns", *page_ns)
            }
            Phase::Wait { seconds } => at.time("seconds", *seconds),
        }
    }
}

impl Stream {
    fn check(&self, at: &Checker) -> Result<(), WorkloadError> {
        at.part(self.part)?;
        let weight = self.weight > 0.0 && self.weight.is_finite();
        at.require("weight", weight, "over 0 and finite", self.weight)?;
        let cycles = (1.0..=1e6).contains(&self.cycles);
        at.require("cycles", cycles, "1 to 1e6", self.cycles)?;
        for (key, percent) in [
            ("stores_percent", self.stores_percent),
            ("waited_percent", self.waited_percent),
        ] {
            at.percent(key, percent)?;
        }
        match self.pattern {
            Pattern::Random => Ok(()),
            Pattern::Zipf(theta) => {
                let fits = (0.0..=10.0).contains(&theta);
                at.require("pattern.zipf", fits, "0 to 10", theta)
            }
            Pattern::Stride(bytes) => at.require("pattern.stride", bytes > 0, "1 or more", bytes),
        }
    }
}
