//! Results as a table.

mod page_sizes;

use super::run_result::RunResult;
use anyhow::Result;
use bytesize::ByteSize;
use hawkeye_sim::engine::ProgramOutcome;

const LEAST: usize = 12;

fn column_width<'a>(least: usize, texts: impl Iterator<Item = &'a str>) -> usize {
    let widths = texts.map(|text| text.chars().count());
    widths.fold(least, usize::max)
}

/// Rounded to a tenth; short times to a millisecond.
fn format_seconds(time_s: f64) -> String {
    let digits = if time_s < 10.0 { 3 } else { 1 };
    format!("{time_s:.digits$}")
}

fn format_bytes(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec_short().to_string()
}

/// Prints a line for each program of each run, and its pages if it had other pages than base and
/// huge ones.
pub fn print_result_tables(entries: &[RunResult]) -> Result<()> {
    print_program_rows(entries)?;
    page_sizes::print_page_size_table(entries)
}

fn print_program_rows(entries: &[RunResult]) -> Result<()> {
    let parameter = entries.first().map_or("", |entry| &entry.parameter);
    let values = entries.iter().map(|entry| entry.value.as_str());
    let varied = column_width(parameter.chars().count(), values);
    let workload = column_width(LEAST - 1, entries.iter().map(|e| e.run.workload.as_str()));
    let system = column_width(LEAST, entries.iter().map(|e| e.run.system.as_str()));
    let programs = entries.iter().flat_map(|e| e.run.figures.all_programs());
    let program = column_width(LEAST, programs.map(|program| program.name.as_str()));
    // The varied parameter, if there is one, has a column of its own.
    let before = |text: &str| match varied {
        0 => String::new(),
        varied => format!("{text:<varied$} "),
    };
    print_line!(
        "{}{:<workload$} {:<system$} {:<program$} {:>9} {:>8} {:>8} {:>10} {:>10} {:>10} {:>8} {:>7}",
        before(parameter),
        "workload",
        "system",
        "program",
        "time s",
        "speed-up",
        "overhead",
        "peak RSS",
        "peak huge",
        "faults",
        "promoted",
        "CPU s"
    );
    for entry in entries {
        let run = &entry.run;
        for (index, figures) in run.figures.all_programs().enumerate() {
            let same = |other: &&RunResult| {
                let alike = other.value == entry.value && other.run.workload == run.workload;
                alike && other.run.system == "linux-4k"
            };
            let base = entries.iter().find(same);
            let base = base.and_then(|base| base.run.figures.all_programs().nth(index));
            let ended = figures.outcome == ProgramOutcome::Done;
            let base = base.filter(|base| base.outcome == figures.outcome && ended);
            let speed_up =
                base.map_or("-".to_owned(), |base| format!("{:.2}", base.wall_s / figures.wall_s));
            print_line!(
                "{}{:<workload$} {:<system$} {:<program$} {:>9} {speed_up:>8} {:>6.1} % {:>10} {:>10} {:>10} {:>8} {:>7.2}{}",
                before(&entry.value),
                run.workload,
                run.system,
                figures.name,
                format_seconds(figures.wall_s),
                figures.overhead_percent,
                format_bytes(figures.rss_peak_bytes),
                format_bytes(figures.huge_peak_bytes),
                figures.faults,
                run.promoted,
                run.figures.manager_cpu_s,
                match figures.outcome {
                    ProgramOutcome::Done => "",
                    ProgramOutcome::Killed => "  killed: out of memory",
                    ProgramOutcome::Unfinished => "  unfinished",
                },
            );
        }
    }
    Ok(())
}
