//! Measured and simulated values side by side.

use super::{FinishedRuns, ThesisValue};
use crate::plot::distinct_in_order;
use crate::simulated::paper::PublishedValue;
use hawkeye_itanium::kernel::policies::ThesisPolicyClass;
use serde::Serialize;
use std::fmt;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThesisAndModelValue {
    pub of: String,
    pub kernel: String,
    /// The class that the thesis gives the rules for large pages, if they are another system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<ThesisPolicyClass>,
    /// What is compared, with its unit.
    pub measure: String,
    /// The measured value, if there is one.
    pub(crate) thesis: Option<PublishedValue>,
    /// The simulated value; nothing if it is undefined, such as cycles per miss without misses.
    pub model: Option<f64>,
    /// Simulated minus measured.
    pub difference: Option<f64>,
    /// The difference in per cent of the measured value; nothing if that is itself a share.
    pub difference_percent: Option<f64>,
    /// Digits after the decimal point.
    #[serde(skip)]
    decimals: usize,
}

impl ThesisAndModelValue {
    pub(super) fn from_value_and_runs(row: &ThesisValue, runs: &FinishedRuns) -> Self {
        let model = row.measure.compute_value(row, runs);
        let (measure, decimals) = row.measure.label_and_decimals();
        let measured = match row.thesis {
            Some(PublishedValue::Value(value)) => Some(value),
            _ => None,
        };
        Self {
            of: row.of.clone(),
            kernel: row.kernel.to_string(),
            class: row.kernel.policy_class(),
            measure,
            thesis: row.thesis,
            model,
            difference: model.zip(measured).map(|(model, thesis)| model - thesis),
            // Shares are compared in points.
            difference_percent: row
                .thesis
                .filter(|_| !row.measure.is_percentage())
                .and_then(|thesis| thesis.simulated_error_percent(model)),
            decimals,
        }
    }
}

/// How a table is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableLayout {
    /// A line for each value, beside the measured one.
    Values,
    /// A line for each kernel, with all of its simulated values.
    Kernels,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThesisTableReport {
    pub name: &'static str,
    pub shows: &'static str,
    #[serde(skip)]
    pub layout: TableLayout,
    pub rows: Vec<ThesisAndModelValue>,
    pub notes: &'static [&'static str],
}

impl fmt::Display for ThesisTableReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.shows)?;
        match self.layout {
            TableLayout::Values => self.write_line_per_value(f)?,
            TableLayout::Kernels => self.write_line_per_kernel(f)?,
        }
        for note in self.notes {
            writeln!(f, "  {note}")?;
        }
        Ok(())
    }
}

impl ThesisTableReport {
    fn write_line_per_value(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  {:<13} {:<15} {:<33} {:>9} {:>9} {:>10}",
            "", "kernel", "", "thesis", "model", "difference"
        )?;
        for row in &self.rows {
            let digits = row.decimals;
            let exact = |value: f64| format!("{value:.digits$}");
            let thesis = match row.thesis {
                None | Some(PublishedValue::Unknown) => "-".to_owned(),
                Some(PublishedValue::Value(value)) => exact(value),
                Some(PublishedValue::AtLeast(value)) => format!("> {}", exact(value)),
                Some(PublishedValue::Range(from, to)) => format!("{}-{}", exact(from), exact(to)),
            };
            let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
            let difference = row.difference.map(|value| format!("{value:+.digits$}"));
            let percent = row.difference_percent.map(|value| format!("{value:+.1} %"));
            let line = format!(
                "  {:<13} {:<15} {:<33} {thesis:>9} {:>9} {:>10} {:>9}",
                row.of,
                row.kernel,
                row.measure,
                or_dash(row.model.map(exact)),
                difference.unwrap_or_default(),
                percent.unwrap_or_default(),
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }

    fn write_line_per_kernel(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measures = distinct_in_order(self.rows.iter().map(|row| row.measure.as_str()));
        write!(f, "  {:<16} {:<17} {:<7}", "", "", "")?;
        for measure in &measures {
            write!(f, " {measure:>11}")?;
        }
        writeln!(f)?;
        let mut of = "";
        for rows in self.rows.chunk_by(|a, b| (&a.of, &a.kernel) == (&b.of, &b.kernel)) {
            let Some(first) = rows.first() else {
                continue;
            };
            let shown = if first.of == of { "" } else { &first.of };
            of = &first.of;
            let class = first.class.map(|class| class.to_string());
            let class = class.unwrap_or_default();
            write!(f, "  {shown:<16} {:<17} {class:<7}", first.kernel)?;
            for measure in &measures {
                let found = rows.iter().find(|row| row.measure == *measure);
                let value = found.and_then(|row| Some((row.model?, row.decimals)));
                let value = value.map(|(value, digits)| format!("{value:.digits$}"));
                write!(f, " {:>11}", value.unwrap_or_else(|| "-".to_owned()))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
