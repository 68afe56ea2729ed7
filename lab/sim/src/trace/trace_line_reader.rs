//! Lines of a stream, one at a time.

use super::error::{Result, TraceError, TracePosition};
use std::io::{BufRead, Read};

/// Longest line; no trace format has longer ones.
const MAX_BYTES: u64 = 4096;

#[derive(Debug)]
pub(super) struct TraceLineReader<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
}

pub(super) enum TraceLine<'a> {
    End,
    Line(&'a str),
    /// A line that is not text, or is too long; it was skipped.
    NoText(String),
    /// A line without an end.
    Cut,
}

impl<R: BufRead> TraceLineReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, line: Vec::new(), number: 0 }
    }

    pub(super) fn position(&self) -> TracePosition {
        TracePosition::Line(self.number)
    }

    pub(super) fn next(&mut self) -> Result<TraceLine<'_>> {
        self.line.clear();
        self.number += 1;
        let position = TracePosition::Line(self.number);
        let failed = |source| trace_read_error(position, source);
        let mut limited = self.input.by_ref().take(MAX_BYTES);
        let read = limited.read_until(b'\n', &mut self.line).map_err(failed)?;
        if read == 0 {
            return Ok(TraceLine::End);
        }
        if let Some(line) = self.line.strip_suffix(b"\n") {
            return Ok(match std::str::from_utf8(line) {
                Ok(line) => TraceLine::Line(line.strip_suffix('\r').unwrap_or(line)),
                Err(_) => TraceLine::NoText(quoted_excerpt(line)),
            });
        }
        if (read as u64) < MAX_BYTES {
            return Ok(TraceLine::Cut);
        }
        self.input.skip_until(b'\n').map_err(failed)?;
        Ok(TraceLine::NoText(quoted_excerpt(&self.line)))
    }
}

/// An error of reading. A compressed file that ends too early gives `Truncated`.
pub(super) fn trace_read_error(position: TracePosition, source: std::io::Error) -> TraceError {
    match source.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            TraceError::Truncated { position, within: "its compressed data" }
        }
        _ => TraceError::Read { position, source },
    }
}

pub(super) fn quoted_excerpt(bytes: &[u8]) -> String {
    const MOST: usize = 60;
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(MOST)]);
    let dots = if bytes.len() > MOST { "..." } else { "" };
    format!("{:?}{dots}", text.trim_end())
}
