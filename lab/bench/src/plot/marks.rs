//! Distinguishes lines without colour.

use plotters::style::RGBColor;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Disc,
    Ring,
    Square,
    Triangle,
    Cross,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Look {
    pub(super) colour: RGBColor,
    pub(super) mark: Mark,
    /// Lengths of dashes and gaps, in pixels; a gap of 0 gives a solid line.
    pub(super) dash: (i32, i32),
}

const MARKS: [Mark; 5] = [
    Mark::Disc,
    Mark::Triangle,
    Mark::Ring,
    Mark::Cross,
    Mark::Square,
];
const DASHES: [(i32, i32); 3] = [(1, 0), (8, 4), (2, 3)];
const GREYS: [u8; 2] = [0, 110];

/// The look of a figure's line with this index; 30 looks are distinct.
pub(super) fn look(number: usize) -> Look {
    let grey = GREYS[number / DASHES.len() % GREYS.len()];
    Look {
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
        let looks: Vec<Look> = (0..30).map(look).collect();
        for (number, one) in looks.iter().enumerate() {
            assert!(!looks[..number].contains(one), "{number}");
        }
    }
}
