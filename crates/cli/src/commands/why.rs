//! `hawkeye why`: the reasons behind what the daemon does, or does not do.

use super::asking::{AskOptions, unexpected};
use crate::daemon::protocol::{Reply, Request};
use crate::view::Explanation;
use crate::view::{
    EntryView, ProcessExplanation, ProcessStatus, RegionExplanation, RegionState, SampleStatus,
};
use crate::words;
use anyhow::Result;
use clap::Args;
use hawkeye_policy::RegionSample;
use std::fmt::Write;
use std::process::ExitCode;

/// Show why a process, or a region of it, gets huge pages or does not.
///
/// A region: the 2 MiB around an address. Where a process has its memory is shown to its owner and to root alone.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hawkeye why $(pidof redis-server)
  hawkeye why $(pidof redis-server) 0x7f2a40000000
`hawkeye top PID` shows which addresses there are. Exit status 1: the process
is not under management.")]
pub struct Why {
    #[command(flatten)]
    options: AskOptions,

    /// The process.
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pid: u32,

    /// Any address in the region: decimal, or hexadecimal after 0x.
    #[arg(value_parser = address)]
    address: Option<u64>,
}

const WIDTH: usize = 80;

impl Why {
    /// Asks and prints.
    pub fn execute(self) -> Result<ExitCode> {
        let Self { pid, address, .. } = self;
        let Reply::Explanation(why) = self.options.ask(Request::Why { pid, address })? else {
            return Err(unexpected());
        };
        self.options.print(&why, text)?;
        let managed = !matches!(why, Explanation::NotManaged { .. });
        Ok(ExitCode::from(u8::from(!managed)))
    }
}

fn address(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    // The last 2 MiB are the kernel's, on every machine.
    parsed
        .ok()
        .filter(|address| *address < 1 << 63)
        .ok_or_else(|| format!("{text:?} is no address: as in 0x7f2a40000000"))
}

fn text(why: &Explanation) -> String {
    match why {
        Explanation::NotManaged { why, .. } => {
            let mut sentence = why.clone();
            if !sentence.ends_with('.') {
                sentence.push('.');
            }
            words::wrapped(&sentence, WIDTH, 0) + "\n"
        }
        Explanation::Process(process) => of_process(process),
        Explanation::Region(region) => of_region(region),
    }
}

fn of_process(it: &ProcessExplanation) -> String {
    let mut out = subject(&it.process);
    match &it.sample {
        Some(sample) => push(&mut out, &regions(sample)),
        None => push(&mut out, "It was not sampled yet."),
    }
    if it.process.refused_bytes > 0 {
        let refused = words::bytes(it.process.refused_bytes);
        push(
            &mut out,
            &format!("{refused} of it are left alone: it said MADV_NOHUGEPAGE."),
        );
    }
    kept(&mut out, &it.kept_by);
    latest(&mut out, &it.latest);
    out
}

fn of_region(it: &RegionExplanation) -> String {
    let mut out = subject(&it.process);
    push(
        &mut out,
        &format!("Region {:#x}-{:#x}: {}.", it.start, it.end, it.state),
    );
    match (&it.sample, it.age_s) {
        (Some(sample), Some(age_s)) => push(&mut out, &found(it, sample, age_s)),
        (None, Some(age_s)) => {
            let age = age_s.round();
            push(&mut out, &format!("The process was last read {age} s ago."));
        }
        (_, None) => push(&mut out, "The process was not sampled yet."),
    }
    if let Some(waiting) = &it.waiting {
        let turn = match it.ahead {
            Some(0) => "It comes next of its process".to_owned(),
            Some(1) => "It waits for its turn, after another region of its process".to_owned(),
            Some(ahead) => format!(
                "It waits for its turn, after {} other regions of its process",
                words::count(ahead)
            ),
            None => "It waits for its turn".to_owned(),
        };
        push(&mut out, &format!("{turn}: {waiting}."));
    }
    // What is huge, or can't be, waits for nothing that may change by itself.
    if !matches!(it.state, RegionState::Huge | RegionState::Excluded { .. }) {
        kept(&mut out, &it.kept_by);
    }
    history(&mut out, it);
    out
}

