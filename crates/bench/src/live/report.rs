//! Figures, as a table for people and as JSON.

use serde::Serialize;
use std::fmt;

/// One figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// What it is held against: a goal, or the other side of a comparison.
    pub beside: String,
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
            let decimals = match row.value.abs() {
                v if v >= 100.0 => 0,
                v if v >= 10.0 => 1,
                v if v >= 0.1 => 2,
                _ => 3,
            };
            writeln!(
                f,
                "  {:width$}  {:>9.decimals$} {:<10} {}",
                row.what, row.value, row.unit, row.beside
            )?;
        }
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        Ok(())
    }
}

/// The median; 0 for nothing.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&[]), 0.0);
    }

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
