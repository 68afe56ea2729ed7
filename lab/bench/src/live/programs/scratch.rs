//! Folders for the time of a program.

use crate::error::BenchError;
use hawkeye_linux::LinuxError;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new folder that nobody else can look into; deleted with all that is in it when dropped.
#[derive(Debug)]
pub(in crate::live) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes one with `name` in its name.
    pub(in crate::live) fn new(name: &str) -> Result<Self, BenchError> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = format!("hawkeye-bench-{}-{name}-{number}", std::process::id());
        let path = std::env::temp_dir().join(folder);
        // What is there already is somebody else's.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(LinuxError::file("creating", &path))?;
        Ok(Self { path })
    }

    /// Where it is.
    pub(in crate::live) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file in it; returns where that is.
    pub(in crate::live) fn write(&self, file: &str, contents: &str) -> Result<PathBuf, BenchError> {
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
