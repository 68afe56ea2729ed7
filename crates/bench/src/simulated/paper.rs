//! The paper's tables on the simulated machine: every figure beside the published one.

mod machines;
mod tables;

use machines::MACHINES;

use hawkeye_sim::simulate::{Job, Setup, Simulated, simulate_all};
use hawkeye_sim::workloads::{Size, Workload};
use hawkeye_sim::{systems, workloads};
use serde::Serialize;
use std::{fmt, iter};

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// From start to end.
    Seconds,
    /// This phase (counted from 0).
    PhaseSeconds(usize),
    /// How much faster than under base pages (`linux-4k`).
    SpeedUp,
    /// How much faster than under this system.
    SpeedUpOver(&'static str),
    /// How much longer this phase takes than under this system, in per cent.
    SlowerPercent(&'static str, usize),
    /// Cycles in page walks, per cent of all.
    OverheadPercent,
    /// Millions.
    MillionFaults,
    /// Resident memory as this phase ends (counted from 0), in GiB.
    ResidentGib(usize),
    /// Accesses in this phase, each so many a request: requests per second, in thousands.
    ThousandPerS(usize, f64),
    /// Base pages filled per second, of which so many make a request.
    FilledPerS(f64),
}

/// One figure of a table.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The workload; of `A, B` the second begins a minute after the first.
    pub workload: &'static str,
    /// The program of it; the mean of all of this name.
    pub program: &'static str,
    /// The system; with another one in virtual machines, `HOST/GUESTS`.
    pub system: &'static str,
    /// What is compared.
    pub measure: Measure,
    /// What was published.
    pub paper: f64,
    /// The upper end, where a range was published.
    pub up_to: Option<f64>,
}

/// One of the paper's tables.
#[derive(Clone, Copy)]
pub struct Table {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// The machine.
    pub setup: fn() -> Setup,
    /// Memory of the virtual machine in which workloads run, if they do.
    pub guest: Option<Size>,
    /// Its figures.
    pub figures: &'static [Figure],
    /// Parameters that were chosen for some of its figures, and anything else that must be known to read it.
    pub notes: &'static [&'static str],
}

/// All of them.
pub fn tables() -> impl Iterator<Item = &'static Table> {
    tables::TABLES.iter().chain(&MACHINES)
}

/// A figure beside the published one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Beside {
    /// The workload.
    pub workload: &'static str,
    /// The program.
    pub program: &'static str,
    /// The system.
    pub system: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// As published.
    pub paper: f64,
    /// The upper end, where a range was published.
    pub up_to: Option<f64>,
    /// As simulated; nothing where the program did not come so far.
    pub simulated: Option<f64>,
    /// Simulated over published, less 1, in per cent; of a range over its nearer end, and 0 within.
    pub error_percent: Option<f64>,
}

/// A table, simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PaperReport {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// Its figures.
    pub figures: Vec<Beside>,
    /// What must be known.
    pub notes: &'static [&'static str],
}

/// Simulates a table on so many threads.
///
/// # Errors
/// A run that could not be made, as a sentence.
pub fn simulate(table: &Table, threads: usize) -> Result<PaperReport, String> {
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for figure in table.figures {
        let base = figure.measure.base();
        for system in iter::once(figure.system).chain(base) {
            if !wanted.contains(&(figure.workload, system)) {
                wanted.push((figure.workload, system));
            }
        }
    }
    let mut made = Vec::new();
    for (workload, system) in &wanted {
        let mut setup = (table.setup)();
        let mut workload = mix(workload)?;
        if let Some(memory) = table.guest {
            workload = workload.in_guest(memory, setup.cores);
        }
        let (host, inside) = match system.split_once('/') {
            Some((host, inside)) => (host, Some(inside)),
            None => (*system, None),
        };
        let system = |name| systems::by_name(name).map_err(|e| e.to_string());
        setup.guest_system = inside.map(system).transpose()?;
        made.push((workload, system(host)?, setup));
    }
    let jobs: Vec<Job> = made
        .iter()
        .map(|(workload, system, setup)| Job {
            system: *system,
            workload,
            setup: *setup,
        })
        .collect();
    let results = simulate_all(&jobs, threads).map_err(|e| e.to_string())?;
    let figures = table
        .figures
        .iter()
        .map(|figure| figure.beside(&results))
        .collect();
    Ok(PaperReport {
        name: table.name,
        shows: table.shows,
        figures,
        notes: table.notes,
    })
}

/// From one program of a mix to the next, in seconds.
const LATER_S: f64 = 60.0;

