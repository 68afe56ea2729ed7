//! Numbers in lines of text.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParsedLine {
    Access(super::TraceAccess),
    /// A line that is not about an access.
    Other,
    Bad,
}

pub(super) type LineParser = fn(&str) -> ParsedLine;

/// Digits of this base and nothing else. (The standard parser accepts a sign too.)
pub(super) fn parse_digits_only(digits: &str, base: u32) -> Option<u64> {
    let all = digits.bytes().all(|digit| char::from(digit).is_digit(base));
    if all { u64::from_str_radix(digits, base).ok() } else { None }
}

pub(super) fn parse_hex(digits: &str) -> Option<u64> {
    parse_digits_only(digits, 16)
}

pub(super) fn parse_decimal(digits: &str) -> Option<u64> {
    parse_digits_only(digits, 10)
}
