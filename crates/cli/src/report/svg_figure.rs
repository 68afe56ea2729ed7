//! Panels with lines or a map over time, as SVG. Dashes and names distinguish the lines, so that
//! they are readable in greyscale too.

const WIDTH: f64 = 900.0;
const TITLE_HEIGHT: f64 = 34.0;
const PANEL_HEIGHT: f64 = 300.0;
/// Margins of a panel: the labels of the vertical axis are on the left, the legend is on the right.
const LEFT: f64 = 134.0;
const RIGHT: f64 = 180.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 46.0;
/// Upper end of the vertical axis, relative to the highest value.
const HEADROOM: f64 = 1.12;
const TIME: &str = "time (s)";
/// Style of each line: its shade, and the lengths of its dashes and gaps.
const LINE_STYLES: [(&str, &str); 4] =
    [("#000000", ""), ("#606060", "8 4"), ("#909090", "2 3"), ("#404040", "12 3 2 3")];

#[derive(Clone, Debug, PartialEq)]
pub struct SvgFigure {
    pub title: String,
    /// The panels, with the same time axis.
    pub panels: Vec<SvgPanel>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SvgPanel {
    pub title: &'static str,
    /// Label of the vertical axis, with its unit.
    pub y_label: &'static str,
    pub content: PanelContent,
}

#[derive(Clone, Debug, PartialEq)]
pub enum PanelContent {
    /// Lines; the vertical axis begins at 0.
    Lines(Vec<SvgLineSeries>),
    /// Shares as shades of grey.
    Heat(HeatPlot),
}

#[derive(Clone, Debug, PartialEq)]
pub struct SvgLineSeries {
    pub name: &'static str,
    /// Points from left to right: seconds and value.
    pub points: Vec<(f64, f64)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct HeatPlot {
    /// Starts of the columns, in seconds, and the end of the last one.
    pub edges: Vec<f64>,
    /// Labels of the vertical axis with their positions: the first row is from 0 to 1.
    pub labels: Vec<(f64, String)>,
    /// By column, and by row from below within a column: 0-1, `None` where there is nothing.
    pub cells: Vec<Vec<Option<f64>>>,
}

impl SvgFigure {
    pub fn to_svg(&self) -> String {
        let height = TITLE_HEIGHT + PANEL_HEIGHT * self.panels.len() as f64;
        let mut svg = format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12">
<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>
"##
        );
        add_text(&mut svg, (WIDTH / 2.0, 22.0), 20, "middle", &self.title);
        for (number, panel) in self.panels.iter().enumerate() {
            let top = TITLE_HEIGHT + PANEL_HEIGHT * number as f64;
            match &panel.content {
                PanelContent::Lines(lines) => panel.draw_lines(&mut svg, top, lines),
                PanelContent::Heat(heat) => panel.draw_heat_plot(&mut svg, top, heat),
            }
        }
        svg + "</svg>\n"
    }
}

struct PlotArea {
    /// Upper edge, in pixels.
    top: f64,
    /// Seconds at the left and the right edge.
    from_s: f64,
    to_s: f64,
    /// Value at the upper edge; the lower edge is 0.
    most: f64,
}

impl PlotArea {
    const HEIGHT: f64 = PANEL_HEIGHT - TOP - BOTTOM;
    const RIGHT_END: f64 = WIDTH - RIGHT;

    fn new(top: f64, seconds: impl Iterator<Item = f64> + Clone, most: f64) -> Self {
        let seconds = seconds.filter(|s| s.is_finite());
        let from_s = seconds.clone().fold(f64::INFINITY, f64::min).min(0.0);
        let to_s = seconds.fold(from_s, f64::max);
        Self {
            top: top + TOP,
            from_s,
            to_s: if to_s > from_s { to_s } else { from_s + 1.0 },
            most: if most > 0.0 { most } else { 1.0 },
        }
    }

    fn x_at_seconds(&self, seconds: f64) -> f64 {
        LEFT + (seconds - self.from_s) / (self.to_s - self.from_s) * (Self::RIGHT_END - LEFT)
    }

    fn y_at_value(&self, value: f64) -> f64 {
        self.top + Self::HEIGHT * (1.0 - value / self.most)
    }

