//! Detects a trace's format, opens it, and reads its accesses in order. Reads recordings too.

use super::champsim::ChampSimReader;
use super::text::{LineParser, ParsedLine, TraceLine, TraceLineReader, excerpt, trace_read_error};
use super::{
    Result, TraceAccess, TraceError, TracePosition, champsim, drmemtrace, lackey, perf_script,
};
use hawkeye_recording::{CoverageRow, RecordingError, RecordingRow, RecordingRows};
use lzma_rust2::XzReader;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::{fmt, io};

/// How to handle lines and records that are not of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRecords {
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
    bad: BadRecords,
    skipped: u64,
    ended: bool,
}

enum TraceInput<R> {
    Text {
        lines: TraceLineReader<R>,
        parse: LineParser,
        expected: &'static str,
    },
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
    pub fn new(format: TraceFormat, input: R, bad: BadRecords) -> Self {
        let input = match TEXTS.into_iter().find(|(of, ..)| *of == format) {
            None => TraceInput::Records(ChampSimReader::new(input)),
            Some((_, parse, expected)) => TraceInput::Text {
                lines: TraceLineReader::new(input),
                parse,
                expected,
            },
        };
        Self {
            input,
            waiting: VecDeque::new(),
            bad,
            skipped: 0,
            ended: false,
        }
    }

    /// Lines and records left out so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Reads on until there is an access; false at the end.
    fn advance(&mut self) -> Result<bool> {
        while self.waiting.is_empty() {
            let found = match &mut self.input {
                TraceInput::Text {
                    lines,
                    parse,
                    expected,
                } => next_line(lines, *parse, expected, &mut self.waiting),
                TraceInput::Records(records) => next_record(records, &mut self.waiting),
            };
            match found {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => self.skip_or_fail(error)?,
            }
        }
        Ok(true)
    }

