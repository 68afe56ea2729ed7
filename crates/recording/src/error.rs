//! What can be wrong with a recording.

use parquet::errors::ParquetError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A file that can't be written, or can't be read, or not from some row on.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// A file that can't be opened.
    #[error("can't open {}: {error}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A file or folder that can't be made, moved or removed.
    #[error("can't write {}: {error}", path.display())]
    Create {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Something wrong with a part of a recording that was not ended.
    #[error("{}: {error}", path.display())]
    Part {
        /// The part.
        path: PathBuf,
        /// What.
        error: Box<RecordingError>,
    },
    /// A recording that was not ended, and of which no part was finished.
    #[error("{} holds nothing: the recording was ended by force within its first minute", .0.display())]
    NoParts(PathBuf),
    /// A file that can't be written on.
    #[error("can't write the Parquet file: {0}")]
    Write(ParquetError),
    /// No Parquet file, or one that was cut off: its directory is at its end.
    #[error("this is no whole Parquet file ({0}); if it was cut off, record or copy it again")]
    NotParquet(ParquetError),
    /// Parquet of somebody else's, or the other table.
    #[error("this Parquet file holds {found}, but should hold HawkEye's table {wanted:?}")]
    OtherTable {
        /// What it says of itself.
        found: String,
        /// What was to be read.
        wanted: &'static str,
    },
    /// Written by a newer version.
    #[error(
        "this file has version {found} of the table {table:?}, and this program knows version {known}: use a newer hawkeye"
    )]
    Newer {
        /// Which table.
        table: &'static str,
        /// Its version in the file.
        found: u32,
        /// The newest that is known.
        known: u32,
    },
    /// A column is missing or holds something else.
    #[error("the column {column:?} of the table {table:?} {problem}")]
    Column {
        /// Which table.
        table: &'static str,
        /// Which column.
        column: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Data that can't be decoded.
    #[error("row {row} and those after it can't be read: {message}")]
    Read {
        /// The first such row of the file, from 0.
        row: u64,
        /// Why.
        message: String,
    },
    /// A value that can't be. The rows after it can be read.
    #[error("row {row}: {column} must be {allowed}, not {found}")]
    Value {
        /// Which row of the file, from 0.
        row: u64,
        /// Which column.
        column: &'static str,
        /// What it can be.
        allowed: &'static str,
        /// What it is.
        found: String,
    },
}

impl RecordingError {
    /// Whether the sentence says which file it is about.
    pub fn names_file(&self) -> bool {
        matches!(
            self,
            Self::Open { .. } | Self::Create { .. } | Self::Part { .. } | Self::NoParts(_)
        )
    }
}
