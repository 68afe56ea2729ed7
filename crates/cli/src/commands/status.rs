//! `hawkeye status`: how the daemon's management stands.

use super::asking::{AskOptions, unexpected};
use crate::daemon::protocol::{DaemonStatus, PrezeroingStatus, Reply, Request};
use crate::summary::sizes;
use crate::view::{MemoryStatus, ProcessStatus};
use crate::words;
use anyhow::Result;
use clap::Args;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use std::fmt::{self, Write};
use std::process::ExitCode;

/// Show what the daemon manages, what it has done and what holds it back.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye status
  hawkeye status --json")]
pub struct Status {
    #[command(flatten)]
    options: AskOptions,
}

/// Processes and cgroups in the table; `--json` has more.
const MOST_ROWS: usize = 20;
const WIDTH: usize = 80;
/// Where the second column of the head begins.
const INDENT: usize = 12;

impl Status {
    /// Asks and prints.
    pub fn execute(self) -> Result<ExitCode> {
        let Reply::Status(status) = self.options.ask(Request::Status)? else {
            return Err(unexpected());
        };
        self.options
            .print(&*status, |status| Text(status).to_string())?;
        Ok(ExitCode::SUCCESS)
    }
}

struct Text<'a>(&'a DaemonStatus);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = &self.0.manager;
        writeln!(
            f,
            "hawkeye {}, policy {}, up {}{}",
            status.version,
            status.policy,
            words::duration(status.uptime_s),
            if status.paused { ", PAUSED" } else { "" }
        )?;
        let promotion = match (&status.held, status.paused) {
            (_, true) => "paused: `hawkeye resume` ends that",
            (Some(held), _) => held,
            (None, _) => "goes on",
        };
        row(f, "promotion", promotion)?;
        if let Some(memory) = &status.memory {
            write_memory(f, memory)?;
        }
        let totals = &status.totals;
        let done = format!(
            "promoted {}, split {}, recovered {}, {} samples",
            words::count(totals.promoted),
            words::count(totals.split),
            words::bytes(totals.recovered_bytes),
            words::count(totals.samples),
        );
        row(f, "done", &done)?;
        if totals.shared > 0 {
            let shared = words::count(totals.shared);
            let text = format!("{shared} times a region was passed over: others share its pages");
            row(f, "shared", &text)?;
        }
        if let Some(fill) = &self.0.fill {
            let filled = format!(
                "{} before it was touched, in {:.2} s of CPU; {} at most not touched yet, {} in vain",
                words::bytes(fill.filled * HUGE_PAGE_BYTES),
                fill.cpu_s,
                words::bytes(fill.ahead * HUGE_PAGE_BYTES),
                words::bytes(fill.unused * HUGE_PAGE_BYTES),
            );
            row(f, "filled", &filled)?;
        }
        if let Some(zeroing) = &self.0.prezeroing {
            row(f, "zeroed", &zeroed(zeroing))?;
        }
        if let Some(seen) = &self.0.page_sizes {
            row(f, "sizes", &sizes(seen))?;
        }
        let refused = totals.errors.iter();
        let refused: Vec<_> = refused
            .map(|(errno, n)| format!("{errno} {n} times"))
            .collect();
        if !refused.is_empty() {
            row(f, "refused", &refused.join(", "))?;
        }
        let own = format!(
            "{:.1} % of a core over the last minute, longest call {:.1} ms",
            status.manager_cpu_percent, status.longest_call_ms
        );
        row(f, "manager", &own)?;
        if status.not_answering > 0 {
            let text = format!(
                "{} of the managed processes: left alone until they answer (`hawkeye why PID`)",
                words::count(status.not_answering as u64)
            );
            row(f, "no answer", &text)?;
        }
        if let Some(address) = self.0.metrics {
            row(f, "metrics", &format!("http://{address}/metrics"))?;
        }
        if let Some(journal) = &self.0.journal {
            let mut text = journal.path.display().to_string();
            if journal.lost_entries > 0 {
                write!(
                    text,
                    "; {} entries lost",
                    words::count(journal.lost_entries)
                )?;
            }
            if let Some(trouble) = &journal.trouble {
                write!(text, "; it can't be written: {trouble}")?;
            }
            row(f, "journal", &text)?;
        }
        write_processes(f, &status.processes, status.managed)
    }
}

/// What the kernel has zeroed, and how fast it goes on.
fn zeroed(zeroing: &PrezeroingStatus) -> String {
    let bytes = |pages: u64| words::bytes(pages.saturating_mul(BASE_PAGE_BYTES));
    format!(
        "{} of {} free; {} served to who wanted zeros, {} to others, {} lost; {}",
        words::bytes(zeroing.free_zeroed_bytes),
        words::bytes(zeroing.free_bytes),
        bytes(zeroing.served_pages),
        bytes(zeroing.passed_over_pages),
        bytes(zeroing.lost_pages),
        zeroing.pace
    )
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, text: &str) -> fmt::Result {
    let width = INDENT - 2;
    let text = words::wrapped(&words::clipped(text, 1000), WIDTH - INDENT, 0);
    let text = text.replace('\n', &format!("\n{:INDENT$}", ""));
    writeln!(f, "  {name:width$}{text}")
}

