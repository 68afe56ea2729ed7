//! The outcome of an experiment.

use crate::live::report::Managing;
use crate::live::{EXPERIMENTS, Report};
use crate::name::Name;
use crate::plot::{Content, Figure, Panel};
use crate::simulated::paper::{Beside, PaperReport, Published};
use serde::Serialize;
use std::fmt;

/// The outcome of one side of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The experiment.
    pub name: Name,
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
        title(self.name, matches!(self.side, Side::Live(_)))
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

pub(super) fn title(name: Name, is_live: bool) -> String {
    let is_second = !is_live && EXPERIMENTS.iter().any(|live| live.name == name);
    let side = if is_second { "-simulated" } else { "" };
    format!("{}{side}", name.name)
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

    const FAIRNESS: Name = Name::of("fairness", "table-5");

    fn live() -> Outcome {
        let mut live = Report::new(FAIRNESS);
        live.row("linux", 10.0, "s", "");
        live.row("hawkeye", 8.0, "s", "");
        live.row("promoted", 100.0, "", "");
        Outcome {
            name: FAIRNESS,
            side: Side::Live(live),
            took_s: 12.4,
        }
    }

    fn simulated(name: Name) -> Outcome {
        Outcome {
            name,
            side: Side::Simulated(PaperReport {
                name,
                shows: "equal shares",
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
    fn each_is_printed_with_both_names_and_its_duration() {
        let text = live().to_string();
        assert!(text.starts_with("fairness (table-5)\n"), "{text}");
        assert!(text.ends_with("\n  took 12 s\n"), "{text}");
        let text = simulated(FAIRNESS).to_string();
        assert!(
            text.starts_with("fairness (table-5): equal shares\n"),
            "{text}"
        );
        assert!(text.ends_with("\n  took 3 s\n"), "{text}");
    }

    #[test]
    fn json_has_the_alias_as_its_name() {
        let json = serde_json::to_value(simulated(FAIRNESS)).expect("JSON");
        assert_eq!(
            (&json["name"], &json["simulated"]["name"]),
            (&"table-5".into(), &"table-5".into())
        );
        assert_eq!(
            serde_json::to_value(Name::from("bloat")).expect("JSON"),
            "bloat"
        );
    }

    #[test]
    fn a_simulated_side_beside_a_live_one_has_a_separate_title() {
        assert_eq!(live().title(), "fairness");
        assert_eq!(simulated(FAIRNESS).title(), "fairness-simulated");
        assert_eq!(simulated("npb-speedup".into()).title(), "npb-speedup");
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
        assert_eq!(titles(simulated(FAIRNESS)), ["simulated, s"]);
        let figure = simulated(FAIRNESS).figure().expect("has figures");
        assert!(figure.to_svg().expect("drawn").contains("published"));
        let none = Outcome {
            side: Side::Live(Report::new(FAIRNESS)),
            ..live()
        };
        assert_eq!(none.figure(), None);
    }
}
