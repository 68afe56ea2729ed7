//! The paper's tables on the simulated machine: every figure beside the published one.

mod tables;

pub use tables::TABLES;

use hawkeye_sim::simulate::{Job, Setup, Simulated, simulate_all};
use hawkeye_sim::workloads::Size;
use hawkeye_sim::{systems, workloads};
use serde::Serialize;
use std::fmt;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measure {
    /// From start to end.
    Seconds,
    /// How much faster than under base pages (`linux-4k`).
    SpeedUp,
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
    /// The workload.
    pub workload: &'static str,
    /// The program of it; the mean of all of this name.
    pub program: &'static str,
    /// The system.
    pub system: &'static str,
    /// What is compared.
    pub measure: Measure,
    /// What was published.
    pub paper: f64,
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
    /// As simulated; nothing where the program did not come so far.
    pub simulated: Option<f64>,
    /// Simulated over published, less 1, in per cent.
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
        let base = (figure.workload, "linux-4k");
        let own = (figure.workload, figure.system);
        let needs_base = figure.measure == Measure::SpeedUp;
        for run in [Some(own), needs_base.then_some(base)]
            .into_iter()
            .flatten()
        {
            if !wanted.contains(&run) {
                wanted.push(run);
            }
        }
    }
    let setup = (table.setup)();
    let mut made = Vec::new();
    for (workload, system) in &wanted {
        let mut workload = workloads::by_name(workload).map_err(|e| e.to_string())?;
        if let Some(memory) = table.guest {
            workload = workload.in_guest(memory, setup.cores);
        }
        let system = systems::by_name(system).map_err(|e| e.to_string())?;
        made.push((workload, system));
    }
    let jobs: Vec<Job> = made
        .iter()
        .map(|(workload, system)| Job {
            system: *system,
            workload,
            setup,
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

impl Figure {
    fn beside(&self, results: &[Simulated]) -> Beside {
        let simulated = self.value(results);
        Beside {
            workload: self.workload,
            program: self.program,
            system: self.system,
            unit: self.measure.unit(),
            paper: self.paper,
            simulated,
            error_percent: simulated.map(|value| (value / self.paper - 1.0) * 100.0),
        }
    }

    fn value(&self, results: &[Simulated]) -> Option<f64> {
        if self.measure == Measure::SpeedUp {
            let seconds = |system| {
                let figure = Self {
                    system,
                    measure: Measure::Seconds,
                    ..*self
                };
                figure.value(results)
            };
            return Some(seconds("linux-4k")? / seconds(self.system)?);
        }
        let found = |r: &&Simulated| r.workload == self.workload && r.system == self.system;
        let run = results.iter().find(found)?;
        let programs = run.figures.all_programs();
        let values: Vec<f64> = programs
            .filter(|program| program.name == self.program)
            .map(|program| {
                let phase = |n: usize| program.phases.get(n);
                Some(match self.measure {
                    Measure::Seconds | Measure::SpeedUp => program.wall_s,
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
    fn unit(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::SpeedUp => "x",
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
            writeln!(
                f,
                "  {:<12} {:<12} {:>9} {simulated:>9} {:<10} {:>7}",
                row.program,
                row.system,
                number(row.paper),
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