fn write_memory(f: &mut fmt::Formatter<'_>, memory: &MemoryStatus) -> fmt::Result {
    let percent = |used: u64, total: u64| used as f64 * 100.0 / total.max(1) as f64;
    let mut text = format!(
        "{:.1} % of {} in use; recovery over {} %, until under {} %",
        percent(memory.used_bytes, memory.total_bytes),
        words::bytes(memory.total_bytes),
        memory.high_percent,
        memory.low_percent,
    );
    if let Some(pressure) = memory.pressure_percent.filter(|percent| *percent > 0.0) {
        write!(text, "; {pressure:.1} % of the time some task waits for it")?;
    }
    row(f, "memory", &text)?;
    for group in memory.groups.iter().take(MOST_ROWS) {
        let text = format!(
            "{:.1} % of {} in use by {}",
            percent(group.used_bytes, group.total_bytes),
            words::bytes(group.total_bytes),
            group.name
        );
        row(f, "  cgroup", &text)?;
    }
    Ok(())
}

fn write_processes(
    f: &mut fmt::Formatter<'_>,
    processes: &[ProcessStatus],
    managed: usize,
) -> fmt::Result {
    if processes.is_empty() {
        return writeln!(f, "No process is under management.");
    }
    let count = |number: u64| {
        // Seven digits fit.
        if number < 10_000_000 {
            number.to_string()
        } else {
            format!("{}M", number / 1_000_000)
        }
    };
    writeln!(
        f,
        "\n{:>8}  {:15} {:>8} {:>8}  {:>15} {:>7} {:>7}",
        "PID", "NAME", "RESIDENT", "HUGE", "OVERHEAD", "PROMOTE", "SPLIT"
    )?;
    for process in processes.iter().take(MOST_ROWS) {
        let overhead = process.overhead.map_or_else(
            || "-".to_owned(),
            |overhead| {
                let least = if overhead.at_least { ">= " } else { "" };
                format!("{least}{:.1} %", overhead.percent)
            },
        );
        writeln!(
            f,
            "{:>8}  {:15} {:>8} {:>8}  {overhead:>15} {:>7} {:>7}",
            process.pid,
            words::clipped(&process.name, 15),
            words::bytes(process.rss_bytes),
            words::bytes(process.huge_bytes),
            count(process.promoted),
            count(process.split),
        )?;
    }
    let more = managed.saturating_sub(MOST_ROWS.min(processes.len()));
    if more > 0 {
        writeln!(f, "and {more} smaller ones")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::protocol::{FillStatus, JournalStatus};
    use crate::view::GroupStatus;
    use crate::view::{Status as ManagerStatus, StatusTotals};
    use hawkeye_linux::page_sizes::{SizeSeen, SizesSeen};
    use hawkeye_policy::{Overhead, OverheadSource};

    #[test]
    fn a_status_fits_into_80_columns_whatever_is_in_it() {
        let process = ProcessStatus {
            pid: 4_194_303,
            name: "a\nname of fifteen".into(),
            rss_bytes: u64::MAX,
            huge_bytes: 1023 << 30,
            promoted: u64::MAX / 1_000_000,
            split: 9_999_999,
            overhead: Some(Overhead {
                at_least: true,
                ..Overhead::exact(100.0, OverheadSource::RunRate)
            }),
            ..ProcessStatus::default()
        };
        let status = DaemonStatus {
            manager: ManagerStatus {
                version: "0.1.0".into(),
                policy: "hawkeye".into(),
                held: Some("tasks waited for memory for so long that ".repeat(4)),
                memory: Some(MemoryStatus {
                    used_bytes: 9 << 30,
                    total_bytes: 10 << 30,
                    high_percent: 85.0,
                    low_percent: 70.0,
                    pressure_percent: Some(12.0),
                    groups: vec![GroupStatus {
                        name: "/a/cgroup/with".into(),
                        ..GroupStatus::default()
                    }],
                    ..MemoryStatus::default()
                }),
                totals: StatusTotals {
                    errors: [("EAGAIN".to_owned(), 3)].into(),
                    ..StatusTotals::default()
                },
                managed: 25,
                processes: vec![process; 22],
                ..ManagerStatus::default()
            },
            fill: Some(FillStatus {
                filled: 9_999,
                ahead: 100,
                unused: 100,
                cpu_s: 999.0,
                ..FillStatus::default()
            }),
            prezeroing: Some(PrezeroingStatus {
                served_pages: 1 << 30,
                free_bytes: 1023 << 30,
                pace: "nothing zeroes: `modprobe prezero` loads what does".into(),
                ..PrezeroingStatus::default()
            }),
            page_sizes: Some(SizesSeen {
                age_s: 1e6,
                complete: false,
                sizes: vec![
                    SizeSeen {
                        page_bytes: 1 << 20,
                        pages: 99_999_999,
                        given_on_machine: Some(999_999_999),
                    };
                    8
                ],
            }),
            slow_calls: 3,
            metrics: "127.0.0.1:9500".parse().ok(),
            journal: Some(JournalStatus {
                path: "/var/log/hawkeye/journal.jsonl".into(),
                lost_entries: 12,
                trouble: Some("No space left on device (os error 28)".into()),
            }),
        };
        let text = Text(&status).to_string();
        // A number of bytes that no machine has is the one thing that is too wide for its column.
        let text = text.replace("17179869184 GiB", "1024 GiB");
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        assert!(text.contains("promotion tasks waited"), "{text}");
        assert!(
            text.contains("zeroed    0 bytes of 1023 GiB free; 4096 GiB served"),
            "{text}"
        );
        assert!(text.contains(">= 100.0 %"), "{text}");
        assert!(text.ends_with("and 5 smaller ones\n"), "{text}");
        let empty = Text(&DaemonStatus::default()).to_string();
        assert!(
            empty.ends_with("No process is under management.\n"),
            "{empty}"
        );
        assert!(!empty.contains("zeroed"), "{empty}");
    }
}
