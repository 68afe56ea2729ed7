//! `hawkeye status`: shows the state of the daemon's management.

use super::client_options::{ClientOptions, print_text_or_json};
use super::forecast::{self, MemoryForecast, RecoverySettings};
use crate::daemon::protocol::{DaemonStatus, PrezeroingStatus};
use crate::session_summary::observed_sizes_text;
use crate::text_format::{
    clip_printable, format_bytes, format_count, format_duration, format_errno_counts,
    format_shared_memory, wrap_printable,
};
use crate::view::{CgroupMemoryStatus, HugePageReserveStatus, MemoryStatus, ProcessStatus};
use anyhow::Result;
use clap::Args;
use hawkeye_linux::processes::profile_requests::PodAnnotationStatus;
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// Rows of processes and of cgroups at most; `--json` has more.
const MOST_ROWS: usize = 20;
/// Less growth of a cgroup, in bytes per second, is not worth a word.
const LEAST_GROWTH: u64 = 1 << 20;
const WIDTH: usize = 80;
/// Column at which the second column of the head begins.
const INDENT: usize = 12;

/// Show what the daemon manages, what it has done, and what prevents promotions.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye status
  hawkeye status --json
  hawkeye status --forecast")]
pub struct StatusOptions {
    #[command(flatten)]
    client: ClientOptions,

    /// Add each cgroup's memory with huge pages for all programs (needs root).
    ///
    /// Reads the page tables of all processes, managed or not, and changes nothing. The forecast is
    /// that of `hawkeye advise --all`, with the daemon's configuration file.
    #[arg(long)]
    forecast: bool,
}

#[derive(Serialize)]
struct StatusReport<'a> {
    #[serde(flatten)]
    daemon: &'a DaemonStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    forecast: Option<MemoryForecast>,
}

impl StatusOptions {
    pub fn execute(self) -> Result<ExitCode> {
        let daemon = self.client.fetch_status()?;
        let forecast = self.forecast.then(|| {
            let settings = RecoverySettings::of_config_file(daemon.config_file.as_deref());
            forecast::measure_forecast(Path::new("/"), &settings, forecast::MOST_SECONDS)
        });
        let report = StatusReport { daemon: &daemon, forecast: forecast.transpose()? };
        print_text_or_json(self.client.json, &report, |report| {
            let forecast = report.forecast.as_ref().map(forecast::forecast_text);
            let forecast = forecast.map_or_else(String::new, |text| format!("\n{text}"));
            status_text(report.daemon) + &forecast
        })?;
        Ok(ExitCode::SUCCESS)
    }
}