    fn draw_axes(&self, svg: &mut String, panel: &SvgPanel, labels: &[(f64, String)]) {
        let bottom = self.top + Self::HEIGHT;
        for (value, label) in labels {
            let y = self.y_at_value(*value);
            add_svg_line(svg, [(LEFT, y), (Self::RIGHT_END, y)], "#dddddd");
            add_text(svg, (LEFT - 6.0, y + 4.0), 12, "end", label);
        }
        for second in tick_values(self.from_s, self.to_s, 8) {
            let x = self.x_at_seconds(second);
            add_svg_line(svg, [(x, bottom), (x, bottom + 4.0)], "#000000");
            add_text(svg, (x, bottom + 17.0), 12, "middle", &number_text(second));
        }
        let corner = (LEFT, bottom);
        add_svg_line(svg, [(LEFT, self.top), corner], "#000000");
        add_svg_line(svg, [corner, (Self::RIGHT_END, bottom)], "#000000");
        let middle = (LEFT + Self::RIGHT_END) / 2.0;
        add_text(svg, (middle, self.top - 10.0), 15, "middle", panel.title);
        add_text(svg, (middle, bottom + 35.0), 13, "middle", TIME);
        let (y, label) = (self.top + Self::HEIGHT / 2.0, escape_xml(panel.y_label));
        *svg += &format!(
            r#"<text x="16" y="{y:.1}" font-size="13" text-anchor="middle" transform="rotate(-90 16 {y:.1})">{label}</text>"#
        );
        svg.push('\n');
    }
}

impl SvgPanel {
    fn draw_lines(&self, svg: &mut String, top: f64, lines: &[SvgLineSeries]) {
        let points = || lines.iter().flat_map(|line| line.points.iter().copied());
        let values = points().map(|(_, value)| value);
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max) * HEADROOM;
        let plot = PlotArea::new(top, points().map(|(at, _)| at), most);
        let labels = tick_values(0.0, plot.most, 6).into_iter();
        let labels: Vec<_> = labels.map(|value| (value, number_text(value))).collect();
        plot.draw_axes(svg, self, &labels);
        let styles = LINE_STYLES.iter().cycle();
        for ((number, line), (shade, dashes)) in lines.iter().enumerate().zip(styles) {
            let style = format!(
                r#"fill="none" stroke="{shade}" stroke-width="2" stroke-dasharray="{dashes}""#
            );
            let finite = |(at, value): &&(f64, f64)| at.is_finite() && value.is_finite();
            let finite = line.points.iter().filter(finite);
            let place =
                |(at, value): &(f64, f64)| (plot.x_at_seconds(*at), plot.y_at_value(*value));
            let points = finite.map(place).map(|(x, y)| format!("{x:.1},{y:.1} "));
            let points = points.collect::<String>();
            let y = plot.top + 10.0 + 18.0 * number as f64;
            let (x, end) = (PlotArea::RIGHT_END + 12.0, PlotArea::RIGHT_END + 48.0);
            for points in [points, format!("{x},{y} {end},{y}")] {
                *svg += &format!("<polyline points=\"{points}\" {style}/>\n");
            }
            add_text(svg, (x + 44.0, y + 4.0), 12, "start", line.name);
        }
    }

    fn draw_heat_plot(&self, svg: &mut String, top: f64, heat: &HeatPlot) {
        let rows = heat.cells.iter().map(Vec::len).max().unwrap_or(0);
        let plot = PlotArea::new(top, heat.edges.iter().copied(), rows as f64);
        plot.draw_axes(svg, self, &heat.labels);
        for (edges, cells) in heat.edges.windows(2).zip(&heat.cells) {
            let (left, right) = (plot.x_at_seconds(edges[0]), plot.x_at_seconds(edges[1]));
            for (row, share) in cells.iter().enumerate() {
                let Some(share) = share.filter(|share| share.is_finite()) else { continue };
                let (low, high) = (plot.y_at_value(row as f64), plot.y_at_value(row as f64 + 1.0));
                let (width, height, shade) = (right - left, low - high, grey_shade(share));
                *svg += &format!(
                    r#"<rect x="{left:.1}" y="{high:.1}" width="{width:.1}" height="{height:.1}" fill="{shade}" shape-rendering="crispEdges"/>"#
                );
                svg.push('\n');
            }
        }
        for (number, percent) in [0, 25, 50, 75, 100].into_iter().enumerate() {
            let (x, y) = (PlotArea::RIGHT_END + 12.0, plot.top + 18.0 * number as f64);
            let shade = grey_shade(f64::from(percent) / 100.0);
            *svg += &format!(
                r##"<rect x="{x}" y="{y}" width="24" height="14" fill="{shade}" stroke="#000000"/>"##
            );
            svg.push('\n');
            add_text(svg, (x + 32.0, y + 11.0), 12, "start", &format!("{percent} %"));
        }
    }
}

