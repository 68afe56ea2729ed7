//! Results as a table.

use super::output::Entry;
use bytesize::ByteSize;
use hawkeye_sim::engine::Outcome;

/// Prints a line for each program of each run.
pub fn print(entries: &[Entry]) {
    let parameter = entries.first().map_or("", |entry| &entry.parameter);
    let widths = entries.iter().map(|entry| entry.value.chars().count());
    let width = widths.max().unwrap_or(0).max(parameter.chars().count());
    // What was varied has a column of its own, where anything was.
    let before = |text: &str| match width {
        0 => String::new(),
        width => format!("{text:<width$} "),
    };
    println!(
        "{}{:<11} {:<12} {:<12} {:>9} {:>8} {:>8} {:>10} {:>10} {:>10} {:>8} {:>7}",
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
        for (index, program) in run.figures.all_programs().enumerate() {
            let same = |other: &&Entry| {
                let alike = other.value == entry.value && other.run.workload == run.workload;
                alike && other.run.system == "linux-4k"
            };
            let base = entries.iter().find(same);
            let base = base.and_then(|base| base.run.figures.all_programs().nth(index));
            let ended = program.outcome == Outcome::Done;
            let base = base.filter(|base| base.outcome == program.outcome && ended);
            let speed_up = base.map_or("-".to_owned(), |base| {
                format!("{:.2}", base.wall_s / program.wall_s)
            });
            let bytes = |bytes: u64| ByteSize::b(bytes).display().iec_short().to_string();
            println!(
                "{}{:<11} {:<12} {:<12} {:>9.1} {speed_up:>8} {:>6.1} % {:>10} {:>10} {:>10} {:>8} {:>7.2}{}",
                before(&entry.value),
                run.workload,
                run.system,
                program.name,
                program.wall_s,
                program.overhead_percent,
                bytes(program.rss_peak_bytes),
                bytes(program.huge_peak_bytes),
                program.faults,
                run.promoted,
                run.figures.manager_cpu_s,
                match program.outcome {
                    Outcome::Done => "",
                    Outcome::Killed => "  killed: out of memory",
                    Outcome::Unfinished => "  unfinished",
                },
            );
        }
    }
}
