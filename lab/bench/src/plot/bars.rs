//! Bars, one below the other, so that each has room for its name.

use super::axis::format_three_digits;
use super::svg_area::{FONT, SvgArea, drawing_error};
use super::{PlotError, PlotPanel};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const ROW_HEIGHT: i32 = 20;
const BAR_HEIGHT: i32 = 12;
/// Space above the bars for the title and the unit.
const ABOVE: i32 = 46;
const BELOW: i32 = 12;
/// The wider half of the letters in a 12 pixel font is at most this wide.
const LETTER_WIDTH: i32 = 7;
/// Space for a value beside its bar.
const VALUE_WIDTH: i32 = 60;
const MARGIN: i32 = 8;

pub(super) fn bar_panel_height(bars: usize) -> u32 {
    (ABOVE + BELOW) as u32 + ROW_HEIGHT as u32 * bars as u32
}

pub(super) fn draw_bar_panel(
    panel: &PlotPanel,
    bars: &[(String, f64)],
    area: &SvgArea,
) -> Result<(), PlotError> {
    let width = area.dim_in_pixel().0 as i32;
    let text = |text: &str, at, size, horizontal| {
        let style = TextStyle::from((FONT, size)).pos(Pos::new(horizontal, VPos::Center));
        area.draw(&Text::new(text.to_owned(), at, style)).map_err(drawing_error)
    };
    text(&panel.title, (width / 2, 16), 15, HPos::Center)?;
    let letters = bars.iter().map(|(name, _)| name.chars().count()).max();
    let names_end = MARGIN + letters.unwrap_or(0) as i32 * LETTER_WIDTH;
    // Names may not take the whole width.
    let names_end = names_end.min(width * 2 / 3);
    let least = bars.iter().map(|(_, value)| *value).fold(0.0, f64::min);
    let most = bars.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let span = if most > least { most - least } else { 1.0 };
    // A bar to the left of zero has its value on its left.
    let from = names_end + MARGIN + if least < 0.0 { VALUE_WIDTH } else { 0 };
    let room = f64::from((width - from - VALUE_WIDTH - MARGIN).max(1));
    let at = |value: f64| from + ((value - least) / span * room).round() as i32;
    text(&panel.y_label, (at(0.0), ABOVE - 10), 13, HPos::Left)?;
    for (row, (name, value)) in bars.iter().enumerate() {
        let middle = ABOVE + ROW_HEIGHT * row as i32 + ROW_HEIGHT / 2;
        text(name, (names_end, middle), 12, HPos::Right)?;
        let corners = [
            (at(value.min(0.0)), middle - BAR_HEIGHT / 2),
            (at(value.max(0.0)), middle + BAR_HEIGHT / 2),
        ];
        for style in [RGBColor(150, 150, 150).filled(), BLACK.stroke_width(1)] {
            area.draw(&Rectangle::new(corners, style)).map_err(drawing_error)?;
        }
        let (beside, side) = match *value < 0.0 {
            true => (at(*value) - 4, HPos::Right),
            false => (at(*value) + 4, HPos::Left),
        };
        text(&format_three_digits(*value), (beside, middle), 12, side)?;
    }
    let zero = [(at(0.0), ABOVE), (at(0.0), ABOVE + ROW_HEIGHT * bars.len() as i32)];
    area.draw(&PathElement::new(zero, BLACK)).map_err(drawing_error)
}
