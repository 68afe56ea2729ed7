//! The text that drmemtrace's view tool prints (DynamoRIO, `clients/drcachesim/tools/view.cpp`). A
//! line has a record number, an instruction number, a colon and a thread. Then follows `read`,
//! `write` or `ifetch` with `SIZE byte(s) @ 0xADDRESS`, a marker, or something that is no access of
//! the program.

use super::parsed_line::{ParsedLine, parse_decimal, parse_hex};
use super::{AccessKind, TraceAccess};

pub(super) const EXPECTED: &str = "\"RECORD INSTRUCTION: THREAD read|write|ifetch SIZE byte(s) @ 0xADDRESS ...\" or a marker in <>";

pub(super) fn parse_line(line: &str) -> ParsedLine {
    if is_header(line) {
        return ParsedLine::Other;
    }
    parse_record(line).unwrap_or(ParsedLine::Bad)
}

fn parse_record(line: &str) -> Option<ParsedLine> {
    let (numbers, rest) = line.split_once(':')?;
    let mut numbers = numbers.split_ascii_whitespace();
    parse_decimal(numbers.next()?)?;
    parse_decimal(numbers.next()?)?;
    if numbers.next().is_some() {
        return None;
    }
    let (thread, details) = rest.trim_start().split_once(' ')?;
    // Older versions write T before it; newer ones may write the workload's number too: W0.T1.
    let digits = thread.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    let thread = parse_decimal(thread.get(digits..)?).filter(|_| digits < thread.len())?;
    let details = details.trim();
    if details.starts_with('<') && details.ends_with('>') {
        return Some(ParsedLine::Other);
    }
    let mut words = details.split_ascii_whitespace();
    let kind = match words.next()? {
        "read" => Some(AccessKind::Load),
        "write" => Some(AccessKind::Store),
        "ifetch" => Some(AccessKind::Fetch),
        "iflush" | "dflush" => None,
        name if name.starts_with("pref") => None,
        // Bytes of an instruction that did not fit in the line above.
        bytes => {
            let pairs = std::iter::once(bytes).chain(words);
            let mut pairs = pairs.map(|pair| pair.len() == 2 && parse_hex(pair).is_some());
            return pairs.all(|is| is).then_some(ParsedLine::Other);
        }
    };
    let bytes = parse_decimal(words.next()?)?;
    if (words.next()?, words.next()?) != ("byte(s)", "@") {
        return None;
    }
    let address = parse_hex(words.next()?.strip_prefix("0x")?)?;
    let Some(kind) = kind else {
        return Some(ParsedLine::Other);
    };
    Some(ParsedLine::Access(TraceAccess {
        bytes: Some(u32::try_from(bytes).ok()?),
        thread: Some(thread),
        ..TraceAccess::new(kind, address)
    }))
}

pub(super) fn is_header(line: &str) -> bool {
    let total = line.trim_start().split_once(" : ");
    line.is_empty()
        || line.starts_with("Output format:")
        || line.starts_with("<--record#->")
        || line.starts_with("View tool results:")
        || line.len() > 10 && line.bytes().all(|byte| byte == b'-')
        || total.is_some_and(|(count, what)| {
            parse_decimal(count).is_some() && what.starts_with("total ")
        })
}
