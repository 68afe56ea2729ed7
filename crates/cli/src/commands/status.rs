//! `hawkeye status`: shows the state of the daemon's management.

use super::client::{ClientOptions, unexpected_reply};
use crate::daemon::protocol::{DaemonRequest, DaemonStatus, PrezeroingStatus, Reply};
use crate::summary::page_sizes_text;
use crate::text_format;
use crate::view::{MemoryStatus, ProcessStatus, ReserveStatus};
use anyhow::Result;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use std::fmt::{self, Write};
use std::process::ExitCode;

/// Rows of processes and of cgroups at most; `--json` has more.
const MOST_ROWS: usize = 20;
const WIDTH: usize = 80;
/// Column at which the second column of the head begins.
const INDENT: usize = 12;

pub fn execute(options: &ClientOptions) -> Result<ExitCode> {
    let Reply::Status(status) = options.request(DaemonRequest::Status)? else {
        return Err(unexpected_reply());
    };
    options.print(&*status, |status| StatusText(status).to_string())?;
    Ok(ExitCode::SUCCESS)
}

struct StatusText<'a>(&'a DaemonStatus);

impl fmt::Display for StatusText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = &self.0.manager;
        let (version, policy) = (&status.version, &status.policy);
        let up = text_format::duration(status.uptime_s);
        let paused = if status.paused { ", PAUSED" } else { "" };
        writeln!(f, "hawkeye {version}, policy {policy}, up {up}{paused}")?;
        let promotion = match (&status.held, status.paused) {
            (_, true) => "paused; `hawkeye resume` resumes it",
            (Some(held), _) => held,
            (None, _) => "active",
        };
        write_row(f, "promotion", promotion)?;
        for wait in &status.budget_waits {
            write_row(f, "waits", &wait.to_string())?;
        }
        if let Some(memory) = &status.memory {
            write_memory(f, memory)?;
        }
        let totals = &status.totals;
        let [promoted, split, samples] =
            [totals.promoted, totals.split, totals.samples].map(text_format::count);
        let recovered = text_format::bytes(totals.recovered_bytes);
        let done =
            format!("promoted {promoted}, split {split}, recovered {recovered}, {samples} samples");
        write_row(f, "done", &done)?;
        if totals.shared > 0 {
            let shared = text_format::count(totals.shared);
            let text =
                format!("a region was passed over {shared} times: other processes share its pages");
            write_row(f, "shared", &text)?;
        }
        if let Some(fill) = &self.0.fill {
            let bytes = |regions: u64| text_format::bytes(regions * HUGE_PAGE_BYTES);
            let [filled, ahead, unused] = [fill.filled, fill.ahead, fill.unused].map(bytes);
            let text = format!(
                "{filled}, in {:.2} s of CPU time; at most {ahead} not touched yet, at most {unused} unused",
                fill.cpu_s
            );
            write_row(f, "prefault", &text)?;
        }
        if status.reserve.filled > 0 {
            write_row(f, "reserve", &reserve_text(&status.reserve))?;
        }
        if let Some(zeroing) = &self.0.prezeroing {
            write_row(f, "zeroed", &zeroing_text(zeroing))?;
        }
        if let Some(seen) = &self.0.page_sizes {
            write_row(f, "sizes", &page_sizes_text(seen))?;
        }
        if !totals.errors.is_empty() {
            write_row(f, "refused", &text_format::errors(&totals.errors))?;
        }
        let (cpu, longest) = (status.manager_cpu_percent, status.longest_call_ms);
        let over = match status.uptime_s.ceil() {
            seconds if seconds < 60.0 => format!("{} s", seconds.max(1.0)),
            _ => "minute".to_owned(),
        };
        let own =
            format!("{cpu:.1} % of a core over the last {over}, longest call {longest:.1} ms");
        write_row(f, "manager", &own)?;
        if let Some(pid) = self.0.pid {
            let config = match &self.0.config_file {
                Some(path) => format!("configuration {}", path.display()),
                None => "no configuration file".to_owned(),
            };
            write_row(f, "daemon", &format!("pid {pid}, {config}"))?;
        }
        if status.not_answering > 0 {
            let text = format!(
                "{} of the managed processes; each is left alone until it answers (`hawkeye why PID`)",
                text_format::count(status.not_answering as u64)
            );
            write_row(f, "no answer", &text)?;
        }
        if let Some(address) = self.0.metrics {
            write_row(f, "metrics", &format!("http://{address}/metrics"))?;
        }
        if let Some(journal) = &self.0.journal {
            let mut text = journal.path.display().to_string();
            if journal.lost_entries > 0 {
                let lost = text_format::count(journal.lost_entries);
                write!(text, "; {lost} entries lost")?;
            }
            if let Some(trouble) = &journal.trouble {
                write!(text, "; it can't be written: {trouble}")?;
            }
            write_row(f, "journal", &text)?;
        }
        write_processes(f, &status.processes, status.managed)
    }
}