fn status_text(daemon: &DaemonStatus) -> String {
    let status = &daemon.manager;
    let (version, policy) = (&status.version, &status.policy);
    let up = format_duration(status.uptime_s);
    let paused = if status.paused { ", PAUSED" } else { "" };
    let mut out = format!("hawkeye {version}, policy {policy}, up {up}{paused}\n");
    let mut row = |name: &str, text: &str| push_labelled_row(&mut out, name, text);
    row(
        "promotion",
        match status.paused {
            true => "paused; `hawkeye resume` resumes it",
            false => status.held.as_deref().unwrap_or(status.promotion_pace_text()),
        },
    );
    for wait in &status.budget_waits {
        row("waits", &wait.to_string());
    }
    if let Some(memory) = &status.memory {
        row("memory", &memory_text(memory));
        for group in memory.groups.iter().take(MOST_ROWS) {
            row("  cgroup", &cgroup_memory_text(group));
        }
        let more = memory.groups.len().saturating_sub(MOST_ROWS);
        if more > 0 {
            row("", &format!("and {more} more cgroups; `hawkeye status --json` has all of them"));
        }
    }
    if status.shared_memory.files > 0 {
        row("files", &format!("shared memory {}", format_shared_memory(&status.shared_memory)));
    }
    let totals = &status.totals;
    let [promoted, split, samples] =
        [totals.promoted, totals.split, totals.samples].map(format_count);
    let recovered = format_bytes(totals.recovered_bytes);
    let done = format!("promoted {promoted}, split {split}, recovered {recovered}");
    row("done", &format!("{done}, {samples} samples"));
    if totals.shared > 0 {
        let times = format_count(totals.shared);
        let shared = format!("a region was passed over {times} times");
        row("shared", &(shared + ": other processes share its pages"));
    }
    if let Some(fill) = &daemon.fill {
        let bytes = |regions: u64| format_bytes(regions * HUGE_PAGE_BYTES);
        let [filled, ahead, unused] = [fill.filled, fill.ahead, fill.unused].map(bytes);
        let cpu = format!("{:.2} s of CPU time", fill.cpu_s);
        let most = format!("at most {ahead} not touched yet, at most {unused} unused");
        row("prefault", &format!("{filled}, in {cpu}; {most}"));
    }
    if status.reserve.filled > 0 {
        row("reserve", &reserve_text(&status.reserve));
    }
    if let Some(zeroing) = &daemon.prezeroing {
        row("zeroed", &prezeroing_text(zeroing));
    }
    if let Some(seen) = &daemon.page_sizes {
        row("sizes", &observed_sizes_text(seen));
    }
    if let Some(pods) = &daemon.pod_annotations {
        row("pods", &pod_annotations_text(pods));
    }
    if let Some(warning) = &daemon.unguarded_rules {
        row("unguarded", warning);
    }
    if !totals.errors.is_empty() {
        row("refused", &format_errno_counts(&totals.errors));
    }
    let (cpu, longest) = (status.manager_cpu_percent, status.longest_call_ms);
    let over = match status.uptime_s.ceil() {
        seconds if seconds < 60.0 => format!("{} s", seconds.max(1.0)),
        _ => "minute".to_owned(),
    };
    let used = format!("{cpu:.1} % of a core over the last {over}");
    row("manager", &format!("{used}, longest call {longest:.1} ms"));
    let budgeted = status.budget_cpu_percent;
    if cpu - budgeted >= 0.1 {
        let rest = "savings and cgroups in danger the rest";
        row("budget", &format!("pays {budgeted:.1} % of a core of that, {rest}"));
    }
    let config = match &daemon.config_file {
        Some(path) => format!("configuration {}", path.display()),
        None => "no configuration file".to_owned(),
    };
    row("daemon", &format!("pid {}, {config}", daemon.pid));
    if status.not_answering > 0 {
        let some = format_count(status.not_answering as u64);
        let each = "each is left alone until it answers (`hawkeye why PID`)";
        row("no answer", &format!("{some} of the managed processes; {each}"));
    }
    if let Some(address) = daemon.metrics {
        let mut text = format!("http://{address}/metrics");
        if let Some(error) = &daemon.metrics_error {
            text += &format!("; they are not served: {error}");
        }
        row("metrics", &text);
    }
    if let Some(journal) = &daemon.journal {
        let mut text = journal.path.display().to_string();
        if journal.lost_entries > 0 {
            text += &format!("; {} entries lost", format_count(journal.lost_entries));
        }
        if let Some(last_error) = &journal.last_error {
            text += &format!("; it can't be written: {last_error}");
        }
        row("journal", &text);
    }
    push_process_table(&mut out, &status.processes, status.managed);
    out
}

fn reserve_text(reserve: &HugePageReserveStatus) -> String {
    let held = format_bytes(reserve.held_bytes);
    let [filled, served] = [reserve.filled, reserve.served].map(format_count);
    let empty = match reserve.pays {
        Some(false) => "; empty: huge pages cost little here",
        _ => "",
    };
    format!(
        "{held} in huge pages; {filled} filled in {:.2} s of idle CPU time, {served} used{empty}",
        reserve.fill_cpu_s
    )
}

fn pod_annotations_text(pods: &PodAnnotationStatus) -> String {
    let known = format_count(pods.pods as u64);
    let answer = match (&pods.last_error, pods.answer_age_s) {
        (None, Some(age_s)) => format!("{known} pods, {} ago", format_duration(age_s)),
        (None, None) => "not called yet: no large process is in a pod".to_owned(),
        (Some(error), Some(_)) => format!("{error}; {known} pods are known"),
        (Some(error), None) => format!("{error}; processes of pods are left alone"),
    };
    format!("annotations by {}: {answer}", pods.socket.display())
}

fn prezeroing_text(zeroing: &PrezeroingStatus) -> String {
    let [zeroed, free] = [zeroing.free_zeroed_bytes, zeroing.free_bytes].map(format_bytes);
    let bytes = |pages: u64| format_bytes(pages.saturating_mul(BASE_PAGE_BYTES));
    let (served, lost) = (bytes(zeroing.served_pages), bytes(zeroing.lost_pages));
    let (others, pace) = (bytes(zeroing.passed_over_pages), &zeroing.pace);
    format!(
        "{zeroed} of {free} free; {served} served to allocations of zeroed memory, {others} to others, {lost} lost; {pace}"
    )
}