/// The shade of a share; 1 is black.
fn grey_shade(share: f64) -> String {
    let shade = ((1.0 - share.clamp(0.0, 1.0)) * 232.0).round() as u8;
    format!("#{shade:02x}{shade:02x}{shade:02x}")
}

fn add_svg_line(svg: &mut String, [(x1, y1), (x2, y2)]: [(f64, f64); 2], shade: &str) {
    *svg +=
        &format!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{shade}"/>"#);
    svg.push('\n');
}

fn add_text(svg: &mut String, (x, y): (f64, f64), size: u32, anchor: &str, words: &str) {
    let words = escape_xml(words);
    *svg += &format!(
        r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" text-anchor="{anchor}">{words}</text>"#
    );
    svg.push('\n');
}

fn escape_xml(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Round numbers from `from` to `to`, about `about` of them.
fn tick_values(from: f64, to: f64, about: u32) -> Vec<f64> {
    let step = (to - from) / f64::from(about);
    let power = 10f64.powf(step.log10().floor());
    let round = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = round.into_iter().find(|round| *round >= step).unwrap_or(10.0 * power);
    let first = (from / step).ceil();
    let last = (to / step).floor();
    let count = (last - first).clamp(0.0, 100.0) as u32;
    (0..=count).map(|n| (first + f64::from(n)) * step).collect()
}

fn number_text(value: f64) -> String {
    format!("{value:.3}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(content: PanelContent) -> String {
        let figure = SvgFigure {
            title: "a <program> & more".to_owned(),
            panels: vec![SvgPanel { title: "memory", y_label: "memory (MiB)", content }],
        };
        figure.to_svg()
    }

    #[test]
    fn every_name_and_unit_is_in_the_picture() {
        let line =
            |name: &'static str| SvgLineSeries { name, points: vec![(0.0, 1.0), (10.0, 400.0)] };
        let svg = figure(PanelContent::Lines(vec![line("resident"), line("huge pages")]));
        for text in ["resident", "huge pages", "memory (MiB)", TIME, ">400<"] {
            assert!(svg.contains(text), "{text} is missing");
        }
        assert!(svg.contains("a &lt;program&gt; &amp; more"));
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<polyline").count(), 4);
    }

    #[test]
    fn a_map_shows_shares_and_leaves_gaps() {
        let svg = figure(PanelContent::Heat(HeatPlot {
            edges: vec![0.0, 1.0, 4.0],
            labels: vec![(0.5, "7f0000000000".to_owned())],
            cells: vec![vec![Some(0.0), Some(1.0)], vec![None, Some(0.5)]],
        }));
        for text in ["7f0000000000", "100 %", "#000000", "#747474"] {
            assert!(svg.contains(text), "{text} is missing in {svg}");
        }
        // The background, three cells, and the five shades of the legend.
        assert_eq!(svg.matches("<rect").count(), 9);
    }

    #[test]
    fn points_are_drawn_at_their_values() {
        let plot = PlotArea::new(0.0, [0.0, 10.0].into_iter(), 50.0);
        assert_eq!((plot.x_at_seconds(0.0), plot.x_at_seconds(10.0)), (LEFT, PlotArea::RIGHT_END));
        assert_eq!((plot.y_at_value(50.0), plot.y_at_value(0.0)), (TOP, TOP + PlotArea::HEIGHT));
    }

    #[test]
    fn empty_flat_and_invalid_values_are_drawn_as_finite_numbers() {
        let nonsense = [(f64::NAN, 1.0), (1.0, f64::INFINITY)];
        for points in [&[][..], &[(0.0, 0.0)], &[(3.0, 0.0), (3.0, 0.0)], &nonsense] {
            let svg = figure(PanelContent::Lines(vec![SvgLineSeries {
                name: "a",
                points: points.to_vec(),
            }]));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        let nothing = HeatPlot { edges: Vec::new(), labels: Vec::new(), cells: Vec::new() };
        assert!(!figure(PanelContent::Heat(nothing)).contains("NaN"));
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(tick_values(0.0, 10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(tick_values(0.0, 0.7, 6), [0.0, 0.2, 0.4, 0.6000000000000001]);
        assert_eq!([number_text(0.25), number_text(40.0), number_text(0.0)], ["0.25", "40", "0"]);
    }
}
