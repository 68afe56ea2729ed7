//! What came of an experiment.

use crate::live::Report;
use crate::live::report::Managing;
use crate::plot::{Content, Figure, Panel};
use crate::simulated::paper::{PaperReport, Published};
use serde::Serialize;
use std::fmt;

/// Both sides of an experiment, as far as they were done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The experiment.
    pub name: &'static str,
    /// As measured here.
    pub live: Option<Report>,
    /// As simulated, beside what was published.
    pub simulated: Option<PaperReport>,
    /// How long all of it took, in seconds.
    pub took_s: f64,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(report) = &self.live {
            write!(f, "{report}")?;
        }
        match &self.simulated {
            Some(report) if self.live.is_some() => write!(f, "simulated {report}")?,
            Some(report) => write!(f, "{report}")?,
            None => {}
        }
        writeln!(f, "  took {:.0} s", self.took_s)
    }
}

impl Outcome {
    /// What managing took in it.
    pub fn managing(&self) -> Managing {
        self.live
            .as_ref()
            .map(|report| report.managing)
            .unwrap_or_default()
    }

    /// As the experiment has it drawn, then as bars, a panel for each unit; `None` where it has no figures.
    pub fn figure(&self) -> Option<Figure> {
        let mut bars = Bars::default();
        for row in self.live.iter().flat_map(|report| &report.rows) {
            bars.add("measured", row.unit, row.what.clone(), row.value);
        }
        for row in self.simulated.iter().flat_map(|report| &report.figures) {
            let name = format!("{} {}", row.program, row.system);
            let paper = match row.paper {
                Published::Value(value) | Published::AtLeast(value) => [Some(value), None],
                Published::Range(from, to) => [Some(from), Some(to)],
            };
            for value in paper.into_iter().flatten() {
                bars.add("simulated", row.unit, format!("{name}, published"), value);
            }
            if let Some(value) = row.simulated {
                bars.add("simulated", row.unit, name, value);
            }
        }
        let drawn = self.live.iter().flat_map(|report| &report.panels);
        let panels: Vec<Panel> = drawn.cloned().chain(bars.0).collect();
        (!panels.is_empty()).then(|| Figure {
            title: self.name.to_owned(),
            panels,
        })
    }
}

/// Panels so far.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::paper::Beside;

    fn outcome() -> Outcome {
        let mut live = Report::new("table-5");
        live.row("linux", 10.0, "s", "");
        live.row("hawkeye", 8.0, "s", "");
        live.row("promoted", 100.0, "", "");
        Outcome {
            name: "table-5",
            live: Some(live),
            simulated: Some(PaperReport {
                name: "table-5",
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
            took_s: 12.4,
        }
    }

    #[test]
    fn both_sides_are_printed() {
        let text = outcome().to_string();
        assert!(text.starts_with("table-5\n"), "{text}");
        assert!(text.contains("simulated table-5: fairness"), "{text}");
        assert!(text.ends_with("\n  took 12 s\n"), "{text}");
    }

    #[test]
    fn a_panel_for_each_side_and_unit() {
        let figure = outcome().figure().expect("has figures");
        let titles: Vec<_> = figure.panels.iter().map(|p| p.title.as_str()).collect();
        assert_eq!(titles, ["measured, s", "measured", "simulated, s"]);
        assert!(figure.to_svg().expect("drawn").contains("published"));
        let none = Outcome {
            live: None,
            simulated: None,
            ..outcome()
        };
        assert_eq!(none.figure(), None);
    }
}
