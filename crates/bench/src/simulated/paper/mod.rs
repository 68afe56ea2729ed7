//! The papers' tables and figures on the simulated machine: every value beside the published one.

mod measure;
mod nested;
mod report;
mod tables;

pub use measure::Measure;
pub use nested::Sizes;
pub use report::{Beside, PaperReport};
pub use tables::TABLES;

use hawkeye_sim::simulate::{Job, Setup, Simulated, simulate_all};
use hawkeye_sim::{systems, workloads};

/// One value of a table.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    /// The workload.
    pub workload: &'static str,
    /// The program of it: the mean of all of this name, or, with `-1`, `-2` and so on after the name, one of them.
    pub program: &'static str,
    /// The system.
    pub system: &'static str,
    /// What is compared.
    pub measure: Measure,
    /// What was published.
    pub paper: Published,
}

/// A published value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Published {
    /// This.
    Value(f64),
    /// This or more; or never.
    AtLeast(f64),
}

/// One of the papers' tables or figures.
#[derive(Clone, Copy)]
pub struct Table {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// The machine.
    pub setup: fn() -> Setup,
    /// How many of each of the workload's programs run.
    pub instances: u32,
    /// Its values.
    pub figures: fn() -> Vec<Figure>,
    /// Parameters that were chosen for some of its values, and anything else that must be known to read it.
    pub notes: &'static [&'static str],
}

/// Simulates a table on so many threads.
///
/// # Errors
/// A run that could not be made, as a sentence.
pub fn simulate(table: &Table, threads: usize) -> Result<PaperReport, String> {
    let figures = (table.figures)();
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    for figure in figures.iter().filter(|f| f.measure.needs_runs()) {
        for system in figure.measure.compared().into_iter().chain([figure.system]) {
            let run = (figure.workload, system);
            if !wanted.contains(&run) {
                wanted.push(run);
            }
        }
    }
    let setup = (table.setup)();
    let mut made = Vec::new();
    for (workload, system) in &wanted {
        let mut workload = workloads::by_name(workload).map_err(|e| e.to_string())?;
        for process in &mut workload.processes {
            process.count *= table.instances;
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
    let besides: Result<_, String> = figures.iter().map(|f| f.beside(&results)).collect();
    Ok(PaperReport {
        name: table.name,
        shows: table.shows,
        figures: besides?,
        notes: table.notes,
    })
}

impl Figure {
    fn beside(&self, results: &[Simulated]) -> Result<Beside, String> {
        let simulated = match self.measure {
            Measure::SpeedUpInGuest(sizes) => {
                let workload = workloads::by_name(self.workload).map_err(|e| e.to_string())?;
                Some(nested::speed_up(&workload, sizes)?)
            }
            measure => measure.of(self, results),
        };
        let (paper, at_least) = match self.paper {
            Published::Value(value) => (value, false),
            Published::AtLeast(value) => (value, true),
        };
        let met = at_least && simulated.is_none_or(|value| value >= paper);
        let error = |value: f64| (value / paper - 1.0) * 100.0;
        Ok(Beside {
            workload: self.workload,
            program: self.program,
            system: self.system,
            unit: self.measure.unit(),
            paper,
            at_least,
            simulated,
            // There is none of nothing.
            error_percent: simulated.map(error).filter(|e| !met && e.is_finite()),
        })
    }
}
