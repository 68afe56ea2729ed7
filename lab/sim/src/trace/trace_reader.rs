//! Reader of a trace's accesses, in order.

use super::champsim::{self, ChampSimReader};
use super::error::{Result, TraceError};
use super::parsed_line::{LineParser, ParsedLine};
use super::trace_access::TraceAccess;
use super::trace_format::{TEXTS, TraceFormat};
use super::trace_line_reader::{TraceLine, TraceLineReader, quoted_excerpt};
use std::collections::VecDeque;
use std::fmt;
use std::io::BufRead;

/// How to handle lines and records that are not of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRecordHandling {
    /// The first one is an error and ends the trace.
    Fail,
    /// They are left out and counted; so is an end within a line or record. A failure to read the
    /// input is still an error.
    Skip,
}

/// Iterator that reads a trace as its accesses are requested. It ends after an error.
pub struct TraceReader<R> {
    input: TraceInput<R>,
    /// Accesses of the instruction that was read last.
    waiting: VecDeque<TraceAccess>,
    bad: BadRecordHandling,
    skipped: u64,
    ended: bool,
}

enum TraceInput<R> {
    Text { lines: TraceLineReader<R>, parse: LineParser, expected: &'static str },
    Records(ChampSimReader<R>),
}

impl<R> fmt::Debug for TraceReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace")
            .field("bad", &self.bad)
            .field("skipped", &self.skipped)
            .finish_non_exhaustive()
    }
}

impl<R: BufRead> TraceReader<R> {
    /// A trace of this format, not compressed.
    pub fn new(format: TraceFormat, input: R, bad: BadRecordHandling) -> Self {
        let input = match TEXTS.into_iter().find(|(of, ..)| *of == format) {
            None => TraceInput::Records(ChampSimReader::new(input)),
            Some((_, parse, expected)) => {
                TraceInput::Text { lines: TraceLineReader::new(input), parse, expected }
            }
        };
        Self { input, waiting: VecDeque::new(), bad, skipped: 0, ended: false }
    }

    /// Lines and records left out so far.
    pub fn skipped_records(&self) -> u64 {
        self.skipped
    }

    /// Reads on until there is an access; false at the end.
    fn read_until_access(&mut self) -> Result<bool> {
        while self.waiting.is_empty() {
            let found = match &mut self.input {
                TraceInput::Text { lines, parse, expected } => {
                    read_line(lines, *parse, expected, &mut self.waiting)
                }
                TraceInput::Records(records) => {
                    read_instruction_accesses(records, &mut self.waiting)
                }
            };
            match found {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => self.skip_or_fail(error)?,
            }
        }
        Ok(true)
    }

    /// Skips and counts an error if [`BadRecordHandling::Skip`] is set; else returns it.
    fn skip_or_fail(&mut self, error: TraceError) -> Result<()> {
        let of_input = matches!(error, TraceError::Read { .. });
        if of_input || self.bad == BadRecordHandling::Fail {
            return Err(error);
        }
        self.skipped += 1;
        // A truncated compressed file has nothing after it.
        if matches!(error, TraceError::Truncated { .. }) {
            self.ended = true;
        }
        Ok(())
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<TraceAccess>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended && self.waiting.is_empty() {
            return None;
        }
        match self.read_until_access() {
            Ok(true) => self.waiting.pop_front().map(Ok),
            Ok(false) => {
                self.ended = true;
                None
            }
            Err(error) => {
                self.ended = true;
                Some(Err(error))
            }
        }
    }
}

/// Adds what the next line contains; false at the end.
fn read_line<R: BufRead>(
    lines: &mut TraceLineReader<R>,
    parse: LineParser,
    expected: &'static str,
    waiting: &mut VecDeque<TraceAccess>,
) -> Result<bool> {
    let found = match lines.next()? {
        TraceLine::End => return Ok(false),
        TraceLine::Cut => {
            return Err(TraceError::Truncated { position: lines.position(), within: "a line" });
        }
        TraceLine::NoText(found) => found,
        TraceLine::Line(line) => match parse(line) {
            ParsedLine::Access(access) => {
                waiting.push_back(access);
                return Ok(true);
            }
            ParsedLine::Other => return Ok(true),
            ParsedLine::Bad => quoted_excerpt(line.as_bytes()),
        },
    };
    Err(TraceError::Bad { position: lines.position(), found, expected })
}

fn read_instruction_accesses<R: BufRead>(
    records: &mut ChampSimReader<R>,
    waiting: &mut VecDeque<TraceAccess>,
) -> Result<bool> {
    let found = match records.next()? {
        None => return Ok(false),
        Some(record) if champsim::is_valid_record(record) => {
            waiting.extend(champsim::instruction_accesses(record));
            return Ok(true);
        }
        Some(record) => quoted_excerpt(record),
    };
    Err(TraceError::Bad { position: records.position(), found, expected: champsim::EXPECTED })
}
