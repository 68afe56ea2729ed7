//! Valgrind's lackey with `--trace-mem=yes` (Valgrind manual, chapter 13; `lackey/lk_main.c`):
//! instructions as `I addr,size`, data as ` L addr,size`, ` S` and ` M`; addresses are hexadecimal,
//! sizes decimal.

use super::parsed_line::{ParsedLine, parse_decimal, parse_hex};
use super::{AccessKind, TraceAccess};

pub(super) const EXPECTED: &str =
    "\"I  ADDRESS,SIZE\", \" L ADDRESS,SIZE\", \" S ADDRESS,SIZE\" or \" M ADDRESS,SIZE\"";

pub(super) fn parse_line(line: &str) -> ParsedLine {
    match parse_access(line) {
        Some(access) => ParsedLine::Access(access),
        None if is_valgrind_message(line) => ParsedLine::Other,
        None => ParsedLine::Bad,
    }
}

fn parse_access(line: &str) -> Option<TraceAccess> {
    let (kind, rest) = match line.get(..3)? {
        "I  " => (AccessKind::Fetch, &line[3..]),
        " L " => (AccessKind::Load, &line[3..]),
        " S " => (AccessKind::Store, &line[3..]),
        " M " => (AccessKind::Modify, &line[3..]),
        _ => return None,
    };
    let (address, bytes) = rest.split_once(',')?;
    let mut access = TraceAccess::new(kind, parse_hex(address)?);
    access.bytes = Some(u32::try_from(parse_decimal(bytes)?).ok()?);
    Some(access)
}

/// Valgrind's own messages, `==PID== text` and `--PID-- text`, superblocks, and empty lines.
fn is_valgrind_message(line: &str) -> bool {
    let framed = |mark: &str| {
        let rest = line.strip_prefix(mark).and_then(|rest| rest.split_once(mark));
        rest.is_some_and(|(pid, _)| parse_decimal(pid).is_some())
    };
    let superblock = line.strip_prefix("SB ").and_then(parse_hex);
    line.is_empty() || framed("==") || framed("--") || superblock.is_some()
}
