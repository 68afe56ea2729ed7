//! Errors of recordings.

use parquet::errors::ParquetError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

pub(crate) type Result<T, E = RecordingError> = std::result::Result<T, E>;

/// A file that cannot be written, cannot be read, or can be read only up to some row.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum RecordingError {
    #[error("can't open {}: {error}", path.display())]
    Open { path: PathBuf, error: io::Error },
    /// A file or folder that cannot be created, moved or removed.
    #[error("can't write {}: {error}", path.display())]
    Create { path: PathBuf, error: io::Error },
    /// Something at the place of a recording that must not be renamed, such as a device.
    #[error("can't record to {}: it exists and is not {wanted}; name another path", path.display())]
    InTheWay { path: PathBuf, wanted: &'static str },
    /// The recording could not become a file. Its finished parts are in this folder.
    #[error("it stays in {}: {error}", folder.display())]
    StaysInParts { folder: PathBuf, error: Box<RecordingError> },
    #[error("{}: {error}", path.display())]
    Part { path: PathBuf, error: Box<RecordingError> },
    #[error("{} is empty so far: a recording writes its first minute when that is over; if none runs, it was killed before", .0.display())]
    NoParts(PathBuf),
    #[error("can't write the Parquet file: {0}")]
    Write(ParquetError),
    /// Not a Parquet file, or a truncated one: its directory is at its end.
    #[error(
        "this is not a complete Parquet file ({0}); if it was cut off, record or copy it again"
    )]
    NotParquet(ParquetError),
    /// A Parquet file of another program, or of the other table.
    #[error("this Parquet file holds {found}, but should hold HawkEye's table {wanted:?}")]
    OtherTable {
        /// What the file says that it holds.
        found: String,
        wanted: &'static str,
    },
    #[error(
        "this file has version {found} of the table {table:?}, and this program knows version {known}: use a newer hawkeye"
    )]
    Newer {
        table: &'static str,
        /// Its version in the file.
        found: u32,
        /// The newest version that this program knows.
        known: u32,
    },
    #[error("the column {column:?} of the table {table:?} {problem}")]
    Column { table: &'static str, column: &'static str, problem: &'static str },
    /// Data that cannot be decoded.
    #[error("row {row} and those after it can't be read: {message}")]
    Read {
        /// The first such row of the file, from 0.
        row: u64,
        message: String,
    },
    /// An invalid value. The rows after it can be read.
    #[error("row {row}: {column} must be {allowed}, not {found}")]
    Value {
        /// The row of the file, from 0.
        row: u64,
        column: &'static str,
        allowed: &'static str,
        found: String,
    },
}

impl RecordingError {
    /// Whether the message names the file.
    pub fn message_names_file(&self) -> bool {
        matches!(
            self,
            Self::Open { .. }
                | Self::Create { .. }
                | Self::InTheWay { .. }
                | Self::StaysInParts { .. }
                | Self::Part { .. }
                | Self::NoParts(_)
        )
    }
}
