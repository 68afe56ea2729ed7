//! A recording in progress: one file per minute.
//!
//! A Parquet file can be read only once its directory is written, at its end. So each minute's rows
//! go into a file of their own, in a folder beside the recording's path (`FILE.part`). A killed
//! program then loses at most one minute. At the end the files become one file.

use crate::recording_error::RecordingError;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A path with a suffix added to its name.
pub(crate) fn path_with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(crate) fn part_folder_of_recording(path: &Path) -> PathBuf {
    path_with_suffix(path, ".part")
}

/// The finished parts in a folder, in order of time.
pub(crate) fn list_finished_parts(folder: &Path) -> Result<Vec<PathBuf>, RecordingError> {
    let open = |error| RecordingError::Open { path: folder.to_owned(), error };
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

/// Creates a file for this user alone, whatever the umask, because it shows where programs have
/// their memory. A previous file is replaced; no link is followed.
pub(crate) fn create_or_replace_private_file(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Creates a folder for this user alone. Its parents are created passable for all users.
pub(crate) fn create_private_folder(path: &Path, with_parents: bool) -> io::Result<()> {
    if let (true, Some(parent)) = (with_parents, path.parent()) {
        DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    DirBuilder::new().recursive(with_parents).mode(0o700).create(path)
}

/// Whether this is a folder and not a link, and only root and this user can change its contents.
pub(crate) fn is_folder_of_user_or_root(path: &Path) -> bool {
    let own = fs::metadata("/proc/self").map_or(0, |own| own.uid());
    fs::symlink_metadata(path).is_ok_and(|found| {
        found.is_dir() && (found.uid() == 0 || found.uid() == own) && found.mode() & 0o002 == 0
    })
}

/// Whether a recording may take the place of what is at a path: nothing, a regular file, or a link
/// straight to one. `/dev/stdout` is a link to a link, even where a file is behind it.
pub(crate) fn is_free_or_regular_file(path: &Path) -> bool {
    let Ok(found) = fs::symlink_metadata(path) else { return true };
    let target = fs::read_link(path).map(|target| match path.parent() {
        Some(folder) => folder.join(target),
        None => target,
    });
    let target = target.and_then(fs::symlink_metadata);
    found.is_file() || target.is_ok_and(|target| target.is_file())
}

/// Renames an unusable file or folder to `NAME.damaged-1`, or the next free number, and reports it.
pub(crate) fn set_damaged_aside(
    path: &Path,
    why: &dyn std::fmt::Display,
) -> Result<(), RecordingError> {
    let free = (1..1000)
        .map(|number| path_with_suffix(path, &format!(".damaged-{number}")))
        .find(|aside| fs::symlink_metadata(aside).is_err());
    let aside = free.unwrap_or_else(|| path_with_suffix(path, ".damaged-1"));
    let renamed = fs::rename(path, &aside);
    renamed.map_err(|error| RecordingError::Create { path: aside.clone(), error })?;
    let (path, aside) = (path.display(), aside.display());
    tracing::warn!("{path} can't be used ({why}); it is kept as {aside}");
    Ok(())
}
