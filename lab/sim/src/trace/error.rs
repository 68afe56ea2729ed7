//! What can be wrong with a trace.

use hawkeye_recording::RecordingError;
use std::fmt;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Where in a trace, after unpacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// A line, the first being 1.
    Line(u64),
    /// A byte, the first being 0.
    Byte(u64),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(line) => write!(f, "line {line}"),
            Self::Byte(byte) => write!(f, "byte {byte}"),
        }
    }
}

/// A trace that can't be read, or not from some place on.
#[derive(Debug, Error)]
pub enum TraceError {
    /// A file that can't be opened.
    #[error("can't open the trace {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Input that can't be read on.
    #[error("can't read the trace on from {position}: {source}")]
    Read {
        /// Where it ended.
        position: Position,
        /// Why.
        source: io::Error,
    },
    /// A line or record that is not of the format.
    #[error("{position}: {found} is no line or record of the trace, but should be {expected}")]
    Bad {
        /// Where.
        position: Position,
        /// What is there.
        found: String,
        /// What would be right.
        expected: &'static str,
    },
    /// An end within a line, a record or a compressed file.
    #[error("{position}: the trace ends within {within}; it was cut off: record or copy it again")]
    Truncated {
        /// Where the line or record begins.
        position: Position,
        /// In what it ends.
        within: &'static str,
    },
    /// Content of no format that is known.
    #[error(
        "{name} is no trace that can be read: it should be the text of lackey, of drmemtrace's view tool or of \
         perf script, or a ChampSim trace"
    )]
    Unknown {
        /// What it is called.
        name: String,
    },
    /// One of our own recordings.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// Content that is known and not read.
    #[error("{name} is {what}, which is not read: {instead}")]
    Unsupported {
        /// What it is called.
        name: String,
        /// What it is.
        what: &'static str,
        /// What to do.
        instead: &'static str,
    },
}