/// The workload of that name, or those.
fn mix(names: &str) -> Result<Workload, String> {
    let mut mixed: Option<Workload> = None;
    for name in names.split(", ") {
        let next = workloads::by_name(name).map_err(|e| e.to_string())?;
        mixed = Some(match mixed {
            Some(before) => before.then(next, LATER_S),
            None => next,
        });
    }
    mixed.ok_or_else(|| "a figure without a workload".to_owned())
}

impl Figure {
    fn beside(&self, results: &[Simulated]) -> Beside {
        let simulated = self.value(results);
        Beside {
            workload: self.workload,
            program: self.program,
            system: self.system,
            unit: self.measure.unit(),
            paper: self.paper,
            up_to: self.up_to,
            simulated,
            error_percent: simulated.map(|value| {
                let nearest = value.clamp(self.paper, self.up_to.unwrap_or(self.paper));
                (value / nearest - 1.0) * 100.0
            }),
        }
    }

    fn value(&self, results: &[Simulated]) -> Option<f64> {
        let seconds = |system, measure| {
            let figure = Self {
                system,
                measure,
                ..*self
            };
            figure.value(results)
        };
        match self.measure {
            Measure::SlowerPercent(base, phase) => {
                let of = |system| seconds(system, Measure::PhaseSeconds(phase));
                return Some((of(self.system)? / of(base)? - 1.0) * 100.0);
            }
            measure => {
                if let Some(base) = measure.base() {
                    let of = |system| seconds(system, Measure::Seconds);
                    return Some(of(base)? / of(self.system)?);
                }
            }
        }
        let found = |r: &&Simulated| r.workload == self.workload && r.system == self.system;
        let run = results.iter().find(found)?;
        let programs = run.figures.all_programs();
        let values: Vec<f64> = programs
            .filter(|program| program.name == self.program)
            .map(|program| {
                let phase = |n: usize| program.phases.get(n);
                Some(match self.measure {
                    Measure::SpeedUp
                    | Measure::SpeedUpOver(_)
                    | Measure::SlowerPercent(..)
                    | Measure::Seconds => program.wall_s,
                    Measure::PhaseSeconds(n) => {
                        let phase = phase(n)?;
                        phase.end_s - phase.start_s
                    }
                    Measure::OverheadPercent => program.overhead_percent,
                    Measure::MillionFaults => program.faults as f64 / 1e6,
                    Measure::ResidentGib(n) => phase(n)?.rss_bytes as f64 / f64::from(1 << 30),
                    Measure::ThousandPerS(n, each) => {
                        let phase = phase(n)?;
                        phase.accesses / each / (phase.end_s - phase.start_s) / 1e3
                    }
                    Measure::FilledPerS(pages) => {
                        let filled = phase(0)?;
                        filled.rss_bytes as f64 / 4096.0 / pages / (filled.end_s - filled.start_s)
                    }
                })
            })
            .collect::<Option<_>>()?;
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }
}

impl Measure {
    /// The system that it compares with.
    fn base(self) -> Option<&'static str> {
        match self {
            Self::SpeedUp => Some("linux-4k"),
            Self::SpeedUpOver(base) | Self::SlowerPercent(base, _) => Some(base),
            _ => None,
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Seconds | Self::PhaseSeconds(_) => "s",
            Self::SpeedUp | Self::SpeedUpOver(_) => "x",
            Self::SlowerPercent(..) => "% slower",
            Self::OverheadPercent => "% overhead",
            Self::MillionFaults => "M faults",
            Self::ResidentGib(_) => "GiB",
            Self::ThousandPerS(..) => "K/s",
            Self::FilledPerS(_) => "/s",
        }
    }
}

impl fmt::Display for PaperReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.shows)?;
        writeln!(
            f,
            "  {:<12} {:<12} {:>9} {:>9} {:<10} {:>7}",
            "program", "system", "paper", "simulated", "", "error"
        )?;
        for row in &self.figures {
            let number = |value: f64| match value {
                v if v >= 100.0 => format!("{v:.0}"),
                v if v >= 10.0 => format!("{v:.1}"),
                v => format!("{v:.2}"),
            };
            let simulated = row.simulated.map_or("-".to_owned(), number);
            let error = row.error_percent.map(|e| format!("{e:+.1} %"));
            let paper = match row.up_to {
                Some(up_to) => format!("{}-{}", number(row.paper), number(up_to)),
                None => number(row.paper),
            };
            writeln!(
                f,
                "  {:<12} {:<12} {paper:>9} {simulated:>9} {:<10} {:>7}",
                row.program,
                row.system,
                row.unit,
                error.unwrap_or_default(),
            )?;
        }
        for note in self.notes {
            writeln!(f, "  {note}")?;
        }
        Ok(())
    }
}