/// What the last sample saw of a region.
fn found(it: &RegionExplanation, sample: &RegionSample, age_s: f64) -> String {
    let age = age_s.round();
    if sample.is_huge() {
        let accessed = if sample.accessed > 0 {
            "had been accessed"
        } else {
            "had not been accessed"
        };
        return format!("{age} s ago it was one huge page, which {accessed}.");
    }
    let mut found = format!(
        "{age} s ago {} of its 512 base pages were present and {} had been accessed",
        sample.present, sample.accessed
    );
    if let Some(bucket) = it.bucket {
        let _ = write!(found, " (bucket {bucket} of 0 to 9)");
    }
    if sample.walks_per_s > 0 {
        let walks = words::count(u64::from(sample.walks_per_s));
        let _ = write!(found, ", causing about {walks} page walks a second");
    }
    found.push('.');
    found
}

/// What was done to a region, the last thing first and in full.
fn history(out: &mut String, it: &RegionExplanation) {
    let ago = |at_s: f64| words::duration(it.uptime_s - at_s);
    match it.latest.split_last() {
        Some((last, earlier)) => {
            let sentence = format!("The last decision, {} ago: {}.", ago(last.at_s), last.text);
            push(out, &sentence);
            if !earlier.is_empty() {
                push(out, "Before that:");
            }
            for entry in earlier.iter().rev() {
                item(out, &format!("{} ago: {}", ago(entry.at_s), entry.text));
            }
        }
        None => {
            let remembered = ago(it.remembered_since_s);
            let mut sentence = format!(
                "Nothing was done to it in the last {remembered}, as far back as is remembered"
            );
            if it.state == RegionState::Huge {
                sentence.push_str(
                    ": its program's first touch made it huge, or the kernel's khugepaged, or a manager before this one",
                );
            }
            push(out, &(sentence + "."));
        }
    }
}

/// What the process is, and what was done to it.
fn subject(process: &ProcessStatus) -> String {
    let mut who = format!("Process {} ({})", process.pid, process.name);
    if let Some(cgroup) = &process.cgroup {
        let _ = write!(who, ", cgroup {cgroup}");
    }
    let mut out = String::new();
    push(&mut out, &words::clipped(&format!("{who}:"), 1000));
    let done = format!(
        "{} resident, {} of it huge; promoted {} regions, split {}, recovered {}.",
        words::bytes(process.rss_bytes),
        words::bytes(process.huge_bytes),
        words::count(process.promoted),
        words::count(process.split),
        words::bytes(process.recovered_bytes),
    );
    push(&mut out, &done);
    match &process.overhead {
        Some(overhead) => push(
            &mut out,
            &format!(
                "Address translation costs it {overhead} of its CPU time{}.",
                match process.gain_percent {
                    Some(gain) =>
                        format!("; making huge what may become so would save {gain:.1} %"),
                    None => String::new(),
                }
            ),
        ),
        None => push(
            &mut out,
            "What address translation costs it is not known (yet).",
        ),
    }
    if let Some(reason) = &process.last_reason {
        push(
            &mut out,
            &format!("The last reason to change anything: {reason}."),
        );
    }
    out
}

fn regions(sample: &SampleStatus) -> String {
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
            "split by recovery and kept so until they are used",
        ),
    ];
    let kinds: Vec<String> = kinds
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, kind)| format!("{count} {kind}"))
        .collect();
    let kinds = if kinds.is_empty() {
        String::new()
    } else {
        format!(": {}", kinds.join(", "))
    };
    format!(
        "{} s ago it had {} regions of 2 MiB with memory{kinds}.",
        sample.age_s.round(),
        sample.regions
    )
}

fn kept(out: &mut String, kept_by: &[String]) {
    match kept_by {
        [] => push(out, "Nothing keeps it from being promoted."),
        reasons => {
            push(out, "It is not promoted at the moment, because");
            for reason in reasons {
                item(out, reason);
            }
        }
    }
}

fn latest(out: &mut String, entries: &[EntryView]) {
    if entries.is_empty() {
        return;
    }
    push(out, "Lately:");
    for entry in entries {
        let region = entry
            .region
            .map_or_else(String::new, |r| format!("{r:#x} "));
        let at = words::duration(entry.at_s);
        item(out, &format!("at {at}: {region}{}", entry.text));
    }
}

fn push(out: &mut String, sentence: &str) {
    out.push_str(&words::wrapped(sentence, WIDTH, 0));
    out.push('\n');
}

fn item(out: &mut String, text: &str) {
    out.push_str(&words::wrapped(&format!("- {text}"), WIDTH, 2));
    out.push('\n');
}

#[cfg(test)]
mod tests;
