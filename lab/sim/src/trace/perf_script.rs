//! `perf script` of what `perf mem record` recorded (`tools/perf/builtin-script.c`). A line has a
//! command, a process (and thread), a time, an event and the accessed address. That is what `perf
//! script -F comm,pid,time,event,addr` prints; more fields may stand in between and after them.
//!
//! These are samples: one access of thousands.

use super::parsed_line::{ParsedLine, parse_decimal, parse_hex};
use super::{AccessKind, TraceAccess};

pub(super) const EXPECTED: &str = "\"COMMAND PID SECONDS.MICROSECONDS: EVENT: ADDRESS\" with an event of loads or stores, as \
     perf script -F comm,pid,time,event,addr prints it";

pub(super) fn parse_line(line: &str) -> ParsedLine {
    if line.is_empty() || line.starts_with('#') {
        return ParsedLine::Other;
    }
    parse_sample(line).unwrap_or(ParsedLine::Bad)
}

fn parse_sample(line: &str) -> Option<ParsedLine> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    // Commands can contain blanks; only times have their form.
    let at = words.iter().position(|word| parse_time_ns(word).is_some())?;
    let time = parse_time_ns(words.get(at)?)?;
    // A processor such as [000] may stand between.
    let who = words.get(..at)?.iter().rev().find(|word| !word.starts_with('['))?;
    let thread = parse_decimal(who.rsplit_once('/').map_or(*who, |(_, thread)| thread))?;
    let rest = words.get(at + 1..)?;
    // The sample's period may stand before the event.
    let event = rest.iter().position(|word| word.ends_with(':'))?;
    let name = rest.get(event)?;
    let address = parse_hex(rest.get(event + 1)?)?;
    if event > 1 || event == 1 && parse_decimal(rest.first()?).is_none() {
        return None;
    }
    if address == 0 {
        // A sample without an address from the processor.
        return Some(ParsedLine::Other);
    }
    Some(ParsedLine::Access(TraceAccess {
        thread: Some(thread),
        time_ns: Some(time),
        ..TraceAccess::new(sample_access_kind(name, line)?, address)
    }))
}

/// The kind in the sample's data source, or else in its event's name.
fn sample_access_kind(event: &str, line: &str) -> Option<AccessKind> {
    let operation = line.split_once("|OP ").map(|(_, operation)| operation);
    match operation {
        Some(operation) if operation.starts_with("STORE") => Some(AccessKind::Store),
        Some(operation) if operation.starts_with("LOAD") => Some(AccessKind::Load),
        _ if event.contains("store") => Some(AccessKind::Store),
        _ if event.contains("load") => Some(AccessKind::Load),
        _ => None,
    }
}

/// `SECONDS.FRACTION:`, with six digits or nine.
fn parse_time_ns(word: &str) -> Option<u64> {
    let (seconds, fraction) = word.strip_suffix(':')?.split_once('.')?;
    let nanoseconds = match fraction.len() {
        6 => parse_decimal(fraction)? * 1000,
        9 => parse_decimal(fraction)?,
        _ => return None,
    };
    if seconds.is_empty() {
        return None;
    }
    parse_decimal(seconds)?.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}
