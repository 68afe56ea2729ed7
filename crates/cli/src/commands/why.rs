//! `hawkeye why`: shows the reasons for what the daemon does or does not do.

use super::client_options::{ClientOptions, print_text_or_json};
use crate::options;
use crate::text_format::{
    WrappedText, clip_printable, format_bytes, format_count, format_duration,
};
use crate::view::{
    Explanation, LastSampleSummary, ProcessExplanation, ProcessStatus, RegionExplanation,
    RegionPromotionState, SharedMemoryExplanation,
};
use anyhow::Result;
use clap::Args;
use hawkeye_linux::processes::shared_mappings::name_of_mapped_file;
use hawkeye_policy::{PAGES_PER_REGION, PageOrder, RegionAddr, RegionSample};
use std::process::ExitCode;

/// Show why a process, or a region of it, gets huge pages or does not.
///
/// A region is the 2 MiB around ADDRESS. Only root and the owner of a process may see its
/// addresses.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye why $(pidof redis-server)
  hawkeye why $(pidof redis-server) 0x7f2a40000000
`hawkeye top PID` shows the addresses in use. Exit status 1: the process is
not managed.")]
pub struct WhyOptions {
    #[command(flatten)]
    options: ClientOptions,

    /// Process to explain.
    #[arg(value_parser = options::parse_pid)]
    pid: u32,

    /// Any address in the region: decimal, or hexadecimal after 0x.
    #[arg(value_parser = parse_address)]
    address: Option<u64>,
}

impl WhyOptions {
    pub fn execute(self) -> Result<ExitCode> {
        let mut why = self.options.fetch_explanation(self.pid, self.address)?;
        if let Explanation::Region(region) = &mut why {
            // The daemon does not read it, because the process may hold the lock for long.
            if let Some(shared) = &mut region.shared_memory {
                let at = RegionAddr::containing(region.start);
                shared.file_name = name_of_mapped_file(self.pid, at, shared.file);
            }
        }
        print_text_or_json(self.options.json, &why, explanation_text)?;
        Ok(ExitCode::from(u8::from(!why.is_managed())))
    }
}

fn parse_address(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    // On every machine the last 2 MiB of the address space belong to the kernel.
    let address = parsed.ok().filter(|address| *address < 1 << 63);
    let example = "for example 0x7f2a40000000";
    address.ok_or_else(|| format!("{text:?} is not the address of a program, {example}"))
}

fn explanation_text(why: &Explanation) -> String {
    let mut out = WrappedText::default();
    match why {
        Explanation::NotManaged { why, .. } => {
            out.push_sentence(format!("{}.", why.trim_end_matches('.')));
        }
        Explanation::Process(process) => push_process_explanation(&mut out, process),
        Explanation::Region(region) => push_region_explanation(&mut out, region),
    }
    out.0
}

fn push_process_explanation(out: &mut WrappedText, it: &ProcessExplanation) {
    push_process_summary(out, &it.process);
    let counts = it.sample.as_ref().map(region_counts_text);
    out.push_sentence(match (counts.as_deref(), it.process.cpu_cores) {
        (Some(counts), _) => counts,
        (None, Some(_)) => "Its last sample was too large to be kept.",
        (None, None) => "It has not been sampled yet.",
    });
    if it.process.refused_bytes > 0 {
        let refused = format_bytes(it.process.refused_bytes);
        let why = "the program excludes them (MADV_NOHUGEPAGE)";
        out.push_sentence(format!("{refused} of it are left alone: {why}."));
    }
    if it.process.shared_bytes > 0 {
        let [shared, huge] =
            [it.process.shared_bytes, it.process.shared_huge_bytes].map(format_bytes);
        out.push_sentence(format!("{shared} of it were shared memory, {huge} of that huge."));
    }
    push_obstacles(out, &it.kept_by);
    push_waits(out, &it.waits);
    if !it.latest.is_empty() {
        out.push_sentence("Latest actions (times since the daemon started):");
    }
    for entry in &it.latest {
        let region = entry.region.map(|start| format!("{start:#x} "));
        let (at, region) = (format_duration(entry.at_s), region.unwrap_or_default());
        out.push_list_item(format!("{at}: {region}{}", entry.text));
    }
}