fn push_labelled_row(out: &mut String, name: &str, text: &str) {
    let width = INDENT - 2;
    let text = wrap_printable(&clip_printable(text, 1000), WIDTH - INDENT, 0);
    let text = text.replace('\n', &format!("\n{:INDENT$}", ""));
    *out += &format!("  {name:width$}{text}\n");
}

fn used_memory_text(used: u64, total: u64) -> String {
    let percent = used as f64 * 100.0 / total.max(1) as f64;
    format!("{percent:.1} % of {} in use", format_bytes(total))
}

fn memory_text(memory: &MemoryStatus) -> String {
    let used = used_memory_text(memory.used_bytes, memory.total_bytes);
    let (high, low) = (memory.high_percent, memory.low_percent);
    let mut text = format!("{used}; recovery starts over {high} %, ends under {low} %");
    if let Some(pressure) = memory.pressure_percent.filter(|percent| *percent > 0.0) {
        text += &format!("; tasks wait for memory {pressure:.1} % of the time");
    }
    text
}

fn cgroup_memory_text(group: &CgroupMemoryStatus) -> String {
    let used = used_memory_text(group.used_bytes, group.total_bytes);
    let mut text = format!("{used} by {}", group.name);
    let bloat = &group.bloat;
    for (bytes, what) in [
        (bloat.unused_bytes, "huge and unused"),
        (bloat.never_accessed_bytes, "huge and never accessed"),
        (bloat.freed_part_bytes, "given back and still allocated"),
    ] {
        if bytes > 0 {
            text += &format!(", {} of it {what}", format_bytes(bytes));
        }
    }
    if group.growth_bytes_per_s >= LEAST_GROWTH {
        text += &format!(", growing by {}/s", format_bytes(group.growth_bytes_per_s));
    }
    text
}

