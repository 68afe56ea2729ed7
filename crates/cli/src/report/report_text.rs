//! A report for a terminal, without colour.

use super::decisions::Decisions;
use super::heat_map::HeatMap;
use super::memory_by_kind::MemoryByKind;
use super::recording_report::{ProcessFigures, RecordingReport};
use crate::text_format::{
    clip_printable, format_bytes, format_count, format_duration, format_shared_memory,
};
use hawkeye_policy::SampledMemory;
use std::time::{Duration, UNIX_EPOCH};

const MOST_PROCESSES: usize = 20;
const MOST_KINDS: usize = 12;
/// Processes named for each file of shared memory at most.
const MOST_MAPPERS: usize = 8;
/// Characters of the names of the machine, its kernel and its policy at most.
const MOST_NAME: usize = 64;
/// Columns and lines of a map.
const COLUMNS: usize = 60;
const LINES: usize = 20;
/// Shades from nothing to everything accessed; a space means that nothing is mapped.
const SHADES: [char; 9] = ['.', ':', '-', '=', '+', '*', '#', '%', '@'];

pub fn report_text(report: &RecordingReport) -> String {
    let mut out = report_heading(report);
    push_process_table(&mut out, report);
    push_memory_by_kind(&mut out, &report.memory);
    for process in &report.processes {
        if let Some(map) = process.map.as_ref().filter(|map| !map.is_empty()) {
            push_process_maps(&mut out, process, map);
        }
    }
    push_decision_counts(&mut out, &report.decisions);
    out
}

fn report_heading(report: &RecordingReport) -> String {
    let name = |text: &str| clip_printable(text, MOST_NAME);
    let mut text = format!("{} of {}", format_duration(report.length_s), name(&report.host));
    if !report.kernel.is_empty() {
        text += &format!(", Linux {}", name(&report.kernel));
    }
    if let Some(began) = report.began_unix_s {
        let began = UNIX_EPOCH + Duration::from_secs_f64(began.max(0.0));
        text += &format!(", from {}", humantime::format_rfc3339_seconds(began));
    }
    text += &match report.policy.as_str() {
        "none" => "; HawkEye promoted nothing.\n".to_owned(),
        policy => format!("; policy {}.\n", name(policy)),
    };
    if report.unfinished {
        text += "The recording is unfinished: it still runs, or its last minute may be missing.\n";
    }
    if report.bad_rows > 0 {
        text += &format!("{} invalid rows were left out.\n", report.bad_rows);
    }
    text
}

fn push_process_table(out: &mut String, report: &RecordingReport) {
    let percent = |value: Option<f64>| value.map(|percent| format!("{percent:.1} %"));
    let known = |text: Option<String>| text.unwrap_or("-".to_owned());
    let head = [
        "PID", "COMMAND", "RSS", "PEAK", "HUGE", "BLOAT", "OVERHEAD", "COVERAGE", "WINDOWS",
        "PROMOTED", "SPLIT",
    ];
    let cells = |process: &ProcessFigures| {
        let coverage = process.coverage_mean_percent.filter(|_| has_window_coverage(process));
        [
            process.pid.to_string(),
            clip_printable(&process.command, 15),
            format_bytes(process.rss_end_bytes),
            format_bytes(process.rss_peak_bytes),
            format_bytes(process.huge_end_bytes),
            known(process.bloat_end_bytes.map(format_bytes)),
            known(percent(process.overhead_mean_percent)),
            known(percent(coverage)),
            process.windows.to_string(),
            process.promoted.to_string(),
            process.recovered.to_string(),
        ]
    };
    out.push('\n');
    let rows = report.processes.iter().take(MOST_PROCESSES).map(cells);
    for row in std::iter::once(head.map(str::to_owned)).chain(rows) {
        let [pid, command, rest @ ..] = row;
        let [rss, peak, huge, bloat, overhead, coverage, windows, promoted, split] = rest;
        *out += &format!("{pid:>8} {command:<15} {rss:>9} {peak:>9} {huge:>9} {bloat:>9} ");
        *out += &format!("{overhead:>8} {coverage:>8} {windows:>8} {promoted:>8} {split:>6}\n");
    }
    let more = report.processes.len().saturating_sub(MOST_PROCESSES) + report.processes_left_out;
    if more > 0 {
        *out += &format!("and {more} more\n");
    }
}

