//! Distinguishes lines without colour.

use plotters::style::RGBColor;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkShape {
    Disc,
    Ring,
    Square,
    Triangle,
    Cross,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LineStyle {
    pub(super) colour: RGBColor,
    pub(super) mark: MarkShape,
    /// Lengths of dashes and gaps, in pixels; a gap of 0 gives a solid line.
    pub(super) dash: (i32, i32),
}

const MARKS: [MarkShape; 5] =
    [MarkShape::Disc, MarkShape::Triangle, MarkShape::Ring, MarkShape::Cross, MarkShape::Square];
const DASHES: [(i32, i32); 3] = [(1, 0), (8, 4), (2, 3)];
const GREYS: [u8; 2] = [0, 110];

/// The look of a figure's line with this index; 30 looks are distinct.
pub(super) fn line_style_of_index(number: usize) -> LineStyle {
    let grey = GREYS[number / DASHES.len() % GREYS.len()];
    LineStyle {
        colour: RGBColor(grey, grey, grey),
        mark: MARKS[number % MARKS.len()],
        dash: DASHES[number % DASHES.len()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_lines_look_different() {
        let looks: Vec<LineStyle> = (0..30).map(line_style_of_index).collect();
        for (number, one) in looks.iter().enumerate() {
            assert!(!looks[..number].contains(one), "{number}");
        }
    }
}
