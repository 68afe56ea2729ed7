//! Figures, as a table for readers and as JSON.

use crate::experiment_name::ExperimentName;
use crate::plot::PlotPanel;
use serde::{Deserialize, Serialize};
use std::fmt;

pub(crate) fn bytes_to_mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReportRow {
    pub what: String,
    /// The figure; infinite for an event that did not happen.
    pub value: f64,
    pub unit: &'static str,
    /// What to compare it with: a goal, or the other side of a comparison.
    pub beside: String,
}

impl ReportRow {
    fn value_text(&self) -> String {
        if !self.value.is_finite() {
            return "never".to_owned();
        }
        let decimals = match self.value.abs() {
            v if v >= 100.0 => 0,
            v if v >= 10.0 => 1,
            v if v >= 0.1 => 2,
            _ => 3,
        };
        format!("{:.decimals$}", self.value)
    }
}

/// The findings of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LiveReport {
    pub(crate) name: ExperimentName,
    pub(crate) rows: Vec<ReportRow>,
    /// What a reader must know to interpret the figures.
    pub(crate) notes: Vec<String>,
    /// Plots beside the figures.
    pub(crate) panels: Vec<PlotPanel>,
    /// CPU time of managers that ran with default settings.
    pub(crate) managing: ManagerCpuUse,
}

/// CPU time of managers that ran with default settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ManagerCpuUse {
    /// All managers' CPU time, in seconds.
    pub(crate) cpu_s: f64,
    /// How long they managed, in seconds.
    pub(crate) wall_s: f64,
    /// The highest average of one manager, in per cent of a core.
    pub(crate) worst_percent: f64,
}

impl ManagerCpuUse {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.cpu_s += other.cpu_s;
        self.wall_s += other.wall_s;
        self.worst_percent = self.worst_percent.max(other.worst_percent);
    }

    /// The use as a sentence; `None` if nothing was managed.
    pub(crate) fn cpu_use_sentence(&self) -> Option<String> {
        (self.wall_s > 0.0).then(|| {
            format!(
                "Managers with default settings used {:.2} % of a core on average over {:.0} s, and at most {:.2} % in one run.",
                self.cpu_s * 100.0 / self.wall_s,
                self.wall_s,
                self.worst_percent,
            )
        })
    }
}

impl LiveReport {
    pub(crate) fn new(name: impl Into<ExperimentName>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    pub(crate) fn add_row(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        beside: impl Into<String>,
    ) {
        self.rows.push(ReportRow { what: what.into(), value, unit, beside: beside.into() });
    }

    pub(crate) fn prefixed_row_writer(&mut self, name: impl Into<String>) -> PrefixedRowWriter<'_> {
        PrefixedRowWriter { report: self, name: name.into() }
    }

    /// Prints the latest figure to standard error, for experiments that take long.
    pub(crate) fn print_last_row_to_stderr(&self) {
        if let Some(row) = self.rows.last() {
            let value = row.value_text();
            eprintln!(
                "hawkeye-lab: {}: {} {value} {}, {}",
                self.name, row.what, row.unit, row.beside
            );
        }
    }

    pub(crate) fn add_note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    #[cfg(test)]
    pub(crate) fn row(&self, what: &str) -> &ReportRow {
        let row = self.rows.iter().find(|row| row.what == what);
        row.unwrap_or_else(|| panic!("no {what} in {self}"))
    }
}

/// Figures that share a name, which is before each.
pub(crate) struct PrefixedRowWriter<'a> {
    report: &'a mut LiveReport,
    name: String,
}

impl PrefixedRowWriter<'_> {
    pub(crate) fn add_row(
        &mut self,
        what: &str,
        value: f64,
        unit: &'static str,
        beside: impl Into<String>,
    ) {
        let what = format!("{}: {what}", self.name);
        self.report.add_row(what, value, unit, beside);
    }
}

impl fmt::Display for LiveReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        let width = self.rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(0);
        for row in &self.rows {
            let value = row.value_text();
            writeln!(f, "  {:width$}  {value:>9} {:<10} {}", row.what, row.unit, row.beside)?;
        }
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reads_as_a_table() {
        let mut report = LiveReport::new("sampling");
        report.add_row("per region", 1.034, "us", "goal 1.2");
        report.add_row("regions", 2048.0, "", "");
        report.add_note("Two cores.");
        let text = report.to_string();
        assert!(text.contains("per region       1.03 us         goal 1.2"), "{text}");
        assert!(text.ends_with("  Two cores.\n"), "{text}");
    }
}