/// The kernel's zeroing of free memory so far, and its rate.
fn reserve_text(reserve: &ReserveStatus) -> String {
    let held = text_format::bytes(reserve.held_bytes);
    let [filled, served] = [reserve.filled, reserve.served].map(text_format::count);
    let empty = match reserve.pays {
        Some(false) => "; empty: huge pages cost little here",
        _ => "",
    };
    format!(
        "{held} in huge pages; {filled} filled in {:.2} s of idle CPU time, {served} used{empty}",
        reserve.fill_cpu_s
    )
}

fn zeroing_text(zeroing: &PrezeroingStatus) -> String {
    let [zeroed, free] = [zeroing.free_zeroed_bytes, zeroing.free_bytes].map(text_format::bytes);
    let pages = [
        zeroing.served_pages,
        zeroing.passed_over_pages,
        zeroing.lost_pages,
    ];
    let [served, others, lost] =
        pages.map(|pages| text_format::bytes(pages.saturating_mul(BASE_PAGE_BYTES)));
    let pace = &zeroing.pace;
    format!(
        "{zeroed} of {free} free; {served} served to allocations of zeroed memory, {others} to others, {lost} lost; {pace}"
    )
}

fn write_row(f: &mut fmt::Formatter<'_>, name: &str, text: &str) -> fmt::Result {
    let width = INDENT - 2;
    let text = text_format::wrapped(&text_format::clipped(text, 1000), WIDTH - INDENT, 0);
    let text = text.replace('\n', &format!("\n{:INDENT$}", ""));
    writeln!(f, "  {name:width$}{text}")
}

fn write_memory(f: &mut fmt::Formatter<'_>, memory: &MemoryStatus) -> fmt::Result {
    let percent = |used: u64, total: u64| used as f64 * 100.0 / total.max(1) as f64;
    let mut text = format!(
        "{:.1} % of {} in use; recovery starts over {} %, ends under {} %",
        percent(memory.used_bytes, memory.total_bytes),
        text_format::bytes(memory.total_bytes),
        memory.high_percent,
        memory.low_percent,
    );
    if let Some(pressure) = memory.pressure_percent.filter(|percent| *percent > 0.0) {
        write!(text, "; tasks wait for memory {pressure:.1} % of the time")?;
    }
    write_row(f, "memory", &text)?;
    for group in memory.groups.iter().take(MOST_ROWS) {
        let text = format!(
            "{:.1} % of {} in use by {}",
            percent(group.used_bytes, group.total_bytes),
            text_format::bytes(group.total_bytes),
            group.name
        );
        write_row(f, "  cgroup", &text)?;
    }
    Ok(())
}