fn push_region_explanation(out: &mut WrappedText, it: &RegionExplanation) {
    push_process_summary(out, &it.process);
    let (start, end, state) = (it.start, it.end, &it.state);
    out.push_sentence(format!("Region {start:#x}-{end:#x}: {state}."));
    let sampled = match (&it.sample, it.age_s.map(f64::round)) {
        (Some(sample), Some(age)) => region_sample_text(it, sample, age),
        (None, Some(age)) => format!("The process was last sampled {age} s ago."),
        (_, None) => "The process has not been sampled yet.".to_owned(),
    };
    out.push_sentence(&sampled);
    if let Some(shared) = &it.shared_memory {
        out.push_sentence(shared_memory_text(shared));
    }
    if let Some(waiting) = &it.waiting {
        let queue = "in the queue of its process";
        let turn = match it.ahead.map(|ahead| (ahead, format_count(ahead))) {
            Some((0, _)) => format!("It is the first {queue}"),
            Some((1, _)) => format!("It is {queue}, after another region"),
            Some((_, ahead)) => format!("It is {queue}, after {ahead} other regions"),
            None => format!("It is {queue}"),
        };
        out.push_sentence(format!("{turn}: {waiting}."));
    }
    // A region that is huge, or can't be, does not wait for anything.
    if !matches!(it.state, RegionPromotionState::Huge | RegionPromotionState::Excluded { .. }) {
        push_obstacles(out, &it.kept_by);
    }
    push_waits(out, &it.waits);
    for known in &it.recovery {
        out.push_sentence(format!("Recovery: {known}."));
    }
    push_region_history(out, it);
}

fn shared_memory_text(shared: &SharedMemoryExplanation) -> String {
    let (major, minor) = shared.file.device_numbers();
    let (index, inode) = (shared.file.index, shared.file.inode);
    let name = shared.file_name.as_deref().map(|name| clip_printable(name, 200));
    let name = name.as_deref().unwrap_or("a file");
    let file = format!("{name} (device {major}:{minor}, inode {inode})");
    let part = format!("It is shared memory: part {index}, counted from 0, of {file}");
    if shared.mapper_count <= 1 {
        return format!(
            "{part}. No other managed process had it in its page tables when it was last sampled."
        );
    }
    let named = shared.mappers.iter().map(|it| format!("{} ({})", it.pid, it.name));
    let mut mappers = clip_printable(&named.collect::<Vec<_>>().join(", "), 400);
    if let more @ 1.. = shared.mapper_count.saturating_sub(shared.mappers.len()) {
        mappers += &format!(" and {more} more");
    }
    format!(
        "{part}. Managed processes that map it: {mappers}. So its promotion is final: it stays huge until all but one of them have unmapped it."
    )
}

fn region_sample_text(it: &RegionExplanation, sample: &RegionSample, age: f64) -> String {
    let (present, accessed) = (sample.present, sample.accessed);
    if sample.is_huge() {
        let not = if accessed > 0 { "" } else { "not " };
        return format!("{age} s ago it was one huge page, which had {not}been accessed.");
    }
    let mut found = format!(
        "{age} s ago {present} of its {PAGES_PER_REGION} base pages were present and {accessed} had been accessed"
    );
    if let Some(bucket) = it.bucket {
        found += &format!(" (bucket {bucket} of 0 to 9)");
    }
    if sample.walks_per_s > 0 {
        let walks = format_count(u64::from(sample.walks_per_s));
        found += &format!(", causing about {walks} page walks a second");
    }
    if sample.order > PageOrder::BASE {
        found += &format!(". Pages of {} map most of it", sample.order);
    }
    found + "."
}

