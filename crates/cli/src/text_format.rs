//! Formats numbers and names for people.

use hawkeye_policy::{Errno, SharedMemoryTotals};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

/// Bytes in a fitting unit: `4.0 GiB`, `512 MiB`.
pub fn format_bytes(bytes: u64) -> String {
    format_byte_range(bytes..=bytes)
}

/// Bytes in the unit that fits the larger bound: `0.4-4.0 GiB`, or `4.0 GiB` where both bounds look
/// the same.
pub fn format_byte_range(range: RangeInclusive<u64>) -> String {
    let (least, most) = range.into_inner();
    let ([least, most], unit) = figures_in_unit_of_larger([least, most]);
    if least == most { format!("{most} {unit}") } else { format!("{least}-{most} {unit}") }
}

fn figures_in_unit_of_larger(bytes: [u64; 2]) -> ([String; 2], &'static str) {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    let larger = bytes[0].max(bytes[1]);
    let unit = UNITS.into_iter().find(|(_, size)| larger >= *size);
    let (unit, size) = unit.unwrap_or(("bytes", 1));
    let decimals = usize::from(size > 1 && larger < 10 * size);
    (bytes.map(|bytes| format!("{:.decimals$}", bytes as f64 / size as f64)), unit)
}

/// Bytes that are added: `+0.4-4.0 GiB`; `-70 to +5 MiB` where the least is a loss.
pub fn format_added_range(least: i64, most: u64) -> String {
    match u64::try_from(least) {
        Ok(least) => format!("+{}", format_byte_range(least..=most)),
        Err(_) => match figures_in_unit_of_larger([least.unsigned_abs(), most]) {
            ([lost, _], _) if lost.trim_start_matches(['0', '.']).is_empty() => {
                format!("+{}", format_byte_range(0..=most))
            }
            ([lost, added], unit) => format!("-{lost} to +{added} {unit}"),
        },
    }
}

/// A time, rounded to fitting units: `4 s`, `12 min`, `3 h 25 min`, `6 days 4 h`.
pub fn format_duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    let (minutes, hours) = ((seconds + 30) / 60, (seconds + 1800) / 3600);
    if seconds < 60 {
        format!("{seconds} s")
    } else if minutes < 60 {
        format!("{minutes} min")
    } else if minutes < 24 * 60 {
        format!("{} h {} min", minutes / 60, minutes % 60)
    } else {
        format!("{} days {} h", hours / 24, hours % 24)
    }
}

/// A wait: tenths of a second below ten seconds, `0.3 s`.
pub fn format_short_duration(seconds: f64) -> String {
    if seconds < 10.0 { format!("{seconds:.1} s") } else { format_duration(seconds) }
}

/// Wraps a text at spaces into lines of at most `width` characters; all except the first line are
/// indented. Control characters are replaced, because the text may contain names that users chose.
pub fn wrap_printable(text: &str, width: usize, indent: usize) -> String {
    let printable = |word: &str| word.chars().map(printable_char).collect::<String>();
    let words: Vec<String> = text.split_whitespace().map(printable).collect();
    let indent = " ".repeat(indent);
    let options = textwrap::Options::new(width)
        .subsequent_indent(&indent)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(&words.join(" "), options)
}

/// A text in lines of 80 columns.
#[derive(Default)]
pub struct WrappedText(pub String);

impl WrappedText {
    pub fn push_sentence(&mut self, text: impl AsRef<str>) {
        self.0 += &(wrap_printable(text.as_ref(), 80, 0) + "\n");
    }

    pub fn push_list_item(&mut self, text: impl fmt::Display) {
        self.0 += &(wrap_printable(&format!("- {text}"), 80, 2) + "\n");
    }
}

/// A name that users chose, cut to this width, with control characters replaced.
pub fn clip_printable(name: &str, width: usize) -> String {
    let clean = name.chars().map(printable_char);
    if name.chars().count() <= width {
        return clean.collect();
    }
    clean.take(width.saturating_sub(1)).chain(['…']).collect()
}

fn printable_char(c: char) -> char {
    if c.is_control() { '?' } else { c }
}