fn push_process_table(out: &mut String, processes: &[ProcessStatus], managed: usize) {
    if processes.is_empty() {
        *out += "No process is managed.\n";
        return;
    }
    // Seven digits fit into the column.
    let count = |number: u64| match number {
        0..10_000_000 => number.to_string(),
        _ => format!("{}M", number / 1_000_000),
    };
    *out += "\n     PID  NAME            RESIDENT     HUGE         OVERHEAD PROMOTE   SPLIT\n";
    for process in processes.iter().take(MOST_ROWS) {
        let overhead = process.overhead.map_or("-".to_owned(), |overhead| {
            let least = if overhead.at_least { ">= " } else { "" };
            format!("{least}{:.1} %", overhead.percent)
        });
        let (pid, name) = (process.pid, clip_printable(&process.name, 15));
        let [rss, huge] = [process.rss_bytes, process.huge_bytes].map(format_bytes);
        let [promoted, split] = [process.promoted, process.split].map(count);
        *out += &format!("{pid:>8}  {name:15} {rss:>8} {huge:>8}  {overhead:>15} ");
        *out += &format!("{promoted:>7} {split:>7}\n");
    }
    let more = managed.saturating_sub(MOST_ROWS.min(processes.len()));
    if more > 0 {
        *out += &format!("and {more} more with less resident memory\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::full_status;
    use hawkeye_linux::page_sizes::{ObservedPageSize, ObservedPageSizes};
    use hawkeye_policy::{
        BloatTotals, SampledMemory, SharedMemoryTotals, TranslationOverhead,
        TranslationOverheadSource,
    };

    #[test]
    fn a_status_fits_into_80_columns_with_any_values() {
        let process = ProcessStatus {
            pid: 4_194_303,
            name: "a\nname of fifteen".into(),
            rss_bytes: u64::MAX,
            huge_bytes: 1023 << 30,
            promoted: u64::MAX / 1_000_000,
            split: 9_999_999,
            overhead: Some(TranslationOverhead {
                at_least: true,
                ..TranslationOverhead::new_without_error(100.0, TranslationOverheadSource::WalkRate)
            }),
            ..ProcessStatus::default()
        };
        let mut status = full_status();
        status.manager.paused = false;
        status.manager.held = Some("tasks waited for memory for so long that ".repeat(4));
        status.manager.managed = 25;
        status.manager.shared_memory = SharedMemoryTotals {
            memory: SampledMemory { resident_bytes: 1023 << 30, huge_bytes: 1023 << 20 },
            files: 99_999,
            processes: 1,
            ..SharedMemoryTotals::default()
        };
        status.manager.processes = vec![process; 22];
        if let Some(zeroing) = &mut status.prezeroing {
            zeroing.free_zeroed_bytes = 0;
            zeroing.free_bytes = 1023 << 30;
            zeroing.served_pages = 1 << 30;
            zeroing.pace = "no module zeroes memory; `modprobe prezero` loads one".into();
        }
        status.pod_annotations = Some(PodAnnotationStatus {
            socket: "/run/k3s/containerd/containerd.sock".into(),
            pods: 110,
            answer_age_s: Some(5.0),
            last_error: Some("connecting: Connection refused (os error 111)".into()),
        });
        status.unguarded_rules = Some("rules leave processes alone (builds), but ".repeat(3));
        let size = ObservedPageSize {
            page_bytes: 1 << 20,
            pages: 99_999_999,
            given_on_machine: Some(999_999_999),
        };
        status.page_sizes =
            Some(ObservedPageSizes { age_s: 1e6, complete: false, sizes: vec![size; 8] });
        status.metrics = "127.0.0.1:9500".parse().ok();
        status.metrics_error = Some("can't listen at 127.0.0.1:9500 for metrics".into());
        if let Some(journal) = &mut status.journal {
            journal.path = "/var/log/hawkeye/journal.jsonl".into();
            journal.last_error = Some("No space left on device (os error 28)".into());
        }
        let text = status_text(&status);
        // 16 EiB is too wide for its column, but no machine has it.
        let text = text.replace("17179869184 GiB", "1024 GiB");
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
        for part in [
            "promotion tasks waited",
            "waits     promotions use at most 50 % of one core; promotion",
            "unguarded rules leave processes alone (builds), but",
            "pods      annotations by /run/k3s/containerd/containerd.sock: connecting:",
            "files     shared memory 1023 GiB in 99,999 files of 1 process, 1023 MiB of it",
            "daemon    pid 812, configuration /etc/hawkeye/hawkeye.toml",
            "metrics   http://127.0.0.1:9500/metrics; they are not served: can't listen at",
            "zeroed    0 bytes of 1023 GiB free; 4096 GiB served",
            ">= 100.0 %",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let more = "and 5 more with less resident memory\n";
        assert!(text.ends_with(more), "{text}");
        assert!(text.contains("of a core over the last minute,"), "{text}");
        status.manager.uptime_s = 1.6;
        let early = status_text(&status);
        assert!(early.contains("of a core over the last 2 s,"), "{early}");
        let empty = status_text(&DaemonStatus::default());
        assert!(empty.ends_with("No process is managed.\n"), "{empty}");
        assert!(!empty.contains("zeroed") && !empty.contains("shared memory"), "{empty}");
    }

    #[test]
    fn a_cgroup_has_its_bloat_and_its_growth() {
        let mut group = CgroupMemoryStatus {
            name: "/redis".into(),
            used_bytes: 256 << 20,
            total_bytes: 512 << 20,
            growth_bytes_per_s: LEAST_GROWTH - 1,
            ..Default::default()
        };
        let used = "50.0 % of 512 MiB in use by /redis";
        assert_eq!(cgroup_memory_text(&group), used);
        group.growth_bytes_per_s = 12 << 20;
        assert_eq!(cgroup_memory_text(&group), format!("{used}, growing by 12 MiB/s"));
        group.bloat = BloatTotals {
            unused_bytes: 125 << 20,
            never_accessed_bytes: 30 << 20,
            freed_part_bytes: 20 << 20,
            ..BloatTotals::default()
        };
        let bloat = "125 MiB of it huge and unused, 30 MiB of it huge and never accessed";
        let freed = "20 MiB of it given back and still allocated";
        let expected = format!("{used}, {bloat}, {freed}, growing by 12 MiB/s");
        assert_eq!(cgroup_memory_text(&group), expected);
    }

    #[test]
    fn cgroups_without_a_row_are_counted() {
        let status_of = |groups: usize| {
            let group =
                |n: usize| CgroupMemoryStatus { name: format!("/c{n}"), ..Default::default() };
            let groups = (0..groups).map(group).collect();
            let mut status = DaemonStatus::default();
            status.manager.memory = Some(MemoryStatus { groups, ..Default::default() });
            status_text(&status)
        };
        let all = status_of(MOST_ROWS);
        assert!(all.contains("by /c19\n") && !all.contains("more cgroups"), "{all}");
        let some = status_of(MOST_ROWS + 3);
        assert!(some.contains("by /c19\n") && !some.contains("/c20"), "{some}");
        let more = "\n            and 3 more cgroups; `hawkeye status --json` has all of them\n";
        assert!(some.contains(more), "{some}");
    }
}
