//! A recording while it is made: a file a minute.
//!
//! A Parquet file can be read when its directory has been written, at its end. So that whoever is killed loses a minute at the most, rows go
//! into files of their own for each minute, in a folder beside the recording's place (`FILE.part`); at the end they become one file.

use crate::error::RecordingError;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

/// A path with something after its name.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The folder of a recording that is being made.
pub(crate) fn folder_of(path: &Path) -> PathBuf {
    beside(path, ".part")
}

/// The finished parts in a folder, in order of time.
pub(crate) fn parts(folder: &Path) -> Result<Vec<PathBuf>, RecordingError> {
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
