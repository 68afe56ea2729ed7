//! Rows of processes, 80 columns wide.

use super::sort_order::{SortBy, SortOrder, huge_percent};
use crate::text_format::{clip_printable, format_bytes, format_count};
use crate::view::{ManagerStatus, ProcessStatus};

/// Width of the mark of the chosen row, to the left of the first column.
const MARK: usize = 1;
const NAME: usize = 15;

/// The columns with their widths; rows can be sorted by each.
const COLUMNS: [(SortBy, &str, usize); 9] = [
    (SortBy::Pid, "PID", 7),
    (SortBy::Name, "NAME", NAME + 1),
    (SortBy::Overhead, "OVERHEAD", 10),
    (SortBy::Gain, "GAIN", 8),
    (SortBy::Resident, "RSS", 9),
    (SortBy::Huge, "HUGE", 6),
    (SortBy::Bloat, "BLOAT", 8),
    (SortBy::Promoted, "PROM/S", 8),
    (SortBy::Split, "SPL/S", 7),
];

/// The column `by` columns to the right (negative: left); at the edge, the last one.
pub fn neighbour_column(column: SortBy, by: isize) -> SortBy {
    let at = (column as usize).saturating_add_signed(by);
    COLUMNS[at.min(COLUMNS.len() - 1)].0
}

pub fn header_line(order: SortOrder) -> String {
    let mut line = " ".repeat(MARK);
    for (column, name, width) in COLUMNS {
        let mark = match (column == order.by, order.descending) {
            (false, _) => "",
            (true, true) => "v",
            (true, false) => "^",
        };
        let name = format!("{name}{mark}");
        line += &match column {
            SortBy::Name => format!(" {name:<NAME$}"),
            _ => format!("{name:>width$}"),
        };
    }
    line
}

pub fn process_line(process: &ProcessStatus) -> String {
    let mut line = " ".repeat(MARK);
    for (column, _, width) in COLUMNS {
        line += &match column {
            SortBy::Name => format!(" {:<NAME$}", clip_printable(&process.name, NAME)),
            _ => format!("{:>width$}", cell_text(process, column)),
        };
    }
    line
}

fn cell_text(process: &ProcessStatus, column: SortBy) -> String {
    let percent = |percent: f64| format!("{percent:.1} %");
    let none = || "-".to_owned();
    let per_s = |rate: f64| match rate > 0.0 {
        true => format!("{rate:.1}"),
        false => none(),
    };
    match column {
        SortBy::Pid => process.pid.to_string(),
        SortBy::Name => process.name.clone(),
        SortBy::Overhead => process.overhead.map_or_else(none, |overhead| {
            let least = if overhead.at_least { ">=" } else { "" };
            least.to_owned() + &percent(overhead.percent)
        }),
        SortBy::Gain => process.gain_percent.map_or_else(none, percent),
        SortBy::Resident => format_bytes(process.rss_bytes),
        SortBy::Huge => huge_percent(process).map_or_else(none, |share| format!("{share:.0} %")),
        SortBy::Bloat if process.bloat_bytes == 0 => none(),
        SortBy::Bloat => format_bytes(process.bloat_bytes),
        SortBy::Promoted => per_s(process.pace.promoted_per_s),
        SortBy::Split => per_s(process.pace.split_per_s),
    }
}

pub fn unlisted_note(status: &ManagerStatus) -> Option<String> {
    let more = status.managed.saturating_sub(status.processes.len());
    let count = format_count(more as u64);
    (more > 0).then(|| format!("and {count} more with less resident memory"))
}
