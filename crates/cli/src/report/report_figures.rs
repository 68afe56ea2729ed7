//! A report as figures.

use super::heat_map::HeatMap;
use super::recording_report::{ProcessFigures, RecordingReport};
use super::svg_figure::{HeatPlot, PanelContent, SvgFigure, SvgLineSeries, SvgPanel};
use super::time_series::TimeSeries;
use crate::text_format::clip_printable;
use std::collections::BTreeMap;

const MIB: f64 = (1 << 20) as f64;

/// Figures with the names of their files. A number follows a process id used again.
pub fn report_figures(report: &RecordingReport) -> Vec<(String, SvgFigure)> {
    let mut figures = Vec::new();
    let mut with_pid: BTreeMap<u32, u32> = BTreeMap::new();
    let shown = |process: &&ProcessFigures| process.map.is_some();
    for process in report.processes.iter().filter(shown) {
        let pid = process.pid;
        let number = with_pid.entry(pid).or_default();
        *number += 1;
        let name = match number {
            1 => format!("process-{pid}"),
            number => format!("process-{pid}-{number}"),
        };
        figures.push((name, process_figure(process)));
    }
    figures.push(("machine".to_owned(), machine_figure(report)));
    figures
}

/// A name chosen by users, with control characters replaced, because XML forbids them.
fn printable_name(chosen: &str) -> String {
    clip_printable(chosen, 64)
}

/// A panel with those of the series that are known. `unit` is what 1 stands for.
fn line_panel(
    title: &'static str,
    y_label: &'static str,
    unit: f64,
    series: &[(&'static str, &TimeSeries)],
) -> SvgPanel {
    let lines = series.iter().map(|(name, series)| SvgLineSeries {
        name,
        points: series.mean_points().map(|(at, value)| (at, value / unit)).collect(),
    });
    let lines = lines.filter(|line| !line.points.is_empty()).collect();
    SvgPanel { title, y_label, content: PanelContent::Lines(lines) }
}

fn process_figure(process: &ProcessFigures) -> SvgFigure {
    let mut panels = Vec::new();
    if let Some(map) = process.map.as_ref().filter(|map| !map.is_empty()) {
        let (coverage, huge) = (&map.coverage_percent, &map.huge_percent);
        panels.push(heat_map_panel("coverage (share of base pages accessed)", map, coverage));
        panels.push(heat_map_panel("huge pages (share of regions)", map, huge));
    }
    let overhead = [("overhead", &process.overhead_percent)];
    let title = "overhead of address translation";
    panels.push(line_panel(title, "overhead (%)", 1.0, &overhead));
    let memory = [
        ("resident", &process.rss_bytes),
        ("huge pages", &process.huge_bytes),
        ("bloat", &process.bloat_bytes),
    ];
    panels.push(line_panel("memory", "memory (MiB)", MIB, &memory));
    SvgFigure { title: format!("{} ({})", printable_name(&process.command), process.pid), panels }
}

fn machine_figure(report: &RecordingReport) -> SvgFigure {
    let machine = &report.machine;
    let used = [("in use", &machine.used_bytes)];
    let (pressure, cpu) = (&machine.pressure_percent, &machine.manager_cpu_percent);
    let shares = [("tasks waiting", pressure), ("manager's CPU", cpu)];
    SvgFigure {
        title: format!("memory of {}", printable_name(&report.host)),
        panels: vec![
            line_panel("memory in use", "memory (MiB)", MIB, &used),
            line_panel("pressure and the manager", "share (%)", 1.0, &shares),
        ],
    }
}

fn heat_map_panel(title: &'static str, map: &HeatMap, percent: &[Option<u8>]) -> SvgPanel {
    let rows = map.addresses.len();
    let edges = map.columns.iter().map(|column| column.to_s);
    let first = map.columns.first().map_or(0.0, |column| column.from_s);
    let share = |percent: &Option<u8>| percent.map(|percent| f64::from(percent) / 100.0);
    let column = |column: &[Option<u8>]| column.iter().map(share).collect();
    let labels = [0, rows / 4, rows / 2, rows * 3 / 4, rows.saturating_sub(1)];
    let label = |row| Some((row as f64 + 0.5, format!("{:x}", map.addresses.get(row)?)));
    let mut labels: Vec<_> = labels.into_iter().filter_map(label).collect();
    labels.dedup();
    SvgPanel {
        title,
        y_label: "address",
        content: PanelContent::Heat(HeatPlot {
            edges: std::iter::once(first).chain(edges).collect(),
            labels,
            cells: percent.chunks(rows.max(1)).map(column).collect(),
        }),
    }
}
