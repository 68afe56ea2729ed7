//! DAMON's files: each holds one value, and may be busy.

use super::error::{DamonError, DamonResult};
use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for a file that another reader or writer keeps busy. The kernel has one lock for
/// the whole interface and does not queue for it.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);
/// Pause between two tries.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// A directory of small files with one value each.
#[derive(Clone, Debug)]
pub(super) struct SysfsDir(pub(super) PathBuf);

impl SysfsDir {
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn subdir(&self, name: &str) -> Self {
        Self(self.path(name))
    }

    /// The value of a file, without white space around it.
    pub(super) fn read_value(&self, name: &str) -> DamonResult<String> {
        let path = self.path(name);
        let content = retry_while_busy("read", &path, || fs::read_to_string(&path))?;
        Ok(content.trim().to_owned())
    }

    pub(super) fn read_number<T: std::str::FromStr>(&self, name: &str) -> DamonResult<T> {
        let content = self.read_value(name)?;
        content.parse().map_err(|_| DamonError::NotANumber { path: self.path(name), content })
    }

    pub(super) fn write_value(&self, name: &str, value: impl Display) -> DamonResult<()> {
        let path = self.path(name);
        retry_while_busy("write", &path, || {
            let mut file = OpenOptions::new().write(true).truncate(true).open(&path)?;
            file.write_all(value.to_string().as_bytes())
        })
    }
}

/// Repeats an action on a file that fails with EBUSY, for up to [`BUSY_PATIENCE`].
fn retry_while_busy<T>(
    action: &'static str,
    path: &Path,
    mut attempt: impl FnMut() -> io::Result<T>,
) -> DamonResult<T> {
    let deadline = Instant::now() + BUSY_PATIENCE;
    loop {
        match attempt() {
            Err(error) if error.kind() == ErrorKind::ResourceBusy && Instant::now() < deadline => {
                thread::sleep(BUSY_PAUSE);
            }
            result => {
                let path = path.to_owned();
                return result.map_err(|error| DamonError::Io { action, path, error });
            }
        }
    }
}
