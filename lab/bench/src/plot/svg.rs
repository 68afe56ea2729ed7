//! Draws figures.

use super::axis::{Axis, format_three_digits, round_tick_values};
use super::bars;
use super::line_styles::{LineStyle, MarkShape, line_style_of_index};
use super::svg_area::{FONT, SvgArea, drawing_error};
use super::{PlotContent, PlotError, PlotFigure, PlotLine, PlotPanel};
use plotters::element::DashedPathElement;
use plotters::prelude::*;

const WIDTH: u32 = 900;
const PANEL_HEIGHT: u32 = 300;
const TITLE_HEIGHT: u32 = 34;
const MARKS: usize = 12;
const MARK_SIZE: i32 = 4;
/// Space above the highest value, for text.
const HEADROOM: f64 = 1.12;
const LEGEND_WIDTH: i32 = 170;

pub(super) fn draw_figure_as_svg(figure: &PlotFigure) -> Result<String, PlotError> {
    for panel in &figure.panels {
        check_panel_is_finite(panel)?;
    }
    let mut text = String::new();
    {
        let heights: Vec<u32> = figure.panels.iter().map(panel_height).collect();
        let height = TITLE_HEIGHT + heights.iter().sum::<u32>();
        let root = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE).map_err(drawing_error)?;
        // Pixel positions are relative to the whole picture.
        let canvas = root.clone();
        let mut rest = root.titled(&figure.title, (FONT, 20)).map_err(drawing_error)?;
        for (panel, height) in figure.panels.iter().zip(heights) {
            let (area, below) = rest.split_vertically(height);
            rest = below;
            let (x_label, across, lines) = match &panel.content {
                PlotContent::Bars(all) => {
                    bars::draw_bar_panel(panel, all, &area)?;
                    continue;
                }
                PlotContent::Lines { x_label, lines } => {
                    (x_label, HorizontalAxis::from_line_points(lines), lines)
                }
                PlotContent::Steps { x_label, names, lines } => {
                    (x_label, HorizontalAxis::from_names(names), lines)
                }
            };
            draw_line_panel(panel, (x_label, &across), lines, (&canvas, &area))?;
        }
        root.present().map_err(drawing_error)?;
    }
    Ok(text)
}

fn panel_height(panel: &PlotPanel) -> u32 {
    match &panel.content {
        PlotContent::Bars(all) => bars::bar_panel_height(all.len()),
        _ => PANEL_HEIGHT,
    }
}

fn check_panel_is_finite(panel: &PlotPanel) -> Result<(), PlotError> {
    let finite = match &panel.content {
        PlotContent::Bars(all) => all.iter().all(|(_, value)| value.is_finite()),
        PlotContent::Lines { lines, .. } | PlotContent::Steps { lines, .. } => {
            let mut points = lines.iter().flat_map(|line| &line.points);
            points.all(|(x, y)| x.is_finite() && y.is_finite())
        }
    };
    let refused = || PlotError(format!("{}: a value is not finite", panel.title));
    finite.then_some(()).ok_or_else(refused)
}

/// The end of an axis that starts at 0.
fn axis_maximum(values: impl Iterator<Item = f64>) -> f64 {
    let most = values.fold(0.0, f64::max);
    if most > 0.0 { most * HEADROOM } else { 1.0 }
}

struct HorizontalAxis {
    from: f64,
    to: f64,
    labels: Vec<(f64, String)>,
}

impl HorizontalAxis {
    fn from_line_points(lines: &[PlotLine]) -> Self {
        let places = || lines.iter().flat_map(|line| line.points.iter().map(|(x, _)| *x));
        let from = places().fold(0.0, f64::min);
        let to = places().fold(from, f64::max);
        let to = if to > from { to } else { from + 1.0 };
        let labels =
            round_tick_values(from, to, 8).into_iter().map(|x| (x, format_three_digits(x)));
        Self { from, to, labels: labels.collect() }
    }

    fn from_names(names: &[String]) -> Self {
        let labels = names.iter().enumerate().map(|(n, name)| (n as f64, name.clone()));
        Self {
            from: -0.2,
            to: names.len().saturating_sub(1) as f64 + 0.2,
            labels: labels.collect(),
        }
    }

