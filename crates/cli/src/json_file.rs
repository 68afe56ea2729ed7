//! The file of `--json FILE`.

use anyhow::{Context, Result};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file for results. It is opened before the work that they come from, so that a mistake in its
/// path does not cost that.
pub struct JsonFile {
    path: PathBuf,
    file: File,
    /// Whether it was created and is still empty.
    is_new: bool,
}

impl JsonFile {
    /// Creates the file with mode 0644 at most: root owns it, and the user that called root reads
    /// it. It holds sums, and no address of a process. An older file stays as it is until
    /// [`Self::write`].
    pub fn open(path: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).mode(0o644);
        let opened = match options.clone().create_new(true).open(path) {
            // Also through a link to a file that does not exist yet.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                options.create(true).truncate(false).open(path).map(|file| (file, false))
            }
            created => created.map(|file| (file, true)),
        };
        let (file, is_new) = opened.with_context(|| format!("can't create {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file, is_new })
    }

    /// Replaces the content by `value`, or by nothing where that fails.
    pub fn write(mut self, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_vec_pretty(value).map_err(io::Error::from);
        self.is_new = false;
        let written = text.and_then(|text| self.replace_content(&text));
        written.with_context(|| format!("can't write {}", self.path.display()))
    }

    fn replace_content(&mut self, text: &[u8]) -> io::Result<()> {
        // A pipe or a terminal has no length.
        let is_regular = self.file.metadata()?.is_file();
        if is_regular {
            self.file.set_len(0)?;
        }
        let written = self.file.write_all(text);
        if written.is_err() && is_regular {
            // Half of a text is no JSON. That it could not be written is the error.
            let _ = self.file.set_len(0);
        }
        written
    }
}

/// Where there were no results, there is no file.
impl Drop for JsonFile {
    fn drop(&mut self) {
        if self.is_new {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_path_that_cannot_be_created_is_an_error_before_the_work() {
        let error = JsonFile::open(Path::new("/no/such/folder/a.json")).err();
        let said = format!("{:#}", error.expect("the folder is missing"));
        assert!(said.starts_with("can't create /no/such/folder/a.json: "), "{said}");
    }

    #[test]
    fn an_older_file_is_replaced_as_a_whole_once_there_are_results() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a.json");
        let read = || fs::read_to_string(&path).expect("the file can be read");
        fs::write(&path, "longer than the results").expect("the file can be written");
        let file = JsonFile::open(&path).expect("the file can be opened");
        assert_eq!(read(), "longer than the results");
        file.write(&[1]).expect("the disk has room");
        assert_eq!(read(), "[\n  1\n]");
    }

    #[test]
    fn without_results_there_is_no_new_file_and_an_older_one_stays() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("a.json");
        drop(JsonFile::open(&path).expect("the file can be created"));
        assert!(!path.exists());
        fs::write(&path, "older").expect("the file can be written");
        drop(JsonFile::open(&path).expect("the file can be opened"));
        assert_eq!(fs::read_to_string(&path).expect("the file can be read"), "older");
    }

    #[test]
    fn a_full_disk_is_named() {
        let full = JsonFile::open(Path::new("/dev/full")).expect("the device can be opened");
        let error = full.write(&[1]).expect_err("the disk is full");
        assert!(format!("{error:#}").starts_with("can't write /dev/full: "), "{error:#}");
    }
}
