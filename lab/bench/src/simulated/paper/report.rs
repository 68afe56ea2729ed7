//! Published and simulated values side by side.

use super::{Published, number};
use serde::Serialize;
use std::fmt;

/// A value beside the published one.
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
    pub paper: Published,
    /// As simulated; nothing where the program did not come so far.
    pub simulated: Option<f64>,
    /// Simulated over published, less 1, in per cent; of a range over its nearer end; nothing where a bound is kept.
    pub error_percent: Option<f64>,
}

/// A table, simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PaperReport {
    /// Its name.
    pub name: &'static str,
    /// What it shows.
    pub shows: &'static str,
    /// Its values.
    pub figures: Vec<Beside>,
    /// What must be known.
    pub notes: &'static [&'static str],
}

impl fmt::Display for PaperReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.shows)?;
        writeln!(
            f,
            "  {:<12} {:<12} {:>9} {:>9} {:<20} {:>8}",
            "program", "system", "paper", "simulated", "", "error"
        )?;
        for row in &self.figures {
            let simulated = row.simulated.map_or("-".to_owned(), number);
            let error = row.error_percent.map(|e| format!("{e:+.1} %"));
            writeln!(
                f,
                "  {:<12} {:<12} {:>9} {simulated:>9} {:<20} {:>8}",
                row.program,
                row.system,
                row.paper,
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
