//! Maps of shares, the darker the more.

use super::axis::Axis;
use super::canvas::{Drawing, FONT, LEGEND_WIDTH, failed};
use super::ticks::{shown, ticks};
use super::{Heat, Panel, PlotError};
use plotters::prelude::*;

/// Shades that are told apart.
const SHADES: f64 = 16.0;
/// Nothing of something is not as white as nothing at all.
const LIGHTEST: f64 = 232.0;

fn grey(share: f64) -> RGBColor {
    let step = (share.clamp(0.0, 1.0) * SHADES).round() / SHADES;
    let value = (LIGHTEST * (1.0 - step)).round() as u8;
    RGBColor(value, value, value)
}

/// Draws one into its panel's place, with the scale beside it.
pub(super) fn draw(panel: &Panel, heat: &Heat, area: &Drawing) -> Result<(), PlotError> {
    let from = heat.edges.first().copied().unwrap_or(0.0);
    let to = heat.edges.last().copied().filter(|to| *to > from);
    let to = to.unwrap_or(from + 1.0);
    let rows = heat.cells.iter().map(Vec::len).max().unwrap_or(0).max(1) as f64;
    let places = heat.labels.iter().map(|(place, _)| *place).collect();
    let label = |place: &f64| {
        let found = heat.labels.iter().find(|(at, _)| at == place);
        found.map_or_else(String::new, |(_, label)| label.clone())
    };
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, (FONT, 15))
        .margin(8)
        .margin_right(LEGEND_WIDTH + 8)
        .x_label_area_size(40)
        .y_label_area_size(120)
        .build_cartesian_2d(
            Axis::new(from, to, ticks(from, to, 8)),
            Axis::new(0.0, rows, places),
        )
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_label_formatter(&|x| shown(*x))
        .y_label_formatter(&label)
        .x_desc(&heat.x_label)
        .y_desc(&panel.y_label)
        .label_style((FONT, 12))
        .axis_desc_style((FONT, 13))
        .draw()
        .map_err(failed)?;
    for (column, edges) in heat.cells.iter().zip(heat.edges.windows(2)) {
        let [left, right] = edges else { continue };
        let mut row = 0;
        while let Some(cell) = column.get(row) {
            // Neighbours of one shade are one rectangle.
            let shade = cell.map(grey);
            let alike = column.iter().skip(row);
            let alike = alike.take_while(|c| c.map(grey) == shade).count();
            if let Some(shade) = shade {
                let corners = [(*left, row as f64), (*right, (row + alike) as f64)];
                let cell = Rectangle::new(corners, shade.filled());
                chart.draw_series([cell]).map_err(failed)?;
            }
            row += alike;
        }
    }
    scale(area)
}

/// What the shades mean.
fn scale(area: &Drawing) -> Result<(), PlotError> {
    let (width, _) = area.dim_in_pixel();
    let x = width as i32 - LEGEND_WIDTH + 8;
    for step in 0..=4 {
        let (share, y) = (f64::from(step) / 4.0, 46 + 18 * step);
        let square = Rectangle::new([(x, y), (x + 24, y + 14)], grey(share).filled());
        area.draw(&square).map_err(failed)?;
        let text = Text::new(
            format!("{:.0} %", share * 100.0),
            (x + 32, y + 1),
            (FONT, 12),
        );
        area.draw(&text).map_err(failed)?;
    }
    Ok(())
}
