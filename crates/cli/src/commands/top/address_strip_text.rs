//! An address space as one line of characters.

use super::theme::Theme;
use crate::text_format::{BARS, format_count};
use crate::view::{AddressStrip, AddressStripColumn};
use hawkeye_policy::{CoverageSource, PAGES_PER_REGION};

pub const LEGEND: &str =
    "H huge, h partly huge, + accessed, may be promoted, . other; | after a gap";

/// Draws a strip: the title of its second line, then three lines with one character per column.
/// They show how much is accessed, what is huge, and where gaps and the chosen column are.
pub fn strip_rows(strip: &AddressStrip, chosen: Option<usize>, look: &Theme) -> [String; 4] {
    let walked = strip.columns.iter().any(|column| column.walks_per_s > 0);
    let walks = |column: &AddressStripColumn| {
        let not_huge = column.regions.saturating_sub(column.huge);
        column.walks_per_s as f64 / not_huge.max(1) as f64
    };
    let most = strip.columns.iter().map(walks).fold(0.0, f64::max);
    let pages = |column: &AddressStripColumn| {
        let all = column.regions * u64::from(PAGES_PER_REGION);
        column.accessed_pages as f64 / all.max(1) as f64
    };
    let heat = |column: &AddressStripColumn| match walked {
        true => shade_char(walks(column) / most, look),
        false => shade_char(pages(column), look),
    };
    let marks = strip.columns.iter().enumerate().map(|(n, column)| {
        match (chosen == Some(n), column.after_gap) {
            (true, _) => '^',
            (false, true) => '|',
            (false, false) => ' ',
        }
    });
    let heat_is = match (walked, strip.source) {
        (true, _) => "page walks, relative to the column with the most",
        (false, Some(CoverageSource::Population)) => {
            "base pages present (this kernel shows no accesses)"
        }
        (false, _) => "base pages accessed in the last window",
    };
    [
        heat_is.to_owned(),
        strip.columns.iter().map(heat).collect(),
        strip.columns.iter().map(huge_state_char).collect(),
        marks.collect(),
    ]
}

fn huge_state_char(column: &AddressStripColumn) -> char {
    if column.huge == column.regions {
        'H'
    } else if column.huge > 0 {
        'h'
    } else if column.candidates > 0 {
        '+'
    } else {
        '.'
    }
}

/// A share (0-1) as one character. Only 0 is drawn as empty.
fn shade_char(share: f64, look: &Theme) -> char {
    const DIGITS: [char; 11] = [' ', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'];
    let shades: &[char] = if look.unicode { &BARS } else { &DIGITS };
    let steps = shades.len() - 1;
    let step = (share.clamp(0.0, 1.0) * steps as f64).ceil() as usize;
    shades[step.min(steps)]
}

pub fn describe_strip_column(column: &AddressStripColumn) -> String {
    let place = match (column.start, column.end) {
        (Some(start), Some(end)) => format!("{start:#x}-{end:#x}: "),
        _ => String::new(),
    };
    let all = (column.regions * u64::from(PAGES_PER_REGION)).max(1) as f64;
    let percent = |pages: u64| pages as f64 * 100.0 / all;
    let regions = match column.regions {
        1 => "1 region".to_owned(),
        n => format!("{n} regions"),
    };
    let mut text = format!(
        "{place}{regions}, {} huge, {} to be promoted; {:.0} % present, {:.0} % accessed",
        column.huge,
        column.candidates,
        percent(column.present_pages),
        percent(column.accessed_pages),
    );
    if column.shared_memory > 0 {
        text += &format!("; {} of shared memory", column.shared_memory);
    }
    if column.walks_per_s > 0 {
        text += &format!("; {} page walks/s of base pages", format_count(column.walks_per_s));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_zero_is_drawn_as_empty_and_a_whole_share_as_full() {
        let look = |unicode| Theme { colour: false, unicode };
        let shades = |unicode| -> String {
            let shares = [0.0, 0.001, 0.5, 1.0, 7.0, f64::NAN];
            shares.iter().map(|share| shade_char(*share, &look(unicode))).collect()
        };
        assert_eq!(shades(true), " ▁▄██ ");
        assert_eq!(shades(false), " 0499 ");
    }
}
