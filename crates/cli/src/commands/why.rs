//! `hawkeye why`: shows the reasons for what the daemon does or does not do.

use super::client::ClientOptions;
use crate::options;
use crate::text_format::{
    clip_printable, format_bytes, format_count, format_duration, push_wrapped, wrap_printable,
};
use crate::view::{
    Explanation, JournalEntryView, ProcessExplanation, ProcessStatus, RegionExplanation,
    RegionState, SampleStatus,
};
use anyhow::Result;
use clap::Args;
use hawkeye_policy::RegionSample;
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
        let why = self.options.fetch_explanation(self.pid, self.address)?;
        self.options.print_answer(&why, explanation_text)?;
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
    match why {
        Explanation::NotManaged { why, .. } => {
            let sentence = format!("{}.", why.trim_end_matches('.'));
            wrap_printable(&sentence, 80, 0) + "\n"
        }
        Explanation::Process(process) => process_text(process),
        Explanation::Region(region) => region_text(region),
    }
}

fn process_text(it: &ProcessExplanation) -> String {
    let mut out = process_summary(&it.process);
    let counts = it.sample.as_ref().map(region_counts);
    push_sentence(
        &mut out,
        counts.as_deref().unwrap_or("It has not been sampled yet."),
    );
    if it.process.refused_bytes > 0 {
        let refused = format_bytes(it.process.refused_bytes);
        let why = "the program excludes them (MADV_NOHUGEPAGE)";
        push_sentence(&mut out, &format!("{refused} of it are left alone: {why}."));
    }
    push_obstacles(&mut out, &it.kept_by);
    push_latest(&mut out, &it.latest);
    out
}

fn region_text(it: &RegionExplanation) -> String {
    let mut out = process_summary(&it.process);
    let (start, end, state) = (it.start, it.end, &it.state);
    push_sentence(&mut out, &format!("Region {start:#x}-{end:#x}: {state}."));
    let sampled = match (&it.sample, it.age_s.map(f64::round)) {
        (Some(sample), Some(age)) => sample_text(it, sample, age),
        (None, Some(age)) => format!("The process was last sampled {age} s ago."),
        (_, None) => "The process has not been sampled yet.".to_owned(),
    };
    push_sentence(&mut out, &sampled);
    if let Some(waiting) = &it.waiting {
        let waits = "It waits for its turn";
        let turn = match it.ahead.map(|ahead| (ahead, format_count(ahead))) {
            Some((0, _)) => "It is the next one of its process".to_owned(),
            Some((1, _)) => format!("{waits}, after another region of its process"),
            Some((_, ahead)) => format!("{waits}, after {ahead} other regions of its process"),
            None => waits.to_owned(),
        };
        push_sentence(&mut out, &format!("{turn}: {waiting}."));
    }
    // A region that is huge, or can't be, does not wait for anything.
    if !matches!(it.state, RegionState::Huge | RegionState::Excluded { .. }) {
        push_obstacles(&mut out, &it.kept_by);
    }
    push_history(&mut out, it);
    out
}

fn sample_text(it: &RegionExplanation, sample: &RegionSample, age: f64) -> String {
    let (present, accessed) = (sample.present, sample.accessed);
    if sample.is_huge() {
        let not = if accessed > 0 { "" } else { "not " };
        return format!("{age} s ago it was one huge page, which had {not}been accessed.");
    }
    let mut found = format!(
        "{age} s ago {present} of its 512 base pages were present and {accessed} had been accessed"
    );
    if let Some(bucket) = it.bucket {
        found += &format!(" (bucket {bucket} of 0 to 9)");
    }
    if sample.walks_per_s > 0 {
        let walks = format_count(u64::from(sample.walks_per_s));
        found += &format!(", causing about {walks} page walks a second");
    }
    found + "."
}

