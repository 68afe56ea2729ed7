//! A recording while it is made: a file a minute.
//!
//! A Parquet file can be read when its directory has been written, at its end. So that whoever is killed loses a minute at the most, rows go
//! into files of their own for each minute, in a folder beside the recording's place (`FILE.part`); at the end they become one file.

use crate::about::About;
use crate::error::RecordingError;
use crate::recording_reader::RecordingReader;
use crate::recording_writer::RecordingWriter;
use crate::rows::Row;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How much is lost at the most.
const PART: Duration = Duration::from_secs(60);

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The folder of a recording that is being made.
fn folder_of(path: &Path) -> PathBuf {
    beside(path, ".part")
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RecordingError {
    let path = path.to_owned();
    |error| RecordingError::Create { path, error }
}

/// The finished parts in a folder, in order of time.
fn parts(folder: &Path) -> Result<Vec<PathBuf>, RecordingError> {
    let open = |error| RecordingError::Open {
        path: folder.to_owned(),
        error,
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(open)? {
        let path = entry.map_err(open)?.path();
        if path.extension() == Some(OsStr::new("parquet")) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Makes a recording.
pub struct Recorder {
    /// What the parts become at the end; `None`: they stay.
    path: Option<PathBuf>,
    folder: PathBuf,
    about: About,
    open: Option<Part>,
    number: u64,
    /// Finished parts that are there, oldest first, with their lengths.
    finished: VecDeque<(PathBuf, u64)>,
    most_bytes: u64,
    last: Duration,
}

struct Part {
    writer: RecordingWriter<BufWriter<File>>,
    place: PathBuf,
    began: Duration,
}

impl Recorder {
    /// Begins a recording that is to be a file. What is at `path`, or what an earlier one that was killed has left there, is kept
    /// as `FILE.1`, in place of what is there.
    ///
    /// # Errors
    /// Nothing can be written there, or what is left of an earlier one can't be read.
    pub fn begin(path: &Path, about: About) -> Result<Self, RecordingError> {
        let folder = folder_of(path);
        let older = beside(path, ".1");
        if folder.is_dir() {
            if parts(&folder)?.is_empty() {
                fs::remove_dir_all(&folder).map_err(failed(&folder))?;
            } else {
                let about = RecordingRows::of_parts(&folder)?.about;
                join(&folder, &older, &about)?;
            }
        } else if path.is_file() {
            fs::rename(path, &older).map_err(failed(&older))?;
        }
        fs::create_dir(&folder).map_err(failed(&folder))?;
        Ok(Self {
            path: Some(path.to_owned()),
            folder,
            about,
            open: None,
            number: 0,
            finished: VecDeque::new(),
            most_bytes: u64::MAX,
            last: Duration::ZERO,
        })
    }

    /// Goes on with a recording that is a folder and stays one: of its parts the newest are kept, so many bytes of them.
    ///
    /// # Errors
    /// Nothing can be written there.
    pub fn in_folder(folder: &Path, most_bytes: u64, about: About) -> Result<Self, RecordingError> {
        fs::create_dir_all(folder).map_err(failed(folder))?;
        let mut finished = VecDeque::new();
        let mut number = 0;
        for place in parts(folder)? {
            let length = fs::metadata(&place).map_err(failed(&place))?.len();
            let own = place.file_stem().and_then(OsStr::to_str);
            let own: Option<u64> = own.and_then(|name| name.parse().ok());
            number = own.map_or(number, |own| number.max(own + 1));
            finished.push_back((place, length));
        }
        Ok(Self {
            path: None,
            folder: folder.to_owned(),
            about,
            open: None,
            number,
            finished,
            most_bytes,
            last: Duration::ZERO,
        })
    }

    /// Adds a row. One that is earlier than another before it is taken to be as late.
    ///
    /// # Errors
    /// It can't be written.
    pub fn write(&mut self, mut row: Row) -> Result<(), RecordingError> {
        self.last = self.last.max(row.at());
        row.set_at(self.last);
        if (self.open.as_ref()).is_some_and(|part| self.last >= part.began + PART) {
            self.finish_part()?;
        }
        let part = match &mut self.open {
            Some(part) => part,
            None => {
                let place = self.folder.join(format!("{:08}.parquet", self.number));
                let file = beside(&place, ".tmp");
                let file = File::create(&file).map_err(failed(&file))?;
                self.open.insert(Part {
                    writer: RecordingWriter::new(BufWriter::new(file), &self.about)?,
                    place,
                    began: self.last,
                })
            }
        };
        part.writer.write(&row)
    }

    /// Gives up what is written of the minute, after an error.
    pub fn abandon_part(&mut self) {
        if let Some(part) = self.open.take() {
            // What can't be removed is no part, and written over by the next.
            let _ = fs::remove_file(beside(&part.place, ".tmp"));
        }
    }

    fn finish_part(&mut self) -> Result<(), RecordingError> {
        let Some(part) = self.open.take() else {
            return Ok(());
        };
        let place = part.place;
        let file = part.writer.finish()?.into_inner();
        let file = file.map_err(|error| failed(&place)(error.into_error()))?;
        file.sync_data().map_err(failed(&place))?;
        let length = file.metadata().map_err(failed(&place))?.len();
        fs::rename(beside(&place, ".tmp"), &place).map_err(failed(&place))?;
        self.number += 1;
        self.finished.push_back((place, length));
        while self.bytes() > self.most_bytes && self.finished.len() > 1 {
            if let Some((oldest, _)) = self.finished.pop_front() {
                fs::remove_file(&oldest).map_err(failed(&oldest))?;
            }
        }
        Ok(())
    }

    /// Bytes in finished parts.
    pub fn bytes(&self) -> u64 {
        self.finished.iter().map(|(_, length)| length).sum()
    }

    /// Ends the recording: one that is to be a file is one then.
    ///
    /// # Errors
    /// It can't be written; the parts are still there then.
    pub fn finish(mut self) -> Result<(), RecordingError> {
        self.finish_part()?;
        match &self.path {
            Some(path) => join(&self.folder, path, &self.about),
            None => Ok(()),
        }
    }
}

/// Makes one file of the parts in a folder, and removes that.
fn join(folder: &Path, path: &Path, about: &About) -> Result<(), RecordingError> {
    let joined = folder.join("joined.tmp");
    let file = File::create(&joined).map_err(failed(&joined))?;
    let mut writer = RecordingWriter::new(BufWriter::new(file), about)?;
    for row in RecordingRows::over(about.clone(), parts(folder)?) {
        writer.write(&row?)?;
    }
    let file = writer.finish()?.into_inner();
    let file = file.map_err(|error| failed(&joined)(error.into_error()))?;
    file.sync_data().map_err(failed(&joined))?;
    fs::rename(&joined, path).map_err(failed(path))?;
    fs::remove_dir_all(folder).map_err(failed(folder))
}

/// A recording's rows, of one that was ended or of one that was not. Times are since the first of its parts began, also where a later
/// one is of a manager that was started anew.
pub struct RecordingRows {
    about: About,
    unfinished: bool,
    reader: Option<Open>,
    rest: std::vec::IntoIter<PathBuf>,
}

struct Open {
    path: PathBuf,
    reader: RecordingReader<File>,
    /// How much later it began than the first.
    later: Duration,
}

impl RecordingRows {
    /// Opens the recording at a path; where it was not ended, as far as it was written down.
    ///
    /// # Errors
    /// There is none, or none that this version knows.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let folder = folder_of(path);
        if path.is_dir() {
            return Self::of_parts(path);
        }
        if !path.exists() && folder.is_dir() {
            return Self::of_parts(&folder);
        }
        let reader = RecordingReader::open(path)?;
        Ok(Self {
            about: reader.about().clone(),
            unfinished: false,
            reader: Some(Open {
                path: path.to_owned(),
                reader,
                later: Duration::ZERO,
            }),
            rest: Vec::new().into_iter(),
        })
    }

    fn of_parts(folder: &Path) -> Result<Self, RecordingError> {
        let parts = parts(folder)?;
        let first = parts.first();
        let first = first.ok_or_else(|| RecordingError::NoParts(folder.to_owned()))?;
        let about = RecordingReader::open(first)
            .map_err(of_part(first))?
            .about()
            .clone();
        Ok(Self::over(about, parts))
    }

    fn over(about: About, parts: Vec<PathBuf>) -> Self {
        Self {
            about,
            unfinished: true,
            reader: None,
            rest: parts.into_iter(),
        }
    }

    /// Where and when it was made.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Whether it was not ended: it is being made, or who made it was killed.
    pub fn unfinished(&self) -> bool {
        self.unfinished
    }
}

fn of_part(path: &Path) -> impl FnOnce(RecordingError) -> RecordingError {
    let path = path.to_owned();
    |error| RecordingError::Part {
        path,
        error: Box::new(error),
    }
}

impl Iterator for RecordingRows {
    type Item = Result<Row, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(Open {
                path,
                reader,
                later,
            }) = &mut self.reader
            {
                match reader.next() {
                    Some(Ok(mut row)) => {
                        row.set_at(row.at() + *later);
                        return Some(Ok(row));
                    }
                    Some(Err(error)) => {
                        let goes_on = matches!(error, RecordingError::Value { .. });
                        if goes_on || !self.unfinished {
                            return Some(Err(error));
                        }
                        self.rest = Vec::new().into_iter();
                        return Some(Err(of_part(path)(error)));
                    }
                    None => self.reader = None,
                }
            }
            let path = self.rest.next()?;
            match RecordingReader::open(&path) {
                Ok(reader) => {
                    let began = reader.about().began.zip(self.about.began);
                    let later = began.map(|(own, first)| own.saturating_sub(first));
                    self.reader = Some(Open {
                        path,
                        reader,
                        later: later.unwrap_or_default(),
                    });
                }
                Err(error) => {
                    self.rest = Vec::new().into_iter();
                    return Some(Err(of_part(&path)(error)));
                }
            }
        }
    }
}
