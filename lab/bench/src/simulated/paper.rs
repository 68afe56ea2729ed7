//! The papers' tables and figures on the simulated machine: every simulated value beside the
//! published one.
//!
//! ```text
//!  paper_tables     PaperTable, PaperValue         published values, as data
//!     v
//!  simulate_table                                  runs each workload on each system once
//!     v
//!  paper_measure    PaperMeasure::compute_value    a run's figure, in the paper's unit
//!     v
//!  paper_report     PaperReport                    both values and the error
//! ```
//!
//! Read [`PaperTable`] and [`simulate_table`] first, then `paper_tables`. A new table is a constant
//! in a file of `paper_tables`, and one line in [`TABLES`].

mod paper_measure;
mod paper_report;
mod paper_tables;

pub(crate) use paper_measure::PaperMeasure;
pub(crate) use paper_report::{PaperReport, PublishedAndSimulatedValue};
pub use paper_tables::TABLES;

use crate::experiment_name::ExperimentName;
use crate::plot::distinct_in_order;
use hawkeye_sim::simulate::{SimulationJob, SimulationResult, SimulationSetup, simulate_all};
use hawkeye_sim::workloads::{ByteSize, WorkloadSpec};
use hawkeye_sim::{systems, workloads};
use serde::Serialize;
use std::fmt;

/// One value of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PaperValue {
    /// The workload; in `A, B` the second starts a minute after the first.
    pub workload: &'static str,
    /// The program in it: the mean of all programs with this name, or one of them with `-1`, `-2`
    /// and so on after the name.
    pub program: &'static str,
    /// The system; `HOST/GUESTS` if virtual machines run another one than their host.
    pub system: &'static str,
    pub measure: PaperMeasure,
    /// What was published.
    pub paper: PublishedValue,
}

/// A published value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PublishedValue {
    /// This value.
    Value(f64),
    /// This value or more, or never.
    AtLeast(f64),
    Range(f64, f64),
    /// Nothing was published for this system.
    Unknown,
}

/// One of the papers' tables or figures.
#[derive(Clone, Copy)]
pub struct PaperTable {
    /// Its name on the command line; the alias is its number in the paper.
    pub name: ExperimentName,
    /// What it shows.
    pub shows: &'static str,
    pub(crate) setup: fn() -> SimulationSetup,
    /// How many of each of the workload's programs run.
    pub(crate) instances: u32,
    /// Memory of the virtual machine in which the programs run, if there is one.
    pub(crate) guest: Option<ByteSize>,
    pub(crate) figures: fn() -> Vec<PaperValue>,
    /// Whether it takes half a minute of CPU time or more; the short form of all experiments leaves
    /// such tables out.
    pub long: bool,
    /// Parameters that were chosen for some of its values, and anything else that a reader must
    /// know.
    pub(crate) notes: &'static [&'static str],
}

impl PaperTable {
    /// One of each program, without virtual machines, on the paper's machine, idle until now.
    const PLAIN: Self = Self {
        name: ExperimentName::from_name_and_alias("", ""),
        shows: "",
        setup: SimulationSetup::default,
        instances: 1,
        guest: None,
        figures: Vec::new,
        long: false,
        notes: &[],
    };
}

/// Simulates a table on `threads` threads.
///
/// # Errors
/// A run failed; the reason, as a sentence.
pub fn simulate_table(table: &PaperTable, threads: usize) -> Result<PaperReport, String> {
    let figures = (table.figures)();
    let of_figure = |figure: &PaperValue| {
        let (workload, compared) = (figure.workload, figure.measure.reference_systems());
        let systems = compared.into_iter().chain([figure.system]);
        systems.map(move |system| (workload, system))
    };
    let wanted = distinct_in_order(figures.iter().flat_map(of_figure));
    let mut made = Vec::new();
    for (workload, system) in &wanted {
        let mut setup = (table.setup)();
        let mut workload = workload_or_mix(workload)?;
        for process in &mut workload.processes {
            process.count *= table.instances;
        }
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
    let jobs: Vec<SimulationJob> = made
        .iter()
        .map(|(workload, system, setup)| SimulationJob { system: *system, workload, setup: *setup })
        .collect();
    let results = simulate_all(&jobs, threads, &|_| {}).map_err(|e| e.to_string())?;
    Ok(PaperReport {
        name: table.name,
        shows: table.shows,
        figures: figures.iter().map(|f| f.compare_with_simulated(&results)).collect(),
        notes: table.notes,
    })
}

/// Seconds from the start of one program of a mix to that of the next.
const LATER_S: f64 = 60.0;

/// The workload of that name, or the mix of several names.
fn workload_or_mix(names: &str) -> Result<WorkloadSpec, String> {
    let mut mixed: Option<WorkloadSpec> = None;
    for name in names.split(", ") {
        let next = workloads::by_name(name).map_err(|e| e.to_string())?;
        mixed = Some(match mixed {
            Some(before) => before.with_delayed_workload(next, LATER_S),
            None => next,
        });
    }
    mixed.ok_or_else(|| "a figure has no workload".to_owned())
}

impl PaperValue {
    fn compare_with_simulated(&self, results: &[SimulationResult]) -> PublishedAndSimulatedValue {
        let simulated = self.measure.compute_value(self, results);
        PublishedAndSimulatedValue {
            workload: self.workload,
            program: self.program,
            system: self.system,
            unit: self.measure.unit(),
            paper: self.paper,
            simulated,
            error_percent: self.paper.simulated_error_percent(simulated),
        }
    }
}

impl PublishedValue {
    /// Per cent; for a range relative to its nearer end. `None` if a bound holds.
    pub(crate) fn simulated_error_percent(self, simulated: Option<f64>) -> Option<f64> {
        let value = simulated?;
        let nearest = match self {
            Self::Value(paper) => paper,
            Self::AtLeast(paper) if value >= paper => return None,
            Self::AtLeast(paper) => paper,
            Self::Range(from, to) => value.clamp(from, to),
            Self::Unknown => return None,
        };
        // A published zero has no relative error.
        Some((value / nearest - 1.0) * 100.0).filter(|percent| percent.is_finite())
    }
}

impl fmt::Display for PublishedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Value(value) => f.pad(&format_short_decimal(value)),
            Self::AtLeast(value) => f.pad(&format!("> {}", format_short_decimal(value))),
            Self::Range(from, to) => {
                f.pad(&format!("{}-{}", format_short_decimal(from), format_short_decimal(to)))
            }
            Self::Unknown => f.pad("-"),
        }
    }
}

fn format_short_decimal(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::PublishedValue::{AtLeast, Range, Value};

    #[test]
    fn values_are_held_against_what_was_published() {
        assert_eq!(Value(4.0).simulated_error_percent(Some(5.0)), Some(25.0));
        assert_eq!(Value(4.0).simulated_error_percent(None), None);
        assert_eq!(Value(0.0).simulated_error_percent(Some(5.0)), None);
        assert_eq!(AtLeast(4.0).simulated_error_percent(Some(5.0)), None);
        assert_eq!(AtLeast(4.0).simulated_error_percent(Some(3.0)), Some(-25.0));
        assert_eq!(Range(2.0, 4.0).simulated_error_percent(Some(3.0)), Some(0.0));
        assert_eq!(Range(2.0, 4.0).simulated_error_percent(Some(1.0)), Some(-50.0));
        assert_eq!(Range(2.0, 4.0).simulated_error_percent(Some(5.0)), Some(25.0));
    }
}
