//! Temporary folders for programs.

use crate::error::Result;
use hawkeye_linux::LinuxError;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new folder that no other user can read. Dropping it deletes it and its contents.
pub(in crate::live) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates a folder with `name` in its name.
    pub(in crate::live) fn new(name: &str) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = format!("hawkeye-bench-{}-{name}-{number}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        // This fails if the folder exists, because then it belongs to another process.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(LinuxError::file("creating", &path))?;
        Ok(Self { path })
    }

    pub(in crate::live) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file into the folder; returns its path.
    pub(in crate::live) fn write(&self, file: &str, contents: &str) -> Result<PathBuf> {
        let path = self.path.join(file);
        std::fs::write(&path, contents).map_err(LinuxError::file("writing", &path))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
