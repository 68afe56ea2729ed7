//! The outcome of an experiment.

use crate::experiment_name::ExperimentName;
use crate::live::live_report::ManagerCpuUse;
use crate::live::{EXPERIMENTS, LiveReport};
use crate::plot::{PlotContent, PlotFigure, PlotPanel};
use crate::simulated::paper::{PaperReport, PublishedAndSimulatedValue, PublishedValue};
use serde::Serialize;
use std::fmt;

/// The outcome of one side of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExperimentOutcome {
    /// The experiment.
    pub name: ExperimentName,
    /// Its figures.
    #[serde(flatten)]
    pub side: LiveOrSimulatedReport,
    /// How long it took, in seconds.
    pub took_s: f64,
}

/// The figures, by the machine that they are from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LiveOrSimulatedReport {
    /// Measured on this machine.
    Live(LiveReport),
    /// Simulated, beside the published figures.
    Simulated(PaperReport),
}

impl fmt::Display for ExperimentOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.side {
            LiveOrSimulatedReport::Live(report) => write!(f, "{report}")?,
            LiveOrSimulatedReport::Simulated(report) => write!(f, "{report}")?,
        }
        writeln!(f, "  took {:.0} s", self.took_s)
    }
}

impl ExperimentOutcome {
    /// Its title among the results of all experiments: the experiment's name, and the side if it is
    /// the second one.
    pub fn title(&self) -> String {
        result_title(self.name, matches!(self.side, LiveOrSimulatedReport::Live(_)))
    }

    /// CPU time that its managers took.
    pub fn manager_cpu_use(&self) -> ManagerCpuUse {
        match &self.side {
            LiveOrSimulatedReport::Live(report) => report.managing,
            LiveOrSimulatedReport::Simulated(_) => ManagerCpuUse::default(),
        }
    }

    /// The experiment's own drawings, then bars with a panel for each unit; `None` without figures.
    pub fn to_plot(&self) -> Option<PlotFigure> {
        let mut bars = BarPanelsByUnit::default();
        let mut panels = Vec::new();
        match &self.side {
            LiveOrSimulatedReport::Live(report) => {
                panels.clone_from(&report.panels);
                for row in &report.rows {
                    bars.add_bar("measured", row.unit, row.what.clone(), row.value);
                }
            }
            LiveOrSimulatedReport::Simulated(report) => {
                for row in &report.figures {
                    bars.add_published_and_simulated_bars(row);
                }
            }
        }
        panels.append(&mut bars.0);
        (!panels.is_empty()).then(|| PlotFigure { title: self.title(), panels })
    }
}

pub(super) fn result_title(name: ExperimentName, is_live: bool) -> String {
    let is_second = !is_live && EXPERIMENTS.iter().any(|live| live.name == name);
    let side = if is_second { "-simulated" } else { "" };
    format!("{}{side}", name.name)
}

#[derive(Default)]
struct BarPanelsByUnit(Vec<PlotPanel>);

impl BarPanelsByUnit {
    fn add_bar(&mut self, side: &str, unit: &str, name: String, value: f64) {
        if !value.is_finite() {
            return;
        }
        let title = if unit.is_empty() { side.to_owned() } else { format!("{side}, {unit}") };
        let panel = self.0.iter_mut().find(|panel| panel.title == title);
        if let Some(PlotPanel { content: PlotContent::Bars(bars), .. }) = panel {
            bars.push((name, value));
            return;
        }
        self.0.push(PlotPanel {
            title,
            y_label: unit.to_owned(),
            content: PlotContent::Bars(vec![(name, value)]),
        });
    }

    fn add_published_and_simulated_bars(&mut self, row: &PublishedAndSimulatedValue) {
        let name = format!("{} {}", row.program, row.system);
        let paper = match row.paper {
            PublishedValue::Value(value) | PublishedValue::AtLeast(value) => [Some(value), None],
            PublishedValue::Range(from, to) => [Some(from), Some(to)],
            PublishedValue::Unknown => [None, None],
        };
        for value in paper.into_iter().flatten() {
            self.add_bar("simulated", row.unit, format!("{name}, published"), value);
        }
        if let Some(value) = row.simulated {
            self.add_bar("simulated", row.unit, name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAIRNESS: ExperimentName = ExperimentName::from_name_and_alias("fairness", "table-5");

    fn live() -> ExperimentOutcome {
        let mut live = LiveReport::new(FAIRNESS);
        live.add_row("linux", 10.0, "s", "");
        live.add_row("hawkeye", 8.0, "s", "");
        live.add_row("promoted", 100.0, "", "");
        ExperimentOutcome { name: FAIRNESS, side: LiveOrSimulatedReport::Live(live), took_s: 12.4 }
    }

    fn simulated(name: ExperimentName) -> ExperimentOutcome {
        ExperimentOutcome {
            name,
            side: LiveOrSimulatedReport::Simulated(PaperReport {
                name,
                shows: "equal shares",
                figures: vec![PublishedAndSimulatedValue {
                    workload: "cg",
                    program: "cg",
                    system: "hawkeye-g",
                    unit: "s",
                    paper: PublishedValue::Value(9.0),
                    simulated: Some(8.9),
                    error_percent: Some(-1.1),
                }],
                notes: &[],
            }),
            took_s: 3.0,
        }
    }

    #[test]
    fn each_is_printed_with_both_names_and_its_duration() {
        let text = live().to_string();
        assert!(text.starts_with("fairness (table-5)\n"), "{text}");
        assert!(text.ends_with("\n  took 12 s\n"), "{text}");
        let text = simulated(FAIRNESS).to_string();
        assert!(text.starts_with("fairness (table-5): equal shares\n"), "{text}");
        assert!(text.ends_with("\n  took 3 s\n"), "{text}");
    }

    #[test]
    fn json_has_the_alias_as_its_name() {
        let json = serde_json::to_value(simulated(FAIRNESS)).expect("JSON");
        assert_eq!(
            (&json["name"], &json["simulated"]["name"]),
            (&"table-5".into(), &"table-5".into())
        );
        assert_eq!(serde_json::to_value(ExperimentName::from("bloat")).expect("JSON"), "bloat");
    }

    #[test]
    fn a_simulated_side_beside_a_live_one_has_a_separate_title() {
        assert_eq!(live().title(), "fairness");
        assert_eq!(simulated(FAIRNESS).title(), "fairness-simulated");
        assert_eq!(simulated("npb-speedup".into()).title(), "npb-speedup");
    }

    #[test]
    fn a_panel_for_each_unit() {
        let titles = |outcome: ExperimentOutcome| {
            let panels = outcome.to_plot().expect("has figures").panels;
            panels.into_iter().map(|panel| panel.title).collect::<Vec<_>>()
        };
        assert_eq!(titles(live()), ["measured, s", "measured"]);
        assert_eq!(titles(simulated(FAIRNESS)), ["simulated, s"]);
        let figure = simulated(FAIRNESS).to_plot().expect("has figures");
        assert!(figure.to_svg().expect("drawn").contains("published"));
        let none = ExperimentOutcome {
            side: LiveOrSimulatedReport::Live(LiveReport::new(FAIRNESS)),
            ..live()
        };
        assert_eq!(none.to_plot(), None);
    }
}
