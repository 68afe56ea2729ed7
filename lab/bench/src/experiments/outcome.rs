//! The outcome of an experiment.

use crate::live::report::Managing;
use crate::live::{EXPERIMENTS, Report};
use crate::plot::{Content, Figure, Panel};
use crate::simulated::paper::{Beside, PaperReport, Published};
use serde::Serialize;
use std::fmt;

/// The outcome of one side of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The experiment.
    pub name: &'static str,
    /// Its figures.
    #[serde(flatten)]
    pub side: Side,
    /// How long it took, in seconds.
    pub took_s: f64,
}

/// The figures, by the machine that they are from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// Measured on this machine.
    Live(Report),
    /// Simulated, beside the published figures.
    Simulated(PaperReport),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.side {
            Side::Live(report) => write!(f, "{report}")?,
            Side::Simulated(report) => write!(f, "{report}")?,
        }
        writeln!(f, "  took {:.0} s", self.took_s)
    }
}

impl Outcome {
    /// Its title among the results of all experiments: the experiment's name, and the side if it is
    /// the second one.
    pub fn title(&self) -> String {
        match self.side {
            Side::Live(_) => self.name.to_owned(),
            Side::Simulated(_) => simulated_title(self.name),
        }
    }

    /// CPU time that its managers took.
    pub fn managing(&self) -> Managing {
        match &self.side {
            Side::Live(report) => report.managing,
            Side::Simulated(_) => Managing::default(),
        }
    }

    /// The experiment's own drawings, then bars with a panel for each unit; `None` without figures.
    pub fn figure(&self) -> Option<Figure> {
        let mut bars = Bars::default();
        let mut panels = Vec::new();
        match &self.side {
            Side::Live(report) => {
                panels.clone_from(&report.panels);
                for row in &report.rows {
                    bars.add("measured", row.unit, row.what.clone(), row.value);
                }
            }
            Side::Simulated(report) => {
                for row in &report.figures {
                    bars.add_beside(row);
                }
            }
        }
        panels.append(&mut bars.0);
        (!panels.is_empty()).then(|| Figure {
            title: self.title(),
            panels,
        })
    }
}

/// The title of an experiment's simulated side.
pub(super) fn simulated_title(name: &str) -> String {
    if EXPERIMENTS.iter().any(|live| live.name == name) {
        format!("{name}-simulated")
    } else {
        name.to_owned()
    }
}

#[derive(Default)]
struct Bars(Vec<Panel>);

impl Bars {
    fn add(&mut self, side: &str, unit: &str, name: String, value: f64) {
        if !value.is_finite() {
            return;
        }
        let title = if unit.is_empty() {
            side.to_owned()
        } else {
            format!("{side}, {unit}")
        };
        let panel = self.0.iter_mut().find(|panel| panel.title == title);
        if let Some(Panel {
            content: Content::Bars(bars),
            ..
        }) = panel
        {
            bars.push((name, value));
            return;
        }
        self.0.push(Panel {
            title,
            y_label: unit.to_owned(),
            content: Content::Bars(vec![(name, value)]),
        });
    }

    /// Adds a published value, and then the simulated one.
    fn add_beside(&mut self, row: &Beside) {
        let name = format!("{} {}", row.program, row.system);
        let paper = match row.paper {
            Published::Value(value) | Published::AtLeast(value) => [Some(value), None],
            Published::Range(from, to) => [Some(from), Some(to)],
        };
        for value in paper.into_iter().flatten() {
            self.add("simulated", row.unit, format!("{name}, published"), value);
        }
        if let Some(value) = row.simulated {
            self.add("simulated", row.unit, name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> Outcome {
        let mut live = Report::new("table-5");
        live.row("linux", 10.0, "s", "");
        live.row("hawkeye", 8.0, "s", "");
        live.row("promoted", 100.0, "", "");
        Outcome {
            name: "table-5",
            side: Side::Live(live),
            took_s: 12.4,
        }
    }

    fn simulated(name: &'static str) -> Outcome {
        Outcome {
            name,
            side: Side::Simulated(PaperReport {
                name,
                shows: "fairness",
                figures: vec![Beside {
                    workload: "cg",
                    program: "cg",
                    system: "hawkeye-g",
                    unit: "s",
                    paper: Published::Value(9.0),
                    simulated: Some(8.9),
                    error_percent: Some(-1.1),
                }],
                notes: &[],
            }),
            took_s: 3.0,
        }
    }

    #[test]
    fn each_is_printed_with_the_time_it_took() {
        let text = live().to_string();
        assert!(text.starts_with("table-5\n"), "{text}");
        assert!(text.ends_with("\n  took 12 s\n"), "{text}");
        let text = simulated("table-5").to_string();
        assert!(text.starts_with("table-5: fairness\n"), "{text}");
        assert!(text.ends_with("\n  took 3 s\n"), "{text}");
    }

    #[test]
    fn a_simulated_side_beside_a_live_one_has_a_title_of_its_own() {
        assert_eq!(live().title(), "table-5");
        assert_eq!(simulated("table-5").title(), "table-5-simulated");
        assert_eq!(simulated("figure-11").title(), "figure-11");
    }

    #[test]
    fn a_panel_for_each_unit() {
        let titles = |outcome: Outcome| {
            let panels = outcome.figure().expect("has figures").panels;
            panels
                .into_iter()
                .map(|panel| panel.title)
                .collect::<Vec<_>>()
        };
        assert_eq!(titles(live()), ["measured, s", "measured"]);
        assert_eq!(titles(simulated("table-5")), ["simulated, s"]);
        let figure = simulated("table-5").figure().expect("has figures");
        assert!(figure.to_svg().expect("drawn").contains("published"));
        let none = Outcome {
            side: Side::Live(Report::new("table-5")),
            ..live()
        };
        assert_eq!(none.figure(), None);
    }
}
