//! A report for a terminal, without colour.

use super::heat_map::HeatMap;
use super::recording_report::{ProcessFigures, RecordingReport};
use crate::text_format::{clip_printable, format_bytes, format_count, format_duration};
use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

const MOST_PROCESSES: usize = 20;
const MOST_KINDS: usize = 12;
/// Characters of the names of the machine, its kernel and its policy at most.
const MOST_NAME: usize = 64;
/// Columns and lines of a map.
const COLUMNS: usize = 60;
const LINES: usize = 20;
/// Shades from nothing to everything accessed; a space means that nothing is mapped.
const SHADES: [char; 9] = ['.', ':', '-', '=', '+', '*', '#', '%', '@'];

pub struct ReportText<'a>(pub &'a RecordingReport);

impl fmt::Display for ReportText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        write_heading(f, report)?;
        write_table(f, report)?;
        for process in &report.processes {
            if let Some(map) = process.map.as_ref().filter(|map| !map.is_empty()) {
                write_maps(f, process, map)?;
            }
        }
        write_decisions(f, report)
    }
}

fn write_heading(f: &mut fmt::Formatter<'_>, report: &RecordingReport) -> fmt::Result {
    let host = clip_printable(&report.host, MOST_NAME);
    write!(f, "{} of {host}", format_duration(report.length_s))?;
    if !report.kernel.is_empty() {
        write!(f, ", Linux {}", clip_printable(&report.kernel, MOST_NAME))?;
    }
    if let Some(began) = report.began_unix_s {
        let began = UNIX_EPOCH + Duration::from_secs_f64(began.max(0.0));
        write!(f, ", from {}", humantime::format_rfc3339_seconds(began))?;
    }
    match report.policy.as_str() {
        "none" => writeln!(f, "; nothing was changed.")?,
        policy => writeln!(f, "; policy {}.", clip_printable(policy, MOST_NAME))?,
    }
    if report.unfinished {
        writeln!(
            f,
            "The recording is unfinished: it still runs, or its last minute may be missing."
        )?;
    }
    if report.bad_rows > 0 {
        let bad = report.bad_rows;
        writeln!(f, "{bad} invalid rows were left out.")?;
    }
    Ok(())
}

fn percent_or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1} %"))
}

fn write_table(f: &mut fmt::Formatter<'_>, report: &RecordingReport) -> fmt::Result {
    writeln!(
        f,
        "\n{:>8} {:<15} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>6}",
        "PID",
        "COMMAND",
        "RSS",
        "PEAK",
        "HUGE",
        "BLOAT",
        "OVERHEAD",
        "COVERAGE",
        "WINDOWS",
        "PROMOTED",
        "SPLIT"
    )?;
    for process in report.processes.iter().take(MOST_PROCESSES) {
        let bloat = process.bloat_end_bytes.map(format_bytes);
        let coverage = process
            .coverage_mean_percent
            .filter(|_| has_coverage(process));
        writeln!(
            f,
            "{:>8} {:<15} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>6}",
            process.pid,
            clip_printable(&process.command, 15),
            format_bytes(process.rss_end_bytes),
            format_bytes(process.rss_peak_bytes),
            format_bytes(process.huge_end_bytes),
            bloat.as_deref().unwrap_or("-"),
            percent_or_dash(process.overhead_mean_percent),
            percent_or_dash(coverage),
            process.windows,
            process.promoted,
            process.recovered,
        )?;
    }
    let more = report.processes.len().saturating_sub(MOST_PROCESSES);
    if more > 0 {
        writeln!(f, "and {more} more")?;
    }
    Ok(())
}

/// Whether accessed pages were counted in the window, and not probed or taken from population.
fn has_coverage(process: &ProcessFigures) -> bool {
    !matches!(process.source.as_str(), "probed" | "population")
}