    /// Skips and counts an error if [`BadRecords::Skip`] is set; else returns it.
    fn skip_or_fail(&mut self, error: TraceError) -> Result<()> {
        let of_input = matches!(error, TraceError::Read { .. });
        if of_input || self.bad == BadRecords::Fail {
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
        match self.advance() {
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
fn next_line<R: BufRead>(
    lines: &mut TraceLineReader<R>,
    parse: LineParser,
    expected: &'static str,
    waiting: &mut VecDeque<TraceAccess>,
) -> Result<bool> {
    let found = match lines.next()? {
        TraceLine::End => return Ok(false),
        TraceLine::Cut => {
            return Err(TraceError::Truncated {
                position: lines.position(),
                within: "a line",
            });
        }
        TraceLine::NoText(found) => found,
        TraceLine::Line(line) => match parse(line) {
            ParsedLine::Access(access) => {
                waiting.push_back(access);
                return Ok(true);
            }
            ParsedLine::Other => return Ok(true),
            ParsedLine::Bad => excerpt(line.as_bytes()),
        },
    };
    Err(TraceError::Bad {
        position: lines.position(),
        found,
        expected,
    })
}

fn next_record<R: BufRead>(
    records: &mut ChampSimReader<R>,
    waiting: &mut VecDeque<TraceAccess>,
) -> Result<bool> {
    let found = match records.next()? {
        None => return Ok(false),
        Some(record) if champsim::is_record(record) => {
            waiting.extend(champsim::data_accesses(record));
            return Ok(true);
        }
        Some(record) => excerpt(record),
    };
    Err(TraceError::Bad {
        position: records.position(),
        found,
        expected: champsim::EXPECTED,
    })
}

/// Size of the beginning of a trace that format detection reads.
const BEGIN_BYTES: u64 = 1 << 16;

/// Memory limit of decompression: four times the dictionary of `xz -9`.
const MOST_XZ_KIB: u32 = 256 << 10;
const XZ: &[u8] = b"\xfd7zXZ\0";
/// Known formats that are not read: their first bytes, their name, and what to do instead.
const OTHERS: [(&[u8], &str, &str); 4] = [
    (
        b"PAR1",
        "a Parquet file, perhaps one of our recordings",
        "that holds coverage and no accesses: replay it with hawkeye-lab sim run --recording",
    ),
    (
        b"PK\x03\x04",
        "a zip archive, perhaps drmemtrace's own",
        "have its text printed by drrun -t drmemtrace -indir DIRECTORY -tool view",
    ),
    (b"\x1f\x8b", "compressed by gzip", "unpack it with gzip -d"),
    (
        b"\x28\xb5\x2f\xfd",
        "compressed by zstd",
        "unpack it with zstd -d",
    ),
];

impl TraceReader<Box<dyn BufRead>> {
    /// Opens a file of any known format, compressed by xz or not.
    ///
    /// # Errors
    /// The file can't be opened or read, or its format is not supported: see [`TraceError`].
    pub fn open(path: &Path, bad: BadRecords) -> Result<Self> {
        let file = File::open(path).map_err(|source| TraceError::Open {
            path: path.to_owned(),
            source,
        })?;
        let name = path.file_name().unwrap_or(path.as_os_str());
        Self::detect(&name.to_string_lossy(), BufReader::new(file), bad)
    }

    /// Like [`open`](Self::open), for any input with this name.
    pub fn detect(name: &str, input: impl BufRead + 'static, bad: BadRecords) -> Result<Self> {
        let (begin, input) = read_beginning(input)?;
        if !begin.starts_with(XZ) {
            return open_detected(name, &begin, input, bad);
        }
        let (begin, input) = read_beginning(XzReader::new_mem_limit(input, true, MOST_XZ_KIB))?;
        open_detected(name, &begin, input, bad)
    }
}

fn open_detected(
    name: &str,
    begin: &[u8],
    input: impl BufRead + 'static,
    bad: BadRecords,
) -> Result<TraceReader<Box<dyn BufRead>>, TraceError> {
    if let Some((_, what, instead)) = OTHERS.iter().find(|(magic, ..)| begin.starts_with(magic)) {
        return Err(TraceError::Unsupported {
            name: name.to_owned(),
            what,
            instead,
        });
    }
    match TraceFormat::detect(name, begin) {
        Some(format) => Ok(TraceReader::new(format, Box::new(input), bad)),
        None => Err(TraceError::Unknown(name.to_owned())),
    }
}

fn read_beginning<R: Read>(mut input: R) -> Result<(Vec<u8>, impl BufRead + use<R>)> {
    let mut begin = Vec::new();
    let read = input.by_ref().take(BEGIN_BYTES).read_to_end(&mut begin);
    let error = match read {
        Err(error) if begin.is_empty() => {
            return Err(trace_read_error(TracePosition::Byte(0), error));
        }
        read => read.err(),
    };
    let rest = BufReader::new(RestOfInput { error, input });
    Ok((begin.clone(), Cursor::new(begin).chain(rest)))
}

/// Input after its beginning. An error from reading the beginning is returned first.
struct RestOfInput<R> {
    error: Option<io::Error>,
    input: R,
}

impl<R: Read> Read for RestOfInput<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.error.take() {
            Some(error) => Err(error),
            None => self.input.read(into),
        }
    }
}

/// Formats that can be read. Compression by xz is detected automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFormat {
    /// Valgrind's lackey.
    Lackey,
    /// ChampSim.
    ChampSim,
    /// The text of drmemtrace's view tool.
    Drmemtrace,
    /// The text of `perf script`.
    PerfScript,
}

/// Text formats, each with its line parser and with what a valid line contains.
pub(super) const TEXTS: [(TraceFormat, LineParser, &str); 3] = [
    (TraceFormat::Lackey, lackey::parse, lackey::EXPECTED),
    (
        TraceFormat::Drmemtrace,
        drmemtrace::parse,
        drmemtrace::EXPECTED,
    ),
    (
        TraceFormat::PerfScript,
        perf_script::parse,
        perf_script::EXPECTED,
    ),
];

impl TraceFormat {
    /// The format of a trace with this name and this beginning; `None` if it is no known trace.
    ///
    /// Text has the format that parses its first access. Else it is ChampSim's if every whole
    /// record in `begin` is valid, and the name says so or there are at least two records.
    pub fn detect(name: &str, begin: &[u8]) -> Option<Self> {
        let text = match std::str::from_utf8(begin) {
            Ok(text) => text,
            // The last character may be cut off.
            Err(error) if error.error_len().is_none() => {
                std::str::from_utf8(&begin[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(_) => "",
        };
        if !text.is_empty() && !text.contains('\0') {
            return Self::of_text(text);
        }
        let records = begin.chunks_exact(champsim::RECORD_BYTES);
        let enough = if name.to_lowercase().contains("champsim") {
            1
        } else {
            2
        };
        let possible = records.len() >= enough && records.clone().all(champsim::is_record);
        possible.then_some(Self::ChampSim)
    }

    fn of_text(text: &str) -> Option<Self> {
        text.lines().find_map(|line| {
            let is_access = |parse: &LineParser| matches!(parse(line), ParsedLine::Access(_));
            if line.starts_with("<--record#->") {
                return Some(Self::Drmemtrace);
            }
            let found = TEXTS.iter().find(|(_, parse, _)| is_access(parse));
            found.map(|(format, ..)| *format)
        })
    }
}

/// Iterator that reads a recording as its rows are requested. A recording without an end is read as
/// far as it was written. The iterator ends after an error.
pub struct CoverageRowReader {
    rows: RecordingRows,
    bad: BadRecords,
    skipped: u64,
    ended: bool,
}

impl CoverageRowReader {
    /// Opens a file. With [`BadRecords::Skip`], rows with impossible values are left out and
    /// counted. Data that can't be decoded is an error nevertheless.
    ///
    /// # Errors
    /// The file can't be opened, or is no recording that this version can read.
    pub fn open(path: &Path, bad: BadRecords) -> Result<Self> {
        Ok(Self {
            rows: RecordingRows::open(path)?,
            bad,
            skipped: 0,
            ended: false,
        })
    }

    /// Rows left out so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }
}

impl Iterator for CoverageRowReader {
    type Item = Result<CoverageRow>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.rows.next()? {
                Err(RecordingError::Value { .. }) if self.bad == BadRecords::Skip => {
                    self.skipped += 1;
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error.into()));
                }
                Ok(RecordingRow::Region(row)) => return Some(Ok(row)),
                Ok(_) => {}
            }
        }
        None
    }
}
