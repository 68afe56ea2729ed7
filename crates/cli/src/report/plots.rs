//! A report as figures.

use super::heat_map::HeatMap;
use super::recording_report::{ProcessFigures, RecordingReport};
use super::svg::{HeatPlot, PanelContent, SvgFigure, SvgLine, SvgPanel};
use super::time_series::TimeSeries;
use crate::text_format::clip_printable;
use std::collections::BTreeMap;

const MIB: f64 = (1 << 20) as f64;

/// Figures with the names of their files, without extension. If several processes have the same id,
/// a number follows the id of all except the first.
pub fn svg_figures(report: &RecordingReport) -> Vec<(String, SvgFigure)> {
    let shown = report.processes.iter().filter(|p| p.map.is_some());
    let mut with_pid: BTreeMap<u32, u32> = BTreeMap::new();
    let named = shown.map(|process| {
        let pid = process.pid;
        let number = with_pid.entry(pid).or_default();
        *number += 1;
        let name = match number {
            1 => format!("process-{pid}"),
            number => format!("process-{pid}-{number}"),
        };
        (name, process_figure(process))
    });
    let mut figures: Vec<_> = named.collect();
    figures.push(("machine".to_owned(), machine_figure(report)));
    figures
}

/// A name chosen by users, with control characters replaced, because XML forbids them.
fn printable_name(chosen: &str) -> String {
    clip_printable(chosen, 64)
}

fn svg_line(name: &str, series: &TimeSeries, unit: f64) -> SvgLine {
    let points = series.points().map(|(at, value)| (at, value / unit));
    SvgLine {
        name: name.to_owned(),
        points: points.collect(),
    }
}

fn line_panel(title: &str, y_label: &str, lines: Vec<SvgLine>) -> SvgPanel {
    let lines = lines.into_iter().filter(|line| !line.points.is_empty());
    SvgPanel {
        title: title.to_owned(),
        y_label: y_label.to_owned(),
        content: PanelContent::Lines(lines.collect()),
    }
}

fn process_figure(process: &ProcessFigures) -> SvgFigure {
    let mut panels = Vec::new();
    if let Some(map) = process.map.as_ref().filter(|map| !map.is_empty()) {
        let coverage = "coverage (share of base pages accessed)";
        panels.push(heat_map_panel(coverage, map, &map.coverage_percent));
        panels.push(heat_map_panel(
            "huge pages (share of regions)",
            map,
            &map.huge_percent,
        ));
    }
    let overhead = vec![svg_line("overhead", &process.overhead_percent, 1.0)];
    panels.push(line_panel(
        "overhead of address translation",
        "overhead (%)",
        overhead,
    ));
    let memory = vec![
        svg_line("resident", &process.rss_bytes, MIB),
        svg_line("huge pages", &process.huge_bytes, MIB),
        svg_line("bloat", &process.bloat_bytes, MIB),
    ];
    panels.push(line_panel("memory", "memory (MiB)", memory));
    SvgFigure {
        title: format!("{} ({})", printable_name(&process.command), process.pid),
        panels,
    }
}

fn machine_figure(report: &RecordingReport) -> SvgFigure {
    let machine = &report.machine;
    let used = vec![svg_line("in use", &machine.used_bytes, MIB)];
    let shares = vec![
        svg_line("tasks waiting", &machine.pressure_percent, 1.0),
        svg_line("manager's CPU", &machine.manager_cpu_percent, 1.0),
    ];
    SvgFigure {
        title: format!("memory of {}", printable_name(&report.host)),
        panels: vec![
            line_panel("memory in use", "memory (MiB)", used),
            line_panel("pressure and the manager", "share (%)", shares),
        ],
    }
}

fn heat_map_panel(title: &str, map: &HeatMap, percent: &[Option<u8>]) -> SvgPanel {
    let rows = map.addresses.len();
    let edges = map.columns.iter().map(|column| column.to_s);
    let first = map.columns.first().map_or(0.0, |column| column.from_s);
    let share = |percent: &Option<u8>| percent.map(|percent| f64::from(percent) / 100.0);
    let columns = percent.chunks(rows.max(1));
    let labels = [0, rows / 4, rows / 2, rows * 3 / 4, rows.saturating_sub(1)];
    let label = |row| Some((row as f64 + 0.5, format!("{:x}", map.addresses.get(row)?)));
    let mut labels: Vec<_> = labels.into_iter().filter_map(label).collect();
    labels.dedup();
    SvgPanel {
        title: title.to_owned(),
        y_label: "address".to_owned(),
        content: PanelContent::Heat(HeatPlot {
            edges: std::iter::once(first).chain(edges).collect(),
            labels,
            cells: columns
                .map(|column| column.iter().map(share).collect())
                .collect(),
        }),
    }
}
