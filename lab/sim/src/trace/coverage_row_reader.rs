//! This project's recordings: coverage over time, as the manager saw it. Other tables are ignored.

use super::error::Result;
use super::trace_reader::BadRecordHandling;
use hawkeye_recording::{CoverageRow, RecordingError, RecordingRow, RecordingRows};
use std::path::Path;

/// Iterator that reads a recording as its rows are requested. A recording without an end is read as
/// far as it was written. The iterator ends after an error.
pub struct CoverageRowReader {
    rows: RecordingRows,
    bad: BadRecordHandling,
    skipped: u64,
    ended: bool,
}

impl CoverageRowReader {
    /// Opens a file. With [`BadRecordHandling::Skip`], rows with impossible values are left out and
    /// counted. Data that can't be decoded is an error nevertheless.
    ///
    /// # Errors
    /// The file can't be opened, or is no recording that this version can read.
    pub fn open(path: &Path, bad: BadRecordHandling) -> Result<Self> {
        Ok(Self { rows: RecordingRows::open(path)?, bad, skipped: 0, ended: false })
    }

    /// Rows left out so far.
    pub fn skipped_rows(&self) -> u64 {
        self.skipped
    }
}

impl Iterator for CoverageRowReader {
    type Item = Result<CoverageRow>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            match self.rows.next()? {
                Err(RecordingError::Value { .. }) if self.bad == BadRecordHandling::Skip => {
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
