//! Writes recordings to files and folders.

use crate::part_files::{
    create_or_replace_private_file, create_private_folder, is_folder_of_user_or_root,
    is_free_or_regular_file, list_finished_parts, part_folder_of_recording, path_with_suffix,
    set_damaged_aside,
};
use crate::recording_error::RecordingError;
use crate::recording_metadata::RecordingMetadata;
use crate::recording_rows::RecordingRows;
use crate::recording_writer::RecordingWriter;
use crate::row_types::RecordingRow;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// No recording has this many minutes: a file with a larger number is not from HawkEye.
const MOST_PARTS: u64 = 1_000_000_000_000;
/// The most that a crash loses.
const PART: Duration = Duration::from_secs(60);

fn file_error_at_path(path: &Path) -> impl FnOnce(io::Error) -> RecordingError {
    let path = path.to_owned();
    |error| RecordingError::Create { path, error }
}

/// Writes a recording.
pub struct Recorder {
    /// The final file made from the parts; `None`: the parts stay.
    path: Option<PathBuf>,
    folder: PathBuf,
    about: RecordingMetadata,
    open: Option<OpenPartFile>,
    number: u64,
    /// Finished parts that still exist, oldest first, with their lengths.
    finished: VecDeque<(PathBuf, u64)>,
    most_bytes: u64,
    last: Duration,
    /// What was at `path` is `FILE.1` now; `FILE.1` is not replaced again.
    has_kept_previous_file: bool,
    /// Rows that were accepted and could not be kept.
    lost_rows: u64,
}

struct OpenPartFile {
    writer: RecordingWriter<BufWriter<File>>,
    place: PathBuf,
    began: Duration,
    rows: u64,
}

impl OpenPartFile {
    /// Makes the part a file of its own; returns its length.
    fn finish(self) -> Result<u64, RecordingError> {
        let place = self.place;
        let file = finish_and_sync_file(self.writer, &place)?;
        let length = file.metadata().map_err(file_error_at_path(&place))?.len();
        fs::rename(path_with_suffix(&place, ".tmp"), &place).map_err(file_error_at_path(&place))?;
        Ok(length)
    }
}

fn part_name(number: u64) -> String {
    format!("{number:08}.parquet")
}

/// The number of a part; `None` for a file that no recorder has named.
fn part_number(place: &Path) -> Option<u64> {
    let number: u64 = place.file_stem()?.to_str()?.parse().ok()?;
    (number < MOST_PARTS && place.ends_with(part_name(number))).then_some(number)
}

fn finish_and_sync_file(
    writer: RecordingWriter<BufWriter<File>>,
    place: &Path,
) -> Result<File, RecordingError> {
    let file = writer.finish()?.into_inner();
    let file = file.map_err(|error| file_error_at_path(place)(error.into_error()))?;
    file.sync_data().map_err(file_error_at_path(place))?;
    Ok(file)
}

/// If it cannot be removed, it still counts as no part, and the next part overwrites it.
fn remove_unfinished_part(place: &Path) {
    let _ = fs::remove_file(path_with_suffix(place, ".tmp"));
}

impl Recorder {
    /// Begins a recording that will become a file. A previous file at `path`, or the rest of a
    /// recording that was killed, is kept as `FILE.1`, replacing an older one. That happens once a
    /// minute of the new recording is written. A recording that is dropped before then leaves
    /// nothing. An earlier rest is set aside if it cannot be read or belongs to another user.
    ///
    /// # Errors
    /// It cannot be created, or something that is not a regular file is at `path` or `FILE.1`.
    pub fn begin_file_recording(
        path: &Path,
        about: RecordingMetadata,
    ) -> Result<Self, RecordingError> {
        if path.is_dir() {
            return Err(file_error_at_path(path)(io::ErrorKind::IsADirectory.into()));
        }
        require_free_or_regular_file(path)?;
        require_replaceable(&older_file(path))?;
        let folder = part_folder_of_recording(path);
        if fs::symlink_metadata(&folder).is_ok() {
            if !is_folder_of_user_or_root(&folder) {
                set_damaged_aside(&folder, &"it is not a folder that only this user can change")?;
            } else if list_finished_parts(&folder)?.is_empty() {
                fs::remove_dir_all(&folder).map_err(file_error_at_path(&folder))?;
            } else if let Err(error) = finish_killed_recording(&folder, path) {
                set_damaged_aside(&folder, &error)?;
            }
        }
        create_private_folder(&folder, false).map_err(file_error_at_path(&folder))?;
        Ok(Self::new(Some(path.to_owned()), folder, u64::MAX, about))
    }

