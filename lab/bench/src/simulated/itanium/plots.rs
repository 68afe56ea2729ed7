//! Measured and simulated values as plots.

use super::{ThesisAndModelValue, ThesisTableReport};
use crate::plot::{PlotContent, PlotFigure, PlotLine, PlotPanel, distinct_in_order};
use crate::simulated::paper::PublishedValue;

/// A panel for each measure of each table, with a pair of lines for each kernel.
pub fn thesis_plot_figure(reports: &[ThesisTableReport]) -> PlotFigure {
    let mut panels = Vec::new();
    for report in reports {
        let measures = distinct_in_order(report.rows.iter().map(|row| row.measure.as_str()));
        for measure in measures {
            let rows = report.rows.iter().filter(|row| row.measure == measure);
            let rows: Vec<_> = rows.collect();
            panels.push(PlotPanel {
                title: report.name.to_owned(),
                y_label: measure.to_owned(),
                content: panel_content(&rows),
            });
        }
    }
    PlotFigure { title: "Itanium Linux: thesis and model".to_owned(), panels }
}

fn panel_content(rows: &[&ThesisAndModelValue]) -> PlotContent {
    let names = distinct_in_order(rows.iter().map(|row| row.of.clone()));
    if names.len() == 1 {
        let bars = rows.iter().flat_map(|row| {
            let bar = |source: &str, value: Option<f64>| {
                Some((format!("{} {source}", row.kernel), value?))
            };
            [bar("thesis", thesis_value(row)), bar("model", row.model)]
        });
        return PlotContent::Bars(bars.flatten().collect());
    }
    let kernels = distinct_in_order(rows.iter().map(|row| row.kernel.as_str()));
    let line = |kernel: &str, source: &str, value: fn(&ThesisAndModelValue) -> Option<f64>| {
        let own = rows.iter().filter(|row| row.kernel == kernel);
        let points = own.filter_map(|row| {
            let place = names.iter().position(|name| *name == row.of)?;
            Some((place as f64, value(row)?))
        });
        PlotLine { name: format!("{kernel} {source}"), points: points.collect() }
    };
    let pairs = kernels.iter().flat_map(|kernel| {
        [line(kernel, "thesis", thesis_value), line(kernel, "model", |row| row.model)]
    });
    let lines = pairs.filter(|line| !line.points.is_empty()).collect();
    PlotContent::Steps { x_label: "workload".to_owned(), names, lines }
}

fn thesis_value(row: &ThesisAndModelValue) -> Option<f64> {
    match row.thesis? {
        PublishedValue::Value(value) | PublishedValue::AtLeast(value) => Some(value),
        PublishedValue::Range(from, to) => Some((from + to) / 2.0),
        PublishedValue::Unknown => None,
    }
}
