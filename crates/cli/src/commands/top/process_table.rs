//! Rows of processes, 80 columns wide.

use super::sort_order::{SortColumn, SortOrder, huge_percent_of_resident};
use crate::text_format::{clip_printable, format_bytes, format_count};
use crate::view::{ManagerStatus, ProcessStatus};

/// Width of the mark of the chosen row, to the left of the first column.
const MARK: usize = 1;
/// Width of a name, with the mark of a process that has shared memory.
const NAME: usize = 16;

/// The columns with their widths; rows can be sorted by each.
const COLUMNS: [(SortColumn, &str, usize); 9] = [
    (SortColumn::Pid, "PID", 7),
    (SortColumn::Name, "NAME", NAME + 1),
    (SortColumn::Overhead, "OVERHEAD", 9),
    (SortColumn::Gain, "GAIN", 8),
    (SortColumn::Resident, "RSS", 9),
    (SortColumn::Huge, "HUGE", 6),
    (SortColumn::Bloat, "BLOAT", 8),
    (SortColumn::Promoted, "PROM/S", 8),
    (SortColumn::Split, "SPL/S", 7),
];

/// The column `by` columns to the right (negative: left); at the edge, the last one.
pub fn neighbour_column(column: SortColumn, by: isize) -> SortColumn {
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
            SortColumn::Name => format!(" {name:<NAME$}"),
            _ => format!("{name:>width$}"),
        };
    }
    line
}

pub fn process_row_line(process: &ProcessStatus) -> String {
    let mut line = " ".repeat(MARK);
    for (column, _, width) in COLUMNS {
        line += &match column {
            SortColumn::Name => {
                let mark = if process.shared_bytes > 0 { "*" } else { "" };
                format!(" {:<NAME$}", clip_printable(&process.name, NAME - 1) + mark)
            }
            _ => format!("{:>width$}", cell_text(process, column)),
        };
    }
    line
}

fn cell_text(process: &ProcessStatus, column: SortColumn) -> String {
    let percent = |percent: f64| format!("{percent:.1} %");
    let none = || "-".to_owned();
    let per_s = |rate: f64| if rate > 0.0 { format!("{rate:.1}") } else { none() };
    match column {
        SortColumn::Pid => process.pid.to_string(),
        SortColumn::Name => process.name.clone(),
        SortColumn::Overhead => process.overhead.map_or_else(none, |overhead| {
            let least = if overhead.at_least { ">=" } else { "" };
            least.to_owned() + &percent(overhead.percent)
        }),
        SortColumn::Gain => process.gain_percent.map_or_else(none, percent),
        SortColumn::Resident => format_bytes(process.rss_bytes),
        SortColumn::Huge => {
            huge_percent_of_resident(process).map_or_else(none, |share| format!("{share:.0} %"))
        }
        SortColumn::Bloat if process.bloat_bytes == 0 => none(),
        SortColumn::Bloat => format_bytes(process.bloat_bytes),
        SortColumn::Promoted => per_s(process.pace.promoted_per_s),
        SortColumn::Split => per_s(process.pace.split_per_s),
    }
}

pub fn unlisted_processes_note(status: &ManagerStatus) -> Option<String> {
    let more = status.managed.saturating_sub(status.processes.len());
    let count = format_count(more as u64);
    (more > 0).then(|| format!("and {count} more with less resident memory"))
}
