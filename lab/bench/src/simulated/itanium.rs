//! Wienand's thesis, "Transparent Large-Page Support for Itanium Linux", on the simulated machine:
//! every simulated value beside the measured one.
//!
//! ```text
//!  thesis_kernel, thesis_system          what is simulated
//!     v
//!  thesis_tables         ThesisTable     measured values, as data
//!     v
//!  simulate_table        FinishedRuns    runs each workload on each machine once
//!     v
//!  thesis_measure        ThesisMeasure   a run's figure, in the thesis' unit
//!     v
//!  thesis_table_report   both values and their difference, as text or JSON --> plots
//! ```
//!
//! Read [`ThesisTable`] and [`simulate_table`] first. The machine itself is the crate
//! `hawkeye-itanium`. `thesis_system` contains the systems that the thesis only classifies.

mod plots;
mod thesis_kernel;
mod thesis_measure;
mod thesis_system;
mod thesis_table_report;
mod thesis_tables;

pub use plots::thesis_plot_figure;
use thesis_kernel::ThesisKernel;
use thesis_measure::ThesisMeasure;
use thesis_table_report::{TableLayout, ThesisAndModelValue, ThesisTableReport};
pub use thesis_tables::TABLES;

use super::paper::PublishedValue;
use crate::plot::distinct_in_order;
use hawkeye_itanium::workloads::ThesisWorkload;
use hawkeye_itanium::{ItaniumError, ItaniumRunFigures, MachineSettings, simulate_workload as run};
use hawkeye_sim::parallel::map_on_threads;

const SEED: u64 = 1;

#[derive(Clone, Debug, PartialEq)]
struct ThesisValue {
    /// Which of the table's workloads it is, in words.
    pub of: String,
    pub workload: ThesisWorkload,
    pub kernel: ThesisKernel,
    pub measure: ThesisMeasure,
    /// The measured value; nothing if the thesis has none, or its figure is lost.
    pub thesis: Option<PublishedValue>,
}

/// One of the thesis' tables or figures, or a consequence of them.
#[derive(Clone, Copy)]
pub struct ThesisTable {
    /// Its name on the command line.
    pub name: &'static str,
    shows: &'static str,
    layout: TableLayout,
    rows: fn() -> Vec<ThesisValue>,
    /// Parameters that were chosen for some of its values, reasons why others differ, and anything
    /// else that a reader must know.
    notes: &'static [&'static str],
}

struct FinishedRuns(Vec<(ThesisWorkload, MachineSettings, ItaniumRunFigures)>);

impl FinishedRuns {
    fn run_all(rows: &[ThesisValue], threads: usize) -> Result<Self, ItaniumError> {
        let of_row = |row: &ThesisValue| {
            let setups = row.measure.needed_machine_settings(row.kernel).into_iter();
            let workload = row.workload;
            setups.map(move |setup| (workload, setup))
        };
        let wanted = distinct_in_order(rows.iter().flat_map(of_row));
        let made = map_on_threads(&wanted, threads, |_, (workload, setup)| {
            Ok((*workload, *setup, run(setup, workload, SEED)?))
        });
        Ok(Self(made.into_iter().collect::<Result<_, _>>()?))
    }

    fn find_run(
        &self,
        workload: &ThesisWorkload,
        setup: &MachineSettings,
    ) -> Option<&ItaniumRunFigures> {
        let mut runs = self.0.iter();
        let found = runs.find(|(w, s, _)| (w, s) == (workload, setup))?;
        Some(&found.2)
    }
}

/// Simulates a table on `threads` threads.
pub fn simulate_table(
    table: &ThesisTable,
    threads: usize,
) -> Result<ThesisTableReport, ItaniumError> {
    let rows = (table.rows)();
    let runs = FinishedRuns::run_all(&rows, threads)?;
    Ok(ThesisTableReport {
        name: table.name,
        shows: table.shows,
        layout: table.layout,
        rows: rows.iter().map(|row| ThesisAndModelValue::from_value_and_runs(row, &runs)).collect(),
        notes: table.notes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> &'static ThesisTable {
        TABLES.iter().find(|table| table.name == name).unwrap()
    }

    fn report(name: &str) -> ThesisTableReport {
        simulate_table(table(name), 2).unwrap()
    }

    fn speed_ups(report: &ThesisTableReport) -> Vec<f64> {
        let large = report.rows.iter().filter(|row| row.kernel.contains("LP"));
        let speed_ups = large.filter(|row| row.measure.starts_with("speed-up"));
        speed_ups.map(|row| row.model.unwrap()).collect()
    }

    #[test]
    fn pinning_entries_tells_what_a_miss_costs_as_it_did_in_the_thesis() {
        let report = report("miss-cost");
        let errors = report.rows.iter().filter_map(|row| row.difference_percent);
        let errors: Vec<f64> = errors.collect();
        assert_eq!(errors.len(), 3);
        assert!(errors.iter().all(|error| error.abs() < 10.0), "{report}");
    }

    #[test]
    fn large_pages_slow_vortex_down_and_speed_mcf_up() {
        let (vortex, mcf) = (report("vortex"), report("mcf"));
        assert_eq!((speed_ups(&vortex).len(), speed_ups(&mcf).len()), (2, 2));
        assert!(speed_ups(&vortex).iter().all(|s| *s < 1.0), "{vortex}");
        assert!(speed_ups(&mcf).iter().all(|s| *s > 1.07), "{mcf}");
    }

    const OF: &str = "mcf, 256 KiB";

    fn values(report: &ThesisTableReport, of: &str, kernel: &str) -> Vec<Option<f64>> {
        let rows = report.rows.iter();
        let rows = rows.filter(|row| (row.of.as_str(), row.kernel.as_str()) == (of, kernel));
        rows.map(|row| row.model).collect()
    }

    /// In a table of [`TableLayout::Kernels`], a line has all values of its kernel's rows.
    #[test]
    fn only_daemons_bring_large_pages_back() {
        let table = ThesisTable {
            rows: || {
                let mut rows = (table("policies-fragmented").rows)();
                let some = ["Solaris MPSS", "thesis", "IRIX", "Navarro"];
                rows.retain(|row| row.of == OF && some.contains(&row.kernel.to_string().as_str()));
                rows
            },
            layout: TableLayout::Kernels,
            ..TABLES[0]
        };
        let report = simulate_table(&table, 2).unwrap();
        let misses = |kernel| values(&report, OF, kernel)[0].unwrap();
        assert!(misses("IRIX") < misses("Solaris MPSS") / 2.0);
        assert!(misses("Navarro") < misses("thesis") / 2.0);
        let navarro = values(&report, OF, "Navarro");
        assert_eq!(navarro.len(), 7);
        let text = report.to_string();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert!(lines[0].starts_with("  mcf, 256 KiB     Solaris MPSS"));
        let shown = lines.iter().find(|line| line.contains("Navarro")).unwrap();
        let words: Vec<&str> = shown.split_whitespace().collect();
        assert_eq!(words[..2], ["Navarro", "dynamic"]);
        assert_eq!(words[2], format!("{:.0}", navarro[0].unwrap()));
    }

    #[test]
    fn names_of_tables_are_their_own() {
        for (place, table) in TABLES.iter().enumerate() {
            assert!(TABLES[..place].iter().all(|other| other.name != table.name));
        }
    }

    #[test]
    fn threads_change_nothing() {
        let run = |threads| simulate_table(table("linear"), threads).unwrap();
        assert_eq!(run(1), run(3));
    }
}
