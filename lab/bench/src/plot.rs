//! Figures as SVG: bars and lines, with units on the axes. Marks, dashes and names distinguish
//! lines, so that they can be read in greyscale too.
//!
//! ```text
//!  PlotFigure --> svg: one panel below the other --+--> bars
//!  (PlotPanel,                                     `--> line_styles: marks and dashes
//!   PlotContent)                                          axis: labels at round values
//! ```
//!
//! The types in this file are what callers fill in, without drawing anything. Read [`PlotContent`]
//! first, then [`PlotFigure::to_svg`].

mod axis;
mod bars;
mod line_styles;
mod svg;
mod svg_area;

use serde::Serialize;
use thiserror::Error;

/// Panels, one below the other.
#[derive(Clone, Debug, PartialEq)]
pub struct PlotFigure {
    /// What the figure shows.
    pub title: String,
    /// At least one.
    pub panels: Vec<PlotPanel>,
}

/// One plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlotPanel {
    /// What the plot shows.
    pub title: String,
    /// What the vertical axis shows, with its unit. It begins at 0.
    pub y_label: String,
    /// Its bars or lines.
    pub content: PlotContent,
}

/// The content of a plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlotContent {
    /// A bar for each name.
    Bars(Vec<(String, f64)>),
    /// Lines over numbers.
    Lines {
        /// What the horizontal axis shows, with its unit.
        x_label: String,
        /// The lines.
        lines: Vec<PlotLine>,
    },
    /// Lines over names at equal distances: the horizontal value of a point is the index of its
    /// name.
    Steps {
        /// What the horizontal axis shows.
        x_label: String,
        /// The names on it.
        names: Vec<String>,
        /// The lines.
        lines: Vec<PlotLine>,
    },
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlotLine {
    /// Its name in the legend.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// Each distinct item once, in the order of first appearance.
pub fn distinct_in_order<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// A figure that can't be drawn.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("drawing the figure: {0}")]
pub struct PlotError(String);

impl PlotPanel {
    /// Lines over time.
    pub fn lines_over_time(title: impl Into<String>, y_label: &str, lines: Vec<PlotLine>) -> Self {
        Self {
            title: title.into(),
            y_label: y_label.to_owned(),
            content: PlotContent::Lines { x_label: "time (s)".to_owned(), lines },
        }
    }
}

impl PlotFigure {
    /// The text of an SVG file.
    ///
    /// # Errors
    /// A value is not finite.
    pub fn to_svg(&self) -> Result<String, PlotError> {
        svg::draw_figure_as_svg(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(content: PlotContent) -> PlotFigure {
        PlotFigure {
            title: "random".to_owned(),
            panels: vec![PlotPanel {
                title: "time".to_owned(),
                y_label: "time (s)".to_owned(),
                content,
            }],
        }
    }

    fn line(name: &str, points: &[(f64, f64)]) -> PlotLine {
        PlotLine { name: name.to_owned(), points: points.to_vec() }
    }

    #[test]
    fn every_name_and_unit_is_in_the_picture() {
        let bars =
            [("linux", 12.0), ("hawkeye", 9.5)].map(|(name, value)| (name.to_owned(), value));
        let bars = PlotContent::Bars(bars.to_vec());
        let svg = figure(bars).to_svg().expect("drawn");
        for text in ["linux", "hawkeye", "time (s)", "12.0", "9.50", "random"] {
            assert!(svg.contains(text), "{text}");
        }
        let lines = vec![line("linux", &[(0.0, 1.0), (1.0, 3.0)]), line("hawkeye", &[(0.0, 1.0)])];
        let steps = PlotContent::Steps {
            x_label: "machine.memory".to_owned(),
            names: vec!["4GiB".to_owned(), "8GiB".to_owned()],
            lines,
        };
        let svg = figure(steps).to_svg().expect("drawn");
        for text in ["4GiB", "8GiB", "machine.memory", "linux", "hawkeye"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn figures_have_no_colour() {
        let lines = (0..9).map(|n| line(&n.to_string(), &[(0.0, f64::from(n)), (5.0, 1.0)]));
        let content = PlotContent::Lines { x_label: "time (s)".to_owned(), lines: lines.collect() };
        let svg = figure(content).to_svg().expect("drawn");
        let colours = svg.split('#').skip(1).filter_map(|rest| rest.get(..6));
        let colours = colours.filter(|c| c.chars().all(|c| c.is_ascii_hexdigit()));
        for colour in colours {
            assert!(colour[..2] == colour[2..4] && colour[2..4] == colour[4..], "{colour}");
        }
    }

    #[test]
    fn empty_and_flat_lines_are_drawn_and_nan_is_refused() {
        for points in [&[][..], &[(0.0, 0.0)], &[(3.0, 0.0), (3.0, 0.0)]] {
            let content = PlotContent::Lines {
                x_label: "time (s)".to_owned(),
                lines: vec![line("a", points)],
            };
            assert!(figure(content).to_svg().is_ok());
        }
        assert!(figure(PlotContent::Bars(Vec::new())).to_svg().is_ok());
        let nan = PlotContent::Bars(vec![("a".to_owned(), f64::NAN)]);
        assert!(figure(nan).to_svg().is_err());
    }
}
