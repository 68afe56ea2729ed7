//! Constants and drawing helpers of all kinds of figures.

use super::PlotError;
use plotters::coord::Shift;
use plotters::prelude::*;

/// Width of the legend on the right of lines.
pub(super) const LEGEND_WIDTH: i32 = 170;
pub(super) const FONT: &str = "sans-serif";

pub(super) type Drawing<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(super) fn failed(error: impl std::fmt::Display) -> PlotError {
    PlotError(error.to_string())
}