    /// Continues a recording that stays a folder. The newest `most_bytes` of its parts are kept;
    /// other files in the folder stay and do not count. A regular file at its place is set aside;
    /// anything else there is an error.
    pub fn continue_in_folder(
        folder: &Path,
        most_bytes: u64,
        about: RecordingMetadata,
    ) -> Result<Self, RecordingError> {
        match fs::symlink_metadata(folder) {
            Ok(found) if found.is_file() => set_damaged_aside(folder, &"it is not a folder")?,
            Ok(_) if !folder.is_dir() => {
                let path = folder.to_owned();
                return Err(RecordingError::InTheWay { path, wanted: "a folder" });
            }
            _ => {}
        }
        create_private_folder(folder, true).map_err(file_error_at_path(folder))?;
        let mut recorder = Self::new(None, folder.to_owned(), most_bytes, about);
        for place in list_finished_parts(folder)? {
            // A file of another name is not ours to remove.
            let Some(number) = part_number(&place) else { continue };
            let found = fs::symlink_metadata(&place).map_err(file_error_at_path(&place))?;
            if found.is_file() {
                recorder.number = recorder.number.max(number + 1);
                recorder.finished.push_back((place, found.len()));
            }
        }
        Ok(recorder)
    }

    fn new(
        path: Option<PathBuf>,
        folder: PathBuf,
        most_bytes: u64,
        about: RecordingMetadata,
    ) -> Self {
        Self {
            path,
            folder,
            about,
            open: None,
            number: 0,
            finished: VecDeque::new(),
            most_bytes,
            last: Duration::ZERO,
            has_kept_previous_file: false,
            lost_rows: 0,
        }
    }

    /// Adds a row. A row that is earlier than the one before it gets that one's time.
    ///
    /// # Errors
    /// The row cannot be written, or the previous minute cannot be ended. `abandon_open_part`
    /// returns how many rows are lost in addition.
    pub fn write_row(&mut self, mut row: RecordingRow) -> Result<(), RecordingError> {
        self.last = self.last.max(row.time_since_start());
        row.set_time_since_start(self.last);
        if (self.open.as_ref()).is_some_and(|part| self.last >= part.began + PART) {
            self.finish_open_part()?;
        }
        let part = match &mut self.open {
            Some(part) => part,
            None => {
                let place = self.folder.join(part_name(self.number));
                let file = path_with_suffix(&place, ".tmp");
                let file =
                    create_or_replace_private_file(&file).map_err(file_error_at_path(&file))?;
                self.open.insert(OpenPartFile {
                    writer: RecordingWriter::new(BufWriter::new(file), &self.about)
                        .inspect_err(|_| remove_unfinished_part(&place))?,
                    place,
                    began: self.last,
                    rows: 0,
                })
            }
        };
        part.writer.write_row(&row)?;
        part.rows += 1;
        Ok(())
    }

    /// Drops the unfinished minute after an error. Returns how many rows are lost by that, although
    /// `write_row` had accepted them.
    pub fn abandon_open_part(&mut self) -> u64 {
        if let Some(part) = self.open.take() {
            remove_unfinished_part(&part.place);
            self.lost_rows += part.rows;
        }
        std::mem::take(&mut self.lost_rows)
    }

    fn finish_open_part(&mut self) -> Result<(), RecordingError> {
        let Some(part) = self.open.take() else { return Ok(()) };
        let (place, rows) = (part.place.clone(), part.rows);
        let length = part.finish().inspect_err(|_| {
            remove_unfinished_part(&place);
            let _ = fs::remove_file(&place);
            self.lost_rows += rows;
        })?;
        self.number += 1;
        self.finished.push_back((place, length));
        // A node that another user puts there must not end the recording: `finish` fails then.
        if let Err(error) = self.keep_previous_file_once() {
            tracing::warn!("the recording stays in {}: {error}", self.folder.display());
        }
        while self.finished_part_bytes() > self.most_bytes && self.finished.len() > 1 {
            if let Some((oldest, _)) = self.finished.pop_front() {
                match fs::remove_file(&oldest) {
                    // Another process has already removed it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => tracing::warn!("can't remove {}: {error}", oldest.display()),
                    Ok(()) => {}
                }
            }
        }
        Ok(())
    }