fn push_history(out: &mut String, it: &RegionExplanation) {
    let ago = |at_s: f64| format_duration(it.uptime_s - at_s);
    match it.latest.split_last() {
        Some((last, earlier)) => {
            let sentence = format!("The last decision, {} ago: {}.", ago(last.at_s), last.text);
            push_sentence(out, &sentence);
            if !earlier.is_empty() {
                push_sentence(out, "Before that:");
            }
            for entry in earlier.iter().rev() {
                push_item(out, &format!("{} ago: {}", ago(entry.at_s), entry.text));
            }
        }
        None => {
            let remembered = ago(it.remembered_since_s);
            let mut nothing = format!(
                "Nothing was done to it in the last {remembered}, as far back as the daemon remembers"
            );
            if it.state == RegionState::Huge {
                nothing += ": a page fault, khugepaged or an earlier manager made it huge";
            }
            push_sentence(out, &(nothing + "."));
        }
    }
}

fn process_summary(process: &ProcessStatus) -> String {
    let mut head = format!("Process {} ({})", process.pid, process.name);
    if let Some(cgroup) = &process.cgroup {
        head += &format!(", cgroup {cgroup}");
    }
    let mut out = String::new();
    push_sentence(&mut out, &clip_printable(&format!("{head}:"), 1000));
    let [rss, huge] = [process.rss_bytes, process.huge_bytes].map(format_bytes);
    let [promoted, split] = [process.promoted, process.split].map(format_count);
    let recovered = format_bytes(process.recovered_bytes);
    let done = format!("promoted {promoted} regions, split {split}, recovered {recovered}");
    push_sentence(
        &mut out,
        &format!("{rss} resident, {huge} of it huge; {done}."),
    );
    if let Some(rule) = rule_text(process) {
        push_sentence(&mut out, &rule);
    }
    let cost = match (&process.overhead, process.gain_percent) {
        (Some(overhead), None) => {
            format!("Address translation costs it {overhead} of its CPU time.")
        }
        (Some(overhead), Some(gain)) => format!(
            "Address translation costs it {overhead} of its CPU time; promoting all that may be promoted would save {gain:.1} %."
        ),
        (None, _) => "The cost of address translation is unknown so far.".to_owned(),
    };
    push_sentence(&mut out, &cost);
    if let Some(reason) = &process.last_reason {
        push_sentence(&mut out, &format!("Reason of the last change: {reason}."));
    }
    out
}

fn rule_text(process: &ProcessStatus) -> Option<String> {
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

fn region_counts(sample: &SampleStatus) -> String {
    let kinds = [
        (sample.huge, "huge"),
        (sample.candidates, "to be promoted"),
        (sample.not_accessed, "not accessed"),
        (
            sample.cooling_down,
            "refused by the kernel and left alone for a while",
        ),
        (
            sample.shared,
            "left alone because other processes share their pages",
        ),
        (
            sample.recovered,
            "split by recovery and left so until they are used",
        ),
    ];
    let there = kinds.iter().filter(|(count, _)| *count > 0);
    let there: Vec<String> = there
        .map(|(count, kind)| format!("{count} {kind}"))
        .collect();
    let counts = if there.is_empty() {
        String::new()
    } else {
        format!(": {}", there.join(", "))
    };
    let (age, regions) = (sample.age_s.round(), sample.regions);
    format!("{age} s ago it had {regions} regions of 2 MiB with memory{counts}.")
}

fn push_obstacles(out: &mut String, kept_by: &[String]) {
    match kept_by {
        [] => push_sentence(out, "Nothing prevents its promotion."),
        reasons => {
            push_sentence(out, "It is not promoted at the moment because:");
            for reason in reasons {
                push_item(out, reason);
            }
        }
    }
}

fn push_latest(out: &mut String, entries: &[JournalEntryView]) {
    if entries.is_empty() {
        return;
    }
    push_sentence(out, "Latest actions (times since the daemon started):");
    for entry in entries {
        let region = entry.region.map(|start| format!("{start:#x} "));
        let (at, region) = (format_duration(entry.at_s), region.unwrap_or_default());
        push_item(out, &format!("{at}: {region}{}", entry.text));
    }
}

fn push_sentence(out: &mut String, sentence: &str) {
    push_wrapped(out, sentence, 0);
}

fn push_item(out: &mut String, text: &str) {
    push_wrapped(out, &format!("- {text}"), 2);
}

#[cfg(test)]
mod tests;
