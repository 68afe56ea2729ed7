//! Errors of traces.

use hawkeye_recording::RecordingError;
use std::fmt;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

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

pub(super) type Result<T, E = TraceError> = std::result::Result<T, E>;

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