fn write_processes(
    f: &mut fmt::Formatter<'_>,
    processes: &[ProcessStatus],
    managed: usize,
) -> fmt::Result {
    if processes.is_empty() {
        return writeln!(f, "No process is managed.");
    }
    // Seven digits fit into the column.
    let count = |number: u64| match number {
        0..10_000_000 => number.to_string(),
        _ => format!("{}M", number / 1_000_000),
    };
    writeln!(
        f,
        "\n{:>8}  {:15} {:>8} {:>8}  {:>15} {:>7} {:>7}",
        "PID", "NAME", "RESIDENT", "HUGE", "OVERHEAD", "PROMOTE", "SPLIT"
    )?;
    for process in processes.iter().take(MOST_ROWS) {
        let overhead = match process.overhead {
            Some(it) if it.at_least => format!(">= {:.1} %", it.percent),
            Some(it) => format!("{:.1} %", it.percent),
            None => "-".to_owned(),
        };
        writeln!(
            f,
            "{:>8}  {:15} {:>8} {:>8}  {overhead:>15} {:>7} {:>7}",
            process.pid,
            text_format::clipped(&process.name, 15),
            text_format::bytes(process.rss_bytes),
            text_format::bytes(process.huge_bytes),
            count(process.promoted),
            count(process.split),
        )?;
    }
    let more = managed.saturating_sub(MOST_ROWS.min(processes.len()));
    if more > 0 {
        writeln!(f, "and {more} more with less resident memory")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::full_status;
    use hawkeye_linux::page_sizes::{ObservedSize, ObservedSizes};
    use hawkeye_policy::{Overhead, OverheadSource};

    #[test]
    fn a_status_fits_into_80_columns_with_any_values() {
        let process = ProcessStatus {
            pid: 4_194_303,
            name: "a\nname of fifteen".into(),
            rss_bytes: u64::MAX,
            huge_bytes: 1023 << 30,
            promoted: u64::MAX / 1_000_000,
            split: 9_999_999,
            overhead: Some(Overhead {
                at_least: true,
                ..Overhead::exact(100.0, OverheadSource::WalkRate)
            }),
            ..ProcessStatus::default()
        };
        let mut status = full_status();
        status.manager.paused = false;
        status.manager.held = Some("tasks waited for memory for so long that ".repeat(4));
        status.manager.managed = 25;
        status.manager.processes = vec![process; 22];
        if let Some(zeroing) = &mut status.prezeroing {
            zeroing.free_zeroed_bytes = 0;
            zeroing.free_bytes = 1023 << 30;
            zeroing.served_pages = 1 << 30;
            zeroing.pace = "no module zeroes memory; `modprobe prezero` loads one".into();
        }
        let size = ObservedSize {
            page_bytes: 1 << 20,
            pages: 99_999_999,
            given_on_machine: Some(999_999_999),
        };
        status.page_sizes = Some(ObservedSizes {
            age_s: 1e6,
            complete: false,
            sizes: vec![size; 8],
        });
        status.metrics = "127.0.0.1:9500".parse().ok();
        if let Some(journal) = &mut status.journal {
            journal.path = "/var/log/hawkeye/journal.jsonl".into();
            journal.trouble = Some("No space left on device (os error 28)".into());
        }
        let text = StatusText(&status).to_string();
        // 16 EiB is too wide for its column, but no machine has it.
        let text = text.replace("17179869184 GiB", "1024 GiB");
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        for part in [
            "promotion tasks waited",
            "waits     promotions use at most 50 % of one core; promotion",
            "daemon    pid 812, configuration /etc/hawkeye/hawkeye.toml",
            "zeroed    0 bytes of 1023 GiB free; 4096 GiB served",
            ">= 100.0 %",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let more = "and 5 more with less resident memory\n";
        assert!(text.ends_with(more), "{text}");
        assert!(text.contains("of a core over the last minute,"), "{text}");
        status.manager.uptime_s = 1.6;
        let early = StatusText(&status).to_string();
        assert!(early.contains("of a core over the last 2 s,"), "{early}");
        let empty = StatusText(&DaemonStatus::default()).to_string();
        assert!(empty.ends_with("No process is managed.\n"), "{empty}");
        assert!(!empty.contains("zeroed"), "{empty}");
    }
}
