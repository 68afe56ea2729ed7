//! Figures of results.

use super::run_result::RunResult;
use hawkeye_bench::plot::{PlotContent, PlotFigure, PlotLine, PlotPanel, distinct_in_order};
use hawkeye_sim::engine::{ProgramFigures, ProgramMoment};
use hawkeye_sim::simulate::SimulationResult;

const GIB: f64 = (1u64 << 30) as f64;

/// One run over time: huge share, overhead, resident memory; a line for each program.
pub fn run_plot_figure(run: &SimulationResult) -> PlotFigure {
    let lines = |value: fn(&ProgramMoment) -> Option<f64>| {
        let lines = run.figures.all_programs().map(|program| {
            let points = program.course.iter();
            PlotLine {
                name: program.name.clone(),
                points: points.filter_map(|m| Some((m.at_s, value(m)?))).collect(),
            }
        });
        lines.collect()
    };
    let share = lines(|m| Some(m.huge_bytes as f64 * 100.0 / m.rss_bytes.max(1) as f64));
    let overhead = lines(|m| m.overhead_percent);
    let resident = lines(|m| Some(m.rss_bytes as f64 / GIB));
    PlotFigure {
        title: format!("{} on {}", run.workload, run.system),
        panels: vec![
            PlotPanel::lines_over_time("Resident memory under huge pages", "share (%)", share),
            PlotPanel::lines_over_time("Cycles in page walks", "overhead (%)", overhead),
            PlotPanel::lines_over_time("Resident memory", "RSS (GiB)", resident),
        ],
    }
}

/// Each program of each workload: the workload, the program's index there, and its title.
fn programs_with_titles(entries: &[RunResult]) -> Vec<(&str, usize, String)> {
    let mut found: Vec<(&str, usize, String)> = Vec::new();
    for entry in entries {
        let workload = entry.run.workload.as_str();
        let programs: Vec<_> = entry.run.figures.all_programs().collect();
        for (number, program) in programs.iter().enumerate() {
            if found.iter().any(|(w, n, _)| (*w, *n) == (workload, number)) {
                continue;
            }
            let alike = programs.iter().filter(|other| other.name == program.name);
            let title = match alike.count() {
                1 => program.name.clone(),
                _ => format!("{} ({})", program.name, number + 1),
            };
            found.push((workload, number, title));
        }
    }
    found
}

fn program_of_workload<'a>(
    entry: &'a RunResult,
    workload: &str,
    number: usize,
) -> Option<&'a ProgramFigures> {
    let same = entry.run.workload == workload;
    entry.run.figures.all_programs().nth(number).filter(|_| same)
}

/// Systems side by side: the time of each program, in a panel of its own.
pub fn comparison_plot_figure(entries: &[RunResult]) -> PlotFigure {
    let panels = programs_with_titles(entries).into_iter().map(|(workload, number, name)| {
        let bars = entries.iter().filter_map(|entry| {
            let program = program_of_workload(entry, workload, number)?;
            Some((entry.run.system.clone(), program.wall_s))
        });
        PlotPanel {
            title: format!("{workload}: {name}"),
            y_label: "time (s)".to_owned(),
            content: PlotContent::Bars(bars.collect()),
        }
    });
    PlotFigure { title: "Time by system".to_owned(), panels: panels.collect() }
}

/// Effect of a parameter: the time and the overhead of each program, a line for each system.
pub fn sweep_plot_figure(entries: &[RunResult], parameter: &str, values: &[String]) -> PlotFigure {
    let systems = distinct_in_order(entries.iter().map(|entry| entry.run.system.as_str()));
    let mut panels = Vec::new();
    for (workload, number, name) in programs_with_titles(entries) {
        let content = |value: fn(&ProgramFigures) -> f64| {
            let line = |system: &&str| {
                let own = entries.iter().filter(|entry| entry.run.system == *system);
                let points = own.filter_map(|entry| {
                    let place = values.iter().position(|value| *value == entry.value)?;
                    Some((place as f64, value(program_of_workload(entry, workload, number)?)))
                });
                PlotLine { name: (*system).to_owned(), points: points.collect() }
            };
            PlotContent::Steps {
                x_label: parameter.to_owned(),
                names: values.to_vec(),
                lines: systems.iter().map(line).collect(),
            }
        };
        panels.push(PlotPanel {
            title: format!("{workload}: {name}, time"),
            y_label: "time (s)".to_owned(),
            content: content(|program| program.wall_s),
        });
        panels.push(PlotPanel {
            title: format!("{workload}: {name}, cycles in page walks"),
            y_label: "overhead (%)".to_owned(),
            content: content(|program| program.overhead_percent),
        });
    }
    PlotFigure { title: format!("By {parameter}"), panels }
}