/// A count with separated thousands: `1,049,132`.
pub fn format_count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub fn format_errno_counts(errors: &BTreeMap<Errno, u64>) -> String {
    let each = errors.iter().map(|(errno, times)| format!("{errno} {times} times"));
    each.collect::<Vec<_>>().join(", ")
}

/// Shared memory of several processes: `64 MiB in 1 file of 2 processes, 60 MiB of it huge`.
pub fn format_shared_memory(totals: &SharedMemoryTotals) -> String {
    let [resident, huge] =
        [totals.memory.resident_bytes, totals.memory.huge_bytes].map(format_bytes);
    let count = |number: usize, one: &str, many: &str| match number {
        1 => format!("1 {one}"),
        _ => format!("{} {many}", format_count(number as u64)),
    };
    let files = count(totals.files, "file", "files");
    let processes = count(totals.processes, "process", "processes");
    format!("{resident} in {files} of {processes}, {huge} of it huge")
}

/// From nothing to a full bar.
pub const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Shares (0-1) as a line of `width` bars.
pub fn sparkline_of_shares(shares: &[f64], width: usize) -> String {
    let width = width.min(shares.len());
    (0..width)
        .map(|column| {
            let share = shares[column * shares.len() / width];
            BARS[(share.clamp(0.0, 1.0) * 8.0).round() as usize]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted() {
        assert_eq!(format_bytes(4 << 30), "4.0 GiB");
        assert_eq!(format_bytes(512 << 20), "512 MiB");
        assert_eq!(format_bytes(17), "17 bytes");
        assert_eq!(format_byte_range(400 << 20..=4 << 30), "0.4-4.0 GiB");
        assert_eq!(format_byte_range(1..=512 << 20), "0-512 MiB");
        assert_eq!(format_byte_range((512 << 20) - 1..=512 << 20), "512 MiB");
        assert_eq!(format_byte_range(3..=17), "3-17 bytes");
        assert_eq!(format_added_range(3 << 20, 5 << 20), "+3.0-5.0 MiB");
        assert_eq!(format_added_range(-(700 << 20), 5 << 20), "-700 to +5 MiB");
        assert_eq!(format_added_range(-(3 << 20), 2 << 30), "+0.0-2.0 GiB");
        assert_eq!(format_added_range(-5, 0), "-5 to +0 bytes");
        assert_eq!(format_count(1_049_132), "1,049,132");
        assert_eq!(format_count(7), "7");
    }

    #[test]
    fn times_are_formatted() {
        assert_eq!(format_duration(59.4), "59 s");
        assert_eq!(format_duration(59.9), "1 min");
        assert_eq!(format_duration(61.0), "1 min");
        assert_eq!(format_duration(239.0), "4 min");
        assert_eq!(format_duration(3599.0), "1 h 0 min");
        assert_eq!(format_duration(3600.0 * 3.5), "3 h 30 min");
        assert_eq!(format_duration(86_400.0 * 2.25), "2 days 6 h");
        assert_eq!(format_duration(-1.0), "0 s");
    }

    #[test]
    fn short_times_have_tenths() {
        assert_eq!(format_short_duration(0.26), "0.3 s");
        assert_eq!(format_short_duration(12.3), "12 s");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap_printable("one two three", 8, 2), "one two\n  three");
        assert_eq!(wrap_printable("indivisible", 4, 2), "indivisible");
        assert_eq!(wrap_printable("", 4, 2), "");
    }

    #[test]
    fn control_characters_in_names_are_replaced() {
        assert_eq!(clip_printable("redis-server", 20), "redis-server");
        assert_eq!(clip_printable("redis-server", 6), "redis…");
        assert_eq!(clip_printable("a\x1b[2Jb\n", 20), "a?[2Jb?");
        let held = "promotion held: cgroup /a\x1b]0;x\x07\u{9b}2J is full";
        let shown = "promotion held: cgroup /a?]0;x??2J is full";
        assert_eq!(wrap_printable(held, 80, 2), shown);
    }

    #[test]
    fn bars_cover_the_whole_time() {
        assert_eq!(sparkline_of_shares(&[0.0, 0.5, 1.0], 3), " ▄█");
        assert_eq!(sparkline_of_shares(&[0.0, 0.0, 1.0, 1.0], 2), " █");
        assert_eq!(sparkline_of_shares(&[], 10), "");
    }
}
