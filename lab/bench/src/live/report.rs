//! Figures, as a table for people and as JSON.

use crate::plot::Panel;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// The figure; infinite for what did not come to pass.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// What it is held against: a goal, or the other side of a comparison.
    pub beside: String,
}

impl Row {
    /// The figure with as many decimals as it has meaning.
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

/// What an experiment found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The experiment.
    pub name: String,
    /// Its figures.
    pub rows: Vec<Row>,
    /// What a reader must know to read them rightly.
    pub notes: Vec<String>,
    /// What is drawn beside the figures.
    pub panels: Vec<Panel>,
    /// What managing took in it, where that was done as it is by default.
    pub managing: Managing,
}

/// CPU that managers took, with settings as they are by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Managing {
    /// All managers' CPU time, in seconds.
    pub cpu_s: f64,
    /// How long they managed, in seconds.
    pub wall_s: f64,
    /// The most that one took on average, in per cent of a core.
    pub worst_percent: f64,
}

impl Managing {
    /// Adds what one manager took.
    pub fn add(&mut self, cpu: Duration, wall: Duration) {
        let (cpu_s, wall_s) = (cpu.as_secs_f64(), wall.as_secs_f64());
        self.cpu_s += cpu_s;
        self.wall_s += wall_s;
        if wall_s > 0.0 {
            self.worst_percent = self.worst_percent.max(cpu_s * 100.0 / wall_s);
        }
    }

    /// Adds what all of another experiment's took.
    pub fn join(&mut self, other: &Self) {
        self.cpu_s += other.cpu_s;
        self.wall_s += other.wall_s;
        self.worst_percent = self.worst_percent.max(other.worst_percent);
    }

    /// All of that as a sentence; `None` where nobody managed.
    pub fn line(&self) -> Option<String> {
        (self.wall_s > 0.0).then(|| {
            format!(
                "Managers with default settings took {:.2} % of a core on average over {:.0} s, at worst {:.2} % in one run.",
                self.cpu_s * 100.0 / self.wall_s,
                self.wall_s,
                self.worst_percent,
            )
        })
    }
}

impl Report {
    /// An empty report.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Adds a figure.
    pub fn row(
        &mut self,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        beside: impl Into<String>,
    ) {
        self.rows.push(Row {
            what: what.into(),
            value,
            unit,
            beside: beside.into(),
        });
    }

    /// Adds what a manager with default settings took.
    pub fn managed(&mut self, cpu: Duration, wall: Duration) {
        self.managing.add(cpu, wall);
    }

    /// Says on standard error what was found last: for experiments that take long.
    pub fn tell_last(&self) {
        if let Some(row) = self.rows.last() {
            let value = row.value_text();
            eprintln!(
                "hawkeye: {}: {} {value} {}, {}",
                self.name, row.what, row.unit, row.beside
            );
        }
    }

    /// Adds a sentence.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        let width = self
            .rows
            .iter()
            .map(|row| row.what.chars().count())
            .max()
            .unwrap_or(0);
        for row in &self.rows {
            let value = row.value_text();
            writeln!(
                f,
                "  {:width$}  {value:>9} {:<10} {}",
                row.what, row.unit, row.beside
            )?;
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
        let mut report = Report::new("sampling");
        report.row("per region", 1.034, "us", "goal 1.2");
        report.row("regions", 2048.0, "", "");
        report.note("Two cores.");
        let text = report.to_string();
        assert!(
            text.contains("per region       1.03 us         goal 1.2"),
            "{text}"
        );
        assert!(text.ends_with("  Two cores.\n"), "{text}");
    }
}