fn write_maps(f: &mut fmt::Formatter<'_>, process: &ProcessFigures, map: &HeatMap) -> fmt::Result {
    let name = format!("{} {}", process.pid, clip_printable(&process.command, 15));
    let most_walks = map.walks_per_s.iter().copied().max().unwrap_or(0);
    if has_coverage(process) {
        let source = &process.source;
        writeln!(
            f,
            "\nCoverage of {name}: base pages accessed in a sampling window ({source})"
        )?;
        write_map(f, map, &map.coverage_percent)?;
    } else if most_walks > 0 {
        let (most, memory) = (format_count(most_walks), format_bytes(map.row_bytes));
        writeln!(
            f,
            "\nPage walks of {name}: @ is {most} per second in {memory}, each lighter shade a third of the one before"
        )?;
        let cells = map.huge_percent.iter().zip(&map.walks_per_s);
        let shares =
            cells.map(|(there, walks)| there.map(|_| log_scaled_percent(*walks, most_walks)));
        write_map(f, map, &shares.collect::<Vec<_>>())?;
    }
    if map.huge_percent.iter().flatten().any(|share| *share > 0) {
        writeln!(f, "\nHuge pages of {name}: share of regions that are huge")?;
        write_map(f, map, &map.huge_percent)?;
    }
    Ok(())
}

/// Shade of `value` relative to `most`, 0-100, on a logarithmic scale: each of nine shades stands
/// for three times the one before.
fn log_scaled_percent(value: u64, most: u64) -> u8 {
    if value == 0 || most == 0 {
        return 0;
    }
    let below = (most as f64 / value as f64).ln() / 3f64.ln();
    let shades = SHADES.len() as f64;
    (((shades - 1.0 - below) / (shades - 1.0)).clamp(0.0, 1.0) * 100.0) as u8
}

/// Draws a map, highest addresses first, as in the paper's Figure 6.
fn write_map(f: &mut fmt::Formatter<'_>, map: &HeatMap, shades: &[Option<u8>]) -> fmt::Result {
    let (all_rows, lines) = (map.addresses.len(), map.addresses.len().min(LINES));
    let first = map.columns.first().map_or(0.0, |column| column.from_s);
    let last = map.columns.last().map_or(0.0, |column| column.to_s);
    let time = |place: usize| first + (last - first) * place as f64 / COLUMNS as f64;
    for line in (0..lines).rev() {
        let rows = line * all_rows / lines..(line + 1) * all_rows / lines;
        let address = map.addresses.get(rows.start).copied().unwrap_or(0);
        let cells = (0..COLUMNS).map(|place| {
            let (from, to) = (time(place), time(place + 1));
            let there = map.columns.iter().enumerate();
            let across = there.filter(|(_, column)| column.from_s < to && column.to_s > from);
            let cells = across.flat_map(|(c, _)| rows.clone().map(move |r| c * all_rows + r));
            let cells = cells.filter_map(|cell| Some(usize::from((*shades.get(cell)?)?)));
            let cells: Vec<usize> = cells.collect();
            let mean = cells.iter().sum::<usize>().checked_div(cells.len());
            mean.map_or(' ', |percent| {
                SHADES[(percent * SHADES.len() / 101).min(SHADES.len() - 1)]
            })
        });
        writeln!(f, "{address:>14x} |{}|", cells.collect::<String>())?;
    }
    let (from, to) = (format_duration(first), format_duration(last));
    let room = COLUMNS.saturating_sub(from.len());
    writeln!(f, "{:>14}  {from}{to:>room$}", "")
}

fn write_decisions(f: &mut fmt::Formatter<'_>, report: &RecordingReport) -> fmt::Result {
    let decisions = &report.decisions;
    if decisions.total == 0 {
        return Ok(());
    }
    writeln!(f, "\nDecisions: {}", format_count(decisions.total))?;
    for kind in decisions.kinds.iter().take(MOST_KINDS) {
        let (count, event, reason) = (format_count(kind.count), &kind.event, &kind.last_reason);
        let line = format!("{count:>9} {event:<12} {reason}");
        // The reason is our text, but it may contain names that users chose.
        writeln!(f, "{}", clip_printable(&line, 160))?;
    }
    Ok(())
}
