//! Published and simulated values side by side.

use super::{PublishedValue, format_short_decimal};
use crate::experiment_name::ExperimentName;
use serde::Serialize;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedAndSimulatedValue {
    pub workload: &'static str,
    pub program: &'static str,
    pub system: &'static str,
    pub unit: &'static str,
    pub(crate) paper: PublishedValue,
    /// The simulated value; nothing if the program did not get that far.
    pub simulated: Option<f64>,
    /// Simulated over published, less 1, in per cent; for a range relative to its nearer end;
    /// nothing if a bound holds.
    pub error_percent: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PaperReport {
    pub name: ExperimentName,
    pub shows: &'static str,
    pub figures: Vec<PublishedAndSimulatedValue>,
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
            let simulated = row.simulated.map_or("-".to_owned(), format_short_decimal);
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
