//! Our own recordings: coverage over time, as the manager saw it. What else is in them is passed over.

use super::error::TraceError;
use super::reader::BadRecords;
use hawkeye_recording::{CoverageRow, RecordingError, RecordingRows, Row};
use std::path::Path;

/// A recording that is read as its rows are asked for; one that was not ended, as far as it was written down. After an error there is nothing more.
pub struct Recording {
    rows: RecordingRows,
    bad: BadRecords,
    skipped: u64,
    ended: bool,
}

impl Recording {
    /// Opens a file. With [`BadRecords::Skip`] rows with values that can't be are left out and counted; what can't
    /// be decoded at all is an error nevertheless.
    ///
    /// # Errors
    ///
    /// It can't be opened, or is no recording that this version can read.
    pub fn open(path: &Path, bad: BadRecords) -> Result<Self, TraceError> {
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

impl Iterator for Recording {
    type Item = Result<CoverageRow, TraceError>;

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
                Ok(Row::Region(row)) => return Some(Ok(row)),
                Ok(_) => {}
            }
        }
        None
    }
}
