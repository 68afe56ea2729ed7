//! Figures as SVG: bars, lines and maps, units on the axes. Told apart by marks, dashes and names, so that they can be read in
//! greyscale too.

mod axis;
mod bars;
mod canvas;
mod heat;
mod marks;
mod svg;
mod ticks;

use serde::Serialize;
use thiserror::Error;

/// Panels below each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// What is shown.
    pub title: String,
    /// One at the least.
    pub panels: Vec<Panel>,
}

/// One plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Panel {
    /// What is shown.
    pub title: String,
    /// What the vertical axis shows, with its unit. It begins at 0.
    pub y_label: String,
    /// What is in it.
    pub content: Content,
}

/// What is in a plot.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// A bar for each name.
    Bars(Vec<(String, f64)>),
    /// Lines over numbers.
    Lines {
        /// What the horizontal axis shows, with its unit.
        x_label: String,
        /// The lines.
        lines: Vec<Line>,
    },
    /// Lines over names, equally far apart: the horizontal place of a point is its name's number.
    Steps {
        /// What the horizontal axis shows.
        x_label: String,
        /// Its names.
        names: Vec<String>,
        /// The lines.
        lines: Vec<Line>,
    },
    /// Shares over two axes, as shades of grey.
    Heat(Heat),
}

/// Shares over columns and rows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Heat {
    /// What the horizontal axis shows, with its unit.
    pub x_label: String,
    /// Where columns begin, and where the last one ends.
    pub edges: Vec<f64>,
    /// What is written at the vertical axis, and where: the first row is from 0 to 1.
    pub labels: Vec<(f64, String)>,
    /// By column, within it by row from below: 0-1, `None` where there is nothing.
    pub cells: Vec<Vec<Option<f64>>>,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// A figure that can't be drawn.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the figure can't be drawn: {0}")]
pub struct PlotError(String);

impl Figure {
    /// As the text of an SVG file.
    ///
    /// # Errors
    /// A value that is not finite.
    pub fn to_svg(&self) -> Result<String, PlotError> {
        svg::draw(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(content: Content) -> Figure {
        Figure {
            title: "random".to_owned(),
            panels: vec![Panel {
                title: "time".to_owned(),
                y_label: "time (s)".to_owned(),
                content,
            }],
        }
    }

    fn line(name: &str, points: &[(f64, f64)]) -> Line {
        Line {
            name: name.to_owned(),
            points: points.to_vec(),
        }
    }

    #[test]
    fn every_name_and_unit_is_in_the_picture() {
        let bars = Content::Bars(vec![
            ("linux".to_owned(), 12.0),
            ("hawkeye".to_owned(), 9.5),
        ]);
        let svg = figure(bars).to_svg().expect("drawn");
        for text in ["linux", "hawkeye", "time (s)", "12.0", "9.50", "random"] {
            assert!(svg.contains(text), "{text}");
        }
        let lines = vec![
            line("linux", &[(0.0, 1.0), (1.0, 3.0)]),
            line("hawkeye", &[(0.0, 1.0)]),
        ];
        let steps = Content::Steps {
            x_label: "machine.memory".to_owned(),
            names: vec!["4GiB".to_owned(), "8GiB".to_owned()],
            lines,
        };
        let svg = figure(steps).to_svg().expect("drawn");
        for text in ["4GiB", "8GiB", "machine.memory", "linux", "hawkeye"] {
            assert!(svg.contains(text), "{text}");
        }
        let map = Content::Heat(Heat {
            x_label: "since the start (s)".to_owned(),
            edges: vec![0.0, 1.0, 4.0],
            labels: vec![(0.5, "7f0000000000".to_owned())],
            cells: vec![vec![Some(0.0), Some(1.0)], vec![None, Some(0.5)]],
        });
        let svg_of_map = figure(map).to_svg().expect("drawn");
        for text in [
            "7f0000000000",
            "since the start (s)",
            "100 %",
            "#000000",
            "#747474",
        ] {
            assert!(svg_of_map.contains(text), "{text} of {svg_of_map}");
        }
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn figures_have_no_colour() {
        let lines = (0..9).map(|n| line(&n.to_string(), &[(0.0, f64::from(n)), (5.0, 1.0)]));
        let content = Content::Lines {
            x_label: "time (s)".to_owned(),
            lines: lines.collect(),
        };
        let svg = figure(content).to_svg().expect("drawn");
        let colours = svg.split('#').skip(1).filter_map(|rest| rest.get(..6));
        let colours = colours.filter(|c| c.chars().all(|c| c.is_ascii_hexdigit()));
        for colour in colours {
            assert!(
                colour[..2] == colour[2..4] && colour[2..4] == colour[4..],
                "{colour}"
            );
        }
    }

    #[test]
    fn nothing_and_flat_lines_are_drawn_and_nonsense_is_refused() {
        for points in [&[][..], &[(0.0, 0.0)], &[(3.0, 0.0), (3.0, 0.0)]] {
            let content = Content::Lines {
                x_label: "time (s)".to_owned(),
                lines: vec![line("a", points)],
            };
            assert!(figure(content).to_svg().is_ok());
        }
        assert!(figure(Content::Bars(Vec::new())).to_svg().is_ok());
        assert!(
            figure(Content::Bars(vec![("a".to_owned(), f64::NAN)]))
                .to_svg()
                .is_err()
        );
    }
}
