//! Traces of memory accesses that other tools made, read as a stream: at most a few lines or
//! records of a trace are in memory at a time.
//!
//! | [`TraceFormat`] | made by | what it tells |
//! |---|---|---|
//! | `Lackey` | `valgrind --tool=lackey --trace-mem=yes` | every access and instruction, of all threads in one |
//! | `ChampSim` | ChampSim's tracers; 64 bytes an instruction, plain or `.xz` | instructions and addresses, no sizes |
//! | `Drmemtrace` | `drrun -t drmemtrace -tool view`, the text it prints | every access and instruction, with its thread |
//! | `PerfScript` | `perf script -F comm,pid,time,event,addr` of `perf mem record` | samples of accesses, with process and time |
//!
//! [`CoverageRowReader`]s are this project's own format: coverage over time, as the live or the
//! simulated manager saw it, in Parquet.
//!
//! Drmemtrace's own files (`.zip`, `.raw`) are not read: their layout depends on the version of
//! DynamoRIO that wrote them. That version's view tool prints their content. ChampSim's CloudSuite
//! traces are not read either, because their records are longer.
//!
//! ```
//! use hawkeye_sim::trace::{AccessKind, BadRecords, TraceReader, TraceFormat};
//!
//! let text = "I  0023c790,2\n S 1ffefffb8,8\n M 0421f000,4\n";
//! let trace = TraceReader::new(TraceFormat::Lackey, text.as_bytes(), BadRecords::Fail);
//! let accesses = trace.collect::<Result<Vec<_>, _>>()?;
//! assert_eq!((accesses[1].kind, accesses[1].address), (AccessKind::Store, 0x1_ffef_ffb8));
//! # Ok::<(), hawkeye_sim::trace::TraceError>(())
//! ```

use hawkeye_recording::RecordingError;
use std::path::PathBuf;
use std::{fmt, io};
use thiserror::Error;

mod champsim;
mod drmemtrace;
mod lackey;
mod perf_script;
mod reader;
mod text;

pub use reader::{BadRecords, CoverageRowReader, TraceFormat, TraceReader};

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// Reads.
    Load,
    /// Writes.
    Store,
    /// Reads and then writes the same address.
    Modify,
    /// Fetches an instruction.
    Fetch,
}

/// One access of a trace. A field that the format lacks is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceAccess {
    /// What it does.
    pub kind: AccessKind,
    /// Address of its first byte. May be in a kernel's memory, if the trace contains that.
    pub address: u64,
    /// Number of bytes.
    pub bytes: Option<u32>,
    /// The thread; for `perf script` without thread ids, the process.
    pub thread: Option<u64>,
    /// Time, in nanoseconds of the trace's own clock.
    pub time_ns: Option<u64>,
}

impl TraceAccess {
    const fn new(kind: AccessKind, address: u64) -> Self {
        Self {
            kind,
            address,
            bytes: None,
            thread: None,
            time_ns: None,
        }
    }
}

/// Position in a trace, after decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePosition {
    /// A line, counted from 1.
    Line(u64),
    /// A byte, counted from 0.
    Byte(u64),
}

impl fmt::Display for TracePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

type Result<T, E = TraceError> = std::result::Result<T, E>;

/// Why a trace, or the rest of it, can't be read.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The file can't be opened.
    #[error("can't open the trace {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Reading failed.
    #[error("can't read the trace at {position}: {source}")]
    Read {
        /// The last position.
        position: TracePosition,
        /// The reason.
        source: io::Error,
    },
    /// A line or record is not of the format.
    #[error("{position}: {found} is not a valid line or record of the trace: expected {expected}")]
    Bad {
        /// Its position.
        position: TracePosition,
        /// Its content.
        found: String,
        /// What a valid one contains.
        expected: &'static str,
    },
    /// The trace ends within a line, a record or a compressed file.
    #[error("{position}: the trace ends within {within}; it was cut off: record or copy it again")]
    Truncated {
        /// Where the line or record begins.
        position: TracePosition,
        /// What it ends within.
        within: &'static str,
    },
    /// The content has no known format.
    #[error(
        "{0} is not a trace in a known format: expected the text of lackey, of drmemtrace's view tool or of \
         perf script, or a ChampSim trace"
    )]
    Unknown(String),
    /// An error of a recording.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The format is known but not supported.
    #[error("{name} is {what}, which is not supported: {instead}")]
    Unsupported {
        /// Name of the file.
        name: String,
        /// Name of the format.
        what: &'static str,
        /// What to do instead.
        instead: &'static str,
    },
}
