//! The screen of one process.

use super::address_strip_text;
use super::sort_order::huge_percent_of_resident;
use super::theme::Theme;
use crate::text_format::{
    clip_printable, format_bytes, format_count, format_duration, wrap_printable,
};
use crate::view::{AddressStrip, Explanation, ProcessExplanation, ProcessStatus};
use hawkeye_policy::PageOrder;

const WIDTH: usize = 80;

/// Everything about a process, in lines of 80 columns. The strip may be wider.
pub fn process_screen_lines(
    why: &Explanation,
    strip: Option<&AddressStrip>,
    chosen: Option<usize>,
    look: &Theme,
) -> Vec<String> {
    match why {
        Explanation::NotManaged { why, .. } => wrapped_lines(&format!("{why}."), 0),
        Explanation::Process(why) => managed_process_lines(why, strip, chosen, look),
        // `top` asks about processes only.
        Explanation::Region(_) => Vec::new(),
    }
}

fn managed_process_lines(
    why: &ProcessExplanation,
    strip: Option<&AddressStrip>,
    chosen: Option<usize>,
    look: &Theme,
) -> Vec<String> {
    let mut lines = process_status_lines(&why.process);
    lines.push(String::new());
    if let Some(strip) = strip {
        lines.extend(strip_lines(strip, chosen, look));
        lines.push(String::new());
    }
    let kept = match why.kept_by.as_slice() {
        [] => "Nothing prevents its promotion.".to_owned(),
        reasons => format!("It is not promoted because {}.", reasons.join("; ")),
    };
    lines.extend(wrapped_lines(&kept, 2));
    if !why.latest.is_empty() {
        lines.push("Latest actions (times since the daemon started):".to_owned());
    }
    for entry in why.latest.iter().rev() {
        let at = format_duration(entry.at_s);
        lines.extend(wrapped_lines(&format!("{at}: {}", entry.text), 2));
    }
    lines
}

fn process_status_lines(process: &ProcessStatus) -> Vec<String> {
    let unit = process.unit.as_ref().or(process.cgroup.as_ref());
    let unit = unit.map_or_else(String::new, |unit| format!(", {unit}"));
    let head = format!("Process {} ({}){unit}", process.pid, process.name);
    let [rss, bloat] = [process.rss_bytes, process.bloat_bytes].map(format_bytes);
    let huge = huge_percent_of_resident(process).unwrap_or(0.0);
    let mut memory = format!("{rss} resident, {huge:.0} % huge");
    if process.bloat_bytes > 0 {
        memory += &format!(", up to {bloat} of that empty");
    }
    if process.shared_bytes > 0 {
        let [shared, huge] = [process.shared_bytes, process.shared_huge_bytes].map(format_bytes);
        memory += &format!("; {shared} is shared memory, {huge} of that huge");
    }
    let [promoted, split, refused] =
        [process.promoted, process.split, process.refused].map(format_count);
    memory += &format!("; promoted {promoted}, split {split}, refused {refused}");
    let mut lines = vec![clip_printable(&head, WIDTH)];
    lines.extend(wrapped_lines(&memory, 2));
    lines.extend(wrapped_lines(&process.translation_cost_text(), 2));
    lines
}

fn strip_lines(strip: &AddressStrip, chosen: Option<usize>, look: &Theme) -> Vec<String> {
    let Some(age_s) = strip.age_s else {
        return vec!["There is no sample of its address space.".to_owned()];
    };
    let regions = format_count(strip.columns.iter().map(|column| column.regions).sum());
    let age = format_duration(age_s);
    let mut lines =
        vec![format!("{regions} regions of {} with memory, sampled {age} ago:", PageOrder::HUGE)];
    lines.extend(address_strip_text::strip_rows(strip, chosen, look));
    lines.push(address_strip_text::LEGEND.to_owned());
    if let Some(column) = chosen.and_then(|n| strip.columns.get(n)) {
        lines.extend(wrapped_lines(&address_strip_text::describe_strip_column(column), 2));
    }
    lines
}

fn wrapped_lines(text: &str, indent: usize) -> Vec<String> {
    wrap_printable(&clip_printable(text, 1000), WIDTH, indent).lines().map(str::to_owned).collect()
}