fn push_region_history(out: &mut WrappedText, it: &RegionExplanation) {
    let ago = |at_s: f64| format_duration(it.uptime_s - at_s);
    match it.latest.split_last() {
        Some((last, earlier)) => {
            let (at, text) = (ago(last.at_s), &last.text);
            out.push_sentence(format!("The last decision, {at} ago: {text}."));
            if !earlier.is_empty() {
                out.push_sentence("Before that:");
            }
            for entry in earlier.iter().rev() {
                out.push_list_item(format!("{} ago: {}", ago(entry.at_s), entry.text));
            }
        }
        None => {
            let remembered = ago(it.remembered_since_s);
            let mut nothing = format!(
                "Nothing was done to it in the last {remembered}, as far back as the daemon remembers"
            );
            if it.state == RegionPromotionState::Huge {
                nothing += ": a page fault, khugepaged or an earlier manager made it huge";
            }
            out.push_sentence(&(nothing + "."));
        }
    }
}

fn push_process_summary(out: &mut WrappedText, process: &ProcessStatus) {
    let cgroup = process.cgroup.as_ref();
    let cgroup = cgroup.map(|cgroup| format!(", cgroup {cgroup}"));
    let (pid, name, cgroup) = (process.pid, &process.name, cgroup.unwrap_or_default());
    out.push_sentence(clip_printable(&format!("Process {pid} ({name}){cgroup}:"), 1000));
    let [rss, huge] = [process.rss_bytes, process.huge_bytes].map(format_bytes);
    let [promoted, split] = [process.promoted, process.split].map(format_count);
    let recovered = format_bytes(process.recovered_bytes);
    let done = format!("promoted {promoted} regions, split {split}, recovered {recovered}");
    out.push_sentence(format!("{rss} resident, {huge} of it huge; {done}."));
    if let Some(rule) = process_rule_text(process) {
        out.push_sentence(&rule);
    }
    if let Some(request) = &process.profile_request {
        out.push_sentence(format!("Request: {}.", clip_printable(request, 200)));
    }
    out.push_sentence(process.translation_cost_text() + ".");
    if let Some(reason) = &process.last_reason {
        out.push_sentence(format!("Reason of the last change: {reason}."));
    }
}

fn process_rule_text(process: &ProcessStatus) -> Option<String> {
    let name = clip_printable(process.rule_name.as_ref()?, 60);
    let terms = &process.terms;
    let size = |bytes| format_bytes(bytes).replace(".0 ", " ");
    let mut text = format!("rule \"{name}\": weight {}", terms.weight);
    if let Some(bytes) = terms.max_huge_bytes {
        text += &format!(", at most {} huge", size(bytes));
    }
    if let Some(percent) = terms.min_gain_percent {
        text += &format!(", at least {percent} % overhead");
    }
    if !terms.promotes {
        text += ", nothing promoted";
    }
    if let Some(bytes) = terms.warm_bytes {
        text += &format!(", {} prefaulted at its start", size(bytes));
    }
    Some(text)
}

fn region_counts_text(sample: &LastSampleSummary) -> String {
    let kinds = [
        (sample.huge, "huge"),
        (sample.candidates, "to be promoted"),
        (sample.not_accessed, "not accessed"),
        (sample.cooling_down, "refused by the kernel and left alone for a while"),
        (sample.shared, "left alone because other processes share their pages"),
        (sample.recovered, "split by recovery and left so until they are used"),
    ];
    let (age, regions) = (sample.age_s.round(), sample.regions);
    let mut text =
        format!("{age} s ago it had {regions} regions of {} with memory", PageOrder::HUGE);
    for (n, (count, kind)) in kinds.iter().filter(|(count, _)| *count > 0).enumerate() {
        text += &format!("{} {count} {kind}", if n == 0 { ":" } else { "," });
    }
    text + "."
}

fn push_obstacles(out: &mut WrappedText, kept_by: &[String]) {
    out.push_sentence(match kept_by {
        [] => "Nothing prevents its promotion.",
        _ => "It is not promoted at the moment because:",
    });
    for reason in kept_by {
        out.push_list_item(reason);
    }
}

fn push_waits(out: &mut WrappedText, waits: &[String]) {
    for wait in waits {
        out.push_sentence(format!("Other work waits: {wait}."));
    }
}

#[cfg(test)]
mod tests;
