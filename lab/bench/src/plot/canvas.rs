//! What all kinds of figures are drawn on.

use super::PlotError;
use plotters::coord::Shift;
use plotters::prelude::*;

/// Beside lines, on the right.
pub(super) const LEGEND_WIDTH: i32 = 170;
pub(super) const FONT: &str = "sans-serif";

pub(super) type Drawing<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(super) fn failed(error: impl std::fmt::Display) -> PlotError {
    PlotError(error.to_string())
}