/// Says nothing of a recording without shared memory, where all figures are of private memory.
fn push_memory_by_kind(out: &mut String, memory: &MemoryByKind) {
    let (shared, left_out) = (&memory.shared, memory.shared_regions_left_out);
    if shared.files == 0 && left_out == 0 {
        return;
    }
    let text = |memory: SampledMemory| {
        let [resident, huge] = [memory.resident_bytes, memory.huge_bytes].map(format_bytes);
        format!("{resident}, {huge} of it huge")
    };
    *out += "\nMemory of sampled regions at the end; each part of a file counts once\n";
    *out += &format!("  private  {}\n", text(memory.private));
    *out += &format!("  shared   {}\n", format_shared_memory(shared));
    for file in &memory.files {
        let (device, inode) = (&file.device, file.inode);
        let named = file.pids.iter().take(MOST_MAPPERS).map(u32::to_string);
        let mut mappers = named.collect::<Vec<_>>().join(", ");
        if let more @ 1.. = file.pids.len().saturating_sub(MOST_MAPPERS) {
            mappers += &format!(" and {more} more");
        }
        let text = text(file.memory);
        *out += &format!("  file     {text}: device {device}, inode {inode}, of {mappers}\n");
    }
    if left_out > 0 {
        let regions = format_count(left_out);
        *out += &format!("  not counted: {regions} further regions of shared memory\n");
    }
}

/// Whether accessed pages were counted in the window, and not probed or taken from population.
fn has_window_coverage(process: &ProcessFigures) -> bool {
    !matches!(process.source.as_str(), "probed" | "population")
}

fn push_process_maps(out: &mut String, process: &ProcessFigures, map: &HeatMap) {
    let name = format!("{} {}", process.pid, clip_printable(&process.command, 15));
    let most_walks = map.walks_per_s.iter().copied().max().unwrap_or(0);
    if has_window_coverage(process) {
        let pages = format!("base pages accessed in a sampling window ({})", process.source);
        *out += &format!("\nCoverage of {name}: {pages}\n");
        push_shaded_map(out, map, &map.coverage_percent);
    } else if most_walks > 0 {
        let (most, memory) = (format_count(most_walks), format_bytes(map.row_bytes));
        *out += &format!(
            "\nPage walks of {name}: @ is {most} per second in {memory}, each lighter shade a third of the one before\n"
        );
        let cells = map.huge_percent.iter().zip(&map.walks_per_s);
        let share = |walks: u64| log_scaled_percent(walks, most_walks);
        let shares = cells.map(|(there, walks)| there.map(|_| share(*walks)));
        push_shaded_map(out, map, &shares.collect::<Vec<_>>());
    }
    if map.huge_percent.iter().flatten().any(|share| *share > 0) {
        *out += &format!("\nHuge pages of {name}: share of regions that are huge\n");
        push_shaded_map(out, map, &map.huge_percent);
    }
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
fn push_shaded_map(out: &mut String, map: &HeatMap, shades: &[Option<u8>]) {
    let (all_rows, lines) = (map.addresses.len(), map.addresses.len().min(LINES));
    let first = map.columns.first().map_or(0.0, |column| column.from_s);
    let last = map.columns.last().map_or(0.0, |column| column.to_s);
    let time = |place: usize| first + (last - first) * place as f64 / COLUMNS as f64;
    let shade = |percent: usize| SHADES[(percent * SHADES.len() / 101).min(SHADES.len() - 1)];
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
            cells.iter().sum::<usize>().checked_div(cells.len()).map_or(' ', shade)
        });
        *out += &format!("{address:>14x} |{}|\n", cells.collect::<String>());
    }
    let (from, to) = (format_duration(first), format_duration(last));
    let room = COLUMNS.saturating_sub(from.len());
    *out += &format!("{:>14}  {from}{to:>room$}\n", "");
}

fn push_decision_counts(out: &mut String, decisions: &Decisions) {
    if decisions.total > 0 {
        *out += &format!("\nDecisions: {}\n", format_count(decisions.total));
    }
    for kind in decisions.kinds.iter().take(MOST_KINDS) {
        let (count, event, reason) = (format_count(kind.count), &kind.event, &kind.last_reason);
        // The reason is our text, but it may contain names that users chose.
        *out += &clip_printable(&format!("{count:>9} {event:<12} {reason}"), 160);
        out.push('\n');
    }
}
