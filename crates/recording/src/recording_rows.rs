//! Reads recordings in either form: a file, or the parts of a recording that was not ended.

use crate::part_files::{list_finished_parts, part_folder_of_recording};
use crate::recording_error::RecordingError;
use crate::recording_metadata::RecordingMetadata;
use crate::recording_reader::RecordingReader;
use crate::row_types::RecordingRow;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The rows of a recording, ended or not. Without an end, times count from its first row, even
/// where a later part is from a manager that was started anew. In a folder that keeps only the
/// newest parts, the start may be long ago.
pub struct RecordingRows {
    about: RecordingMetadata,
    unfinished: bool,
    reader: Option<OpenPartReader>,
    rest: std::vec::IntoIter<PathBuf>,
    /// Offset subtracted from times in the first part.
    first_at: Duration,
    /// Start of the first part.
    first_began: Option<Duration>,
}

struct OpenPartReader {
    path: PathBuf,
    reader: RecordingReader<File>,
    /// How much later it began than the first part.
    later: Duration,
}

impl RecordingRows {
    /// Opens the recording at a path. Without an end, its rows are those written so far.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let folder = part_folder_of_recording(path);
        if path.is_dir() {
            return Self::open_parts_timed_from_first_row(path);
        }
        if !path.exists() && folder.is_dir() {
            return Self::open_parts_timed_from_first_row(&folder);
        }
        let reader = RecordingReader::open(path)?;
        let about = reader.origin().clone();
        let open = OpenPartReader { path: path.to_owned(), reader, later: Duration::ZERO };
        Ok(Self { unfinished: false, reader: Some(open), ..Self::of_part_files(about, Vec::new()) })
    }

    fn open_parts_timed_from_first_row(folder: &Path) -> Result<Self, RecordingError> {
        // An error in it is reported when it is read.
        let first_at = Self::of_part_folder(folder)?.find_map(Result::ok);
        let first_at = first_at.map_or(Duration::ZERO, |row| row.time_since_start());
        let rows = Self::of_part_folder(folder)?;
        Ok(Self { about: rows.about.clone().starting_later(first_at), first_at, ..rows })
    }

    pub(crate) fn of_part_folder(folder: &Path) -> Result<Self, RecordingError> {
        let parts = list_finished_parts(folder)?;
        let first = parts.first().ok_or_else(|| RecordingError::NoParts(folder.to_owned()))?;
        let about =
            RecordingReader::open(first).map_err(error_naming_part(first))?.origin().clone();
        Ok(Self::of_part_files(about, parts))
    }

    pub(crate) fn of_part_files(about: RecordingMetadata, parts: Vec<PathBuf>) -> Self {
        Self {
            first_began: about.began,
            about,
            unfinished: true,
            reader: None,
            rest: parts.into_iter(),
            first_at: Duration::ZERO,
        }
    }

    /// The origin of the recording.
    pub fn origin(&self) -> &RecordingMetadata {
        &self.about
    }

    /// Whether it was not ended: it is in progress, or its program was killed.
    pub fn is_unfinished(&self) -> bool {
        self.unfinished
    }
}

fn error_naming_part(path: &Path) -> impl FnOnce(RecordingError) -> RecordingError {
    let path = path.to_owned();
    |error| RecordingError::Part { path, error: Box::new(error) }
}

impl Iterator for RecordingRows {
    type Item = Result<RecordingRow, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(OpenPartReader { path, reader, later }) = &mut self.reader {
                match reader.next() {
                    Some(Ok(mut row)) => {
                        row.set_time_since_start(
                            (row.time_since_start() + *later).saturating_sub(self.first_at),
                        );
                        return Some(Ok(row));
                    }
                    Some(Err(error)) => {
                        let goes_on = matches!(error, RecordingError::Value { .. });
                        if goes_on || !self.unfinished {
                            return Some(Err(error));
                        }
                        self.rest = Vec::new().into_iter();
                        return Some(Err(error_naming_part(path)(error)));
                    }
                    None => self.reader = None,
                }
            }
            let path = self.rest.next()?;
            match RecordingReader::open(&path) {
                Ok(reader) => {
                    let began = reader.origin().began.zip(self.first_began);
                    let later = began.map(|(own, first)| own.saturating_sub(first));
                    self.reader =
                        Some(OpenPartReader { path, reader, later: later.unwrap_or_default() });
                }
                Err(error) => {
                    self.rest = Vec::new().into_iter();
                    return Some(Err(error_naming_part(&path)(error)));
                }
            }
        }
    }
}
