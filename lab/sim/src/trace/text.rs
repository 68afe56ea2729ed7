//! Lines of a stream, one at a time.

use super::error::{Position, Result, TraceError};
use std::io::{BufRead, Read};

/// Longest line; no trace format has longer ones.
const MAX_BYTES: u64 = 4096;

/// Reads lines into a buffer of its own.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    /// Number of the line in the buffer.
    number: u64,
}

pub(super) enum Next<'a> {
    End,
    Line(&'a str),
    /// A line that is not text, or is too long; it was skipped.
    NoText(String),
    /// A line without an end.
    Cut,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            line: Vec::new(),
            number: 0,
        }
    }

    pub(super) fn position(&self) -> Position {
        Position::Line(self.number)
    }

    pub(super) fn next(&mut self) -> Result<Next<'_>> {
        self.line.clear();
        self.number += 1;
        let position = Position::Line(self.number);
        let failed = |source| failed(position, source);
        let mut limited = self.input.by_ref().take(MAX_BYTES);
        let read = limited.read_until(b'\n', &mut self.line).map_err(failed)?;
        if read == 0 {
            return Ok(Next::End);
        }
        if let Some(line) = self.line.strip_suffix(b"\n") {
            return Ok(match std::str::from_utf8(line) {
                Ok(line) => Next::Line(line.strip_suffix('\r').unwrap_or(line)),
                Err(_) => Next::NoText(shown(line)),
            });
        }
        if (read as u64) < MAX_BYTES {
            return Ok(Next::Cut);
        }
        self.input.skip_until(b'\n').map_err(failed)?;
        Ok(Next::NoText(shown(&self.line)))
    }
}

/// An error of reading. A compressed file that ends too early gives `Truncated`.
pub(super) fn failed(position: Position, source: std::io::Error) -> TraceError {
    match source.kind() {
        std::io::ErrorKind::UnexpectedEof => TraceError::Truncated {
            position,
            within: "its compressed data",
        },
        _ => TraceError::Read { position, source },
    }
}

/// The beginning of the bytes, in readable form.
pub(super) fn shown(bytes: &[u8]) -> String {
    const MOST: usize = 60;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]);
    let dots = if bytes.len() > MOST { "..." } else { "" };
    format!("{:?}{dots}", text.trim_end())
}