    fn keep_previous_file_once(&mut self) -> Result<(), RecordingError> {
        if let (false, Some(path)) = (self.has_kept_previous_file, &self.path) {
            keep_previous_file_as_dot_1(path)?;
            self.has_kept_previous_file = true;
        }
        Ok(())
    }

    /// Bytes in finished parts.
    pub fn finished_part_bytes(&self) -> u64 {
        self.finished.iter().map(|(_, length)| length).sum()
    }

    /// Ends the recording. One that should become a file becomes it now.
    ///
    /// # Errors
    /// The last minute cannot be written, or the file cannot. The finished parts still exist then.
    pub fn finish(mut self) -> Result<(), RecordingError> {
        self.finish_open_part()?;
        if self.path.is_none() {
            return Ok(());
        }
        self.become_file().map_err(|error| match self.finished.is_empty() {
            true => error,
            false => {
                let folder = self.folder.clone();
                RecordingError::StaysInParts { folder, error: Box::new(error) }
            }
        })?;
        remove_part_folder(&self.folder)
    }

    fn become_file(&mut self) -> Result<(), RecordingError> {
        self.keep_previous_file_once()?;
        let Some(path) = &self.path else { return Ok(()) };
        rename_joined_file(&join_parts(&self.folder, &self.about)?, path)
    }

    /// Whether no row was accepted yet.
    pub fn is_empty(&self) -> bool {
        self.open.is_none() && self.finished.is_empty()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.abandon_open_part();
        if self.path.is_some() {
            // Only an empty folder can be removed: finished parts stay.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

fn require_free_or_regular_file(path: &Path) -> Result<(), RecordingError> {
    if is_free_or_regular_file(path) {
        return Ok(());
    }
    Err(RecordingError::InTheWay { path: path.to_owned(), wanted: "a regular file" })
}

/// As [`require_free_or_regular_file`], but a link may lead anywhere: replacing it leaves that.
fn require_replaceable(path: &Path) -> Result<(), RecordingError> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_symlink() => Ok(()),
        _ => require_free_or_regular_file(path),
    }
}

fn older_file(path: &Path) -> PathBuf {
    path_with_suffix(path, ".1")
}

/// Keeps the file at a path as `FILE.1`.
fn keep_previous_file_as_dot_1(path: &Path) -> Result<(), RecordingError> {
    let older = older_file(path);
    // A node may have appeared since the recording began.
    require_free_or_regular_file(path)?;
    require_replaceable(&older)?;
    match fs::rename(path, &older) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(file_error_at_path(&older)(error))
        }
        _ => Ok(()),
    }
}

/// Ends a recording that was killed, and keeps it as `FILE.1`. Parts that cannot be read stay.
fn finish_killed_recording(folder: &Path, path: &Path) -> Result<(), RecordingError> {
    let about = RecordingRows::of_part_folder(folder)?.origin().clone();
    let joined = join_parts(folder, &about)?;
    keep_previous_file_as_dot_1(path)?;
    rename_joined_file(&joined, path)?;
    remove_part_folder(folder)
}

fn join_parts(folder: &Path, about: &RecordingMetadata) -> Result<PathBuf, RecordingError> {
    let joined = folder.join("joined.tmp");
    let join = || {
        let file = create_or_replace_private_file(&joined).map_err(file_error_at_path(&joined))?;
        let mut writer = RecordingWriter::new(BufWriter::new(file), about)?;
        for row in RecordingRows::of_part_files(about.clone(), list_finished_parts(folder)?) {
            writer.write_row(&row?)?;
        }
        finish_and_sync_file(writer, &joined)
    };
    join().inspect_err(|_| {
        let _ = fs::remove_file(&joined);
    })?;
    Ok(joined)
}

fn rename_joined_file(joined: &Path, path: &Path) -> Result<(), RecordingError> {
    // Joining took long enough for a node to appear.
    let renamed = require_free_or_regular_file(path)
        .and_then(|()| fs::rename(joined, path).map_err(file_error_at_path(path)));
    renamed.inspect_err(|_| {
        let _ = fs::remove_file(joined);
    })
}

fn remove_part_folder(folder: &Path) -> Result<(), RecordingError> {
    fs::remove_dir_all(folder).map_err(file_error_at_path(folder))
}