    fn label_at(&self, at: f64) -> String {
        let found = self.labels.iter().find(|(x, _)| *x == at);
        found.map_or_else(String::new, |(_, label)| label.clone())
    }
}

fn draw_line_panel(
    panel: &PlotPanel,
    (x_label, across): (&str, &HorizontalAxis),
    lines: &[PlotLine],
    (canvas, area): (&SvgArea, &SvgArea),
) -> Result<(), PlotError> {
    let top = axis_maximum(lines.iter().flat_map(|line| line.points.iter().map(|(_, y)| *y)));
    let horizontal = Axis {
        from: across.from,
        to: across.to,
        labelled: across.labels.iter().map(|(x, _)| *x).collect(),
    };
    let vertical = Axis { from: 0.0, to: top, labelled: round_tick_values(0.0, top, 6) };
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, (FONT, 15))
        .margin(8)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .margin_right(LEGEND_WIDTH + 8)
        .build_cartesian_2d(horizontal, vertical)
        .map_err(drawing_error)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .x_label_formatter(&|x| across.label_at(*x))
        .y_label_formatter(&|y| format_three_digits(*y))
        .x_desc(x_label)
        .y_desc(&panel.y_label)
        .label_style((FONT, 12))
        .axis_desc_style((FONT, 13))
        .draw()
        .map_err(drawing_error)?;
    for (number, line) in lines.iter().enumerate() {
        let look = line_style_of_index(number);
        let style = look.colour.stroke_width(2);
        let points = || line.points.iter().copied();
        if look.dash.1 > 0 {
            let dashed = DashedLineSeries::new(points(), look.dash.0, look.dash.1, style);
            chart.draw_series(dashed).map_err(drawing_error)?;
        } else {
            chart.draw_series(LineSeries::new(points(), style)).map_err(drawing_error)?;
        }
        let every = line.points.len().div_ceil(MARKS).max(1);
        for point in points().step_by(every) {
            let place = chart.plotting_area().map_coordinate(&point);
            draw_mark(canvas, place, look)?;
        }
        let (_, corner) = area.get_pixel_range();
        let at = (WIDTH as i32 - LEGEND_WIDTH, corner.start + 40 + 18 * number as i32);
        draw_legend_entry(canvas, at, &line.name, look)?;
    }
    Ok(())
}

fn draw_mark(canvas: &SvgArea, (x, y): (i32, i32), look: LineStyle) -> Result<(), PlotError> {
    let (edge, full) = (look.colour.stroke_width(2), look.colour.filled());
    let (r, hollow) = (MARK_SIZE, [WHITE.filled(), edge]);
    match look.mark {
        MarkShape::Disc => canvas.draw(&Circle::new((x, y), r, full)),
        MarkShape::Ring => {
            hollow.into_iter().try_for_each(|style| canvas.draw(&Circle::new((x, y), r, style)))
        }
        MarkShape::Square => hollow.into_iter().try_for_each(|style| {
            canvas.draw(&Rectangle::new([(x - r, y - r), (x + r, y + r)], style))
        }),
        MarkShape::Triangle => canvas.draw(&TriangleMarker::new((x, y), r + 2, full)),
        MarkShape::Cross => canvas.draw(&Cross::new((x, y), r, edge)),
    }
    .map_err(drawing_error)
}

fn draw_legend_entry(
    canvas: &SvgArea,
    (x, y): (i32, i32),
    name: &str,
    look: LineStyle,
) -> Result<(), PlotError> {
    let ends = [(x, y), (x + 36, y)];
    let style = look.colour.stroke_width(2);
    if look.dash.1 > 0 {
        let line = DashedPathElement::new(ends, look.dash.0, look.dash.1, style);
        canvas.draw(&line).map_err(drawing_error)?;
    } else {
        canvas.draw(&PathElement::new(ends, style)).map_err(drawing_error)?;
    }
    draw_mark(canvas, (x + 18, y), look)?;
    let label = Text::new(name.to_owned(), (x + 44, y - 6), (FONT, 12));
    canvas.draw(&label).map_err(drawing_error)
}
