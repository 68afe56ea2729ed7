//! Measured and simulated values as plots.

use super::{ItaniumReport, SideBySide};
use crate::plot::{Content, Figure, Line, Panel};
use crate::simulated::paper::Published;

/// A panel for each measure of each table, with a pair of lines for each kernel.
pub fn figure(reports: &[ItaniumReport]) -> Figure {
    let mut panels = Vec::new();
    for report in reports {
        let mut measures: Vec<&str> = Vec::new();
        for row in &report.rows {
            if !measures.contains(&row.measure.as_str()) {
                measures.push(&row.measure);
            }
        }
        for measure in measures {
            let rows: Vec<_> = report
                .rows
                .iter()
                .filter(|row| row.measure == measure)
                .collect();
            panels.push(Panel {
                title: report.name.to_owned(),
                y_label: measure.to_owned(),
                content: content(&rows),
            });
        }
    }
    Figure {
        title: "Itanium Linux: thesis and model".to_owned(),
        panels,
    }
}

fn content(rows: &[&SideBySide]) -> Content {
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        if !names.contains(&row.of) {
            names.push(row.of.clone());
        }
    }
    if names.len() == 1 {
        let bars = rows.iter().flat_map(|row| {
            let bar =
                |who: &str, value: Option<f64>| Some((format!("{} {who}", row.kernel), value?));
            [bar("thesis", measured(row)), bar("model", row.model)]
        });
        return Content::Bars(bars.flatten().collect());
    }
    let mut kernels: Vec<&str> = Vec::new();
    for row in rows {
        if !kernels.contains(&row.kernel.as_str()) {
            kernels.push(&row.kernel);
        }
    }
    let line = |kernel: &str, who: &str, value: fn(&SideBySide) -> Option<f64>| {
        let own = rows.iter().filter(|row| row.kernel == kernel);
        let points = own.filter_map(|row| {
            let place = names.iter().position(|name| *name == row.of)?;
            Some((place as f64, value(row)?))
        });
        Line {
            name: format!("{kernel} {who}"),
            points: points.collect(),
        }
    };
    let pairs = kernels.iter().flat_map(|kernel| {
        [
            line(kernel, "thesis", measured),
            line(kernel, "model", |row| row.model),
        ]
    });
    let lines = pairs.filter(|line| !line.points.is_empty()).collect();
    Content::Steps {
        x_label: "workload".to_owned(),
        names,
        lines,
    }
}

fn measured(row: &SideBySide) -> Option<f64> {
    match row.thesis? {
        Published::Value(value) | Published::AtLeast(value) => Some(value),
        Published::Range(from, to) => Some((from + to) / 2.0),
    }
}
