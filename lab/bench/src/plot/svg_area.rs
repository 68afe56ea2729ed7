//! What all parts of a figure are drawn on and with.

use super::PlotError;
use plotters::coord::Shift;
use plotters::prelude::{DrawingArea, SVGBackend};

pub(super) const FONT: &str = "sans-serif";

pub(super) type SvgArea<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(super) fn drawing_error(error: impl std::fmt::Display) -> PlotError {
    PlotError(error.to_string())
}
