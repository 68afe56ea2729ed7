//! One manager a machine: a lock that dies with its holder.

use crate::error::LinuxError;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Where the manager keeps its lock and the settings it has to restore: `HAWKEYE_STATE_DIR`, or
/// `/run/hawkeye`.
pub fn state_dir() -> PathBuf {
    std::env::var_os("HAWKEYE_STATE_DIR").map_or_else(|| "/run/hawkeye".into(), PathBuf::from)
}

/// Held while this process manages the machine.
#[derive(Debug)]
pub struct Instance {
    _lock: Flock<File>,
}

impl Instance {
    /// Becomes the machine's manager. `purpose` tells others what this one does.
    ///
    /// # Errors
    /// Another manager is running: the error names it.
    pub fn claim(state_dir: &Path, purpose: &str) -> Result<Self, LinuxError> {
        fs::create_dir_all(state_dir).map_err(LinuxError::file("creating", state_dir))?;
        let path = state_dir.join("manager.lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(LinuxError::file("opening", &path))?;
        let mut holder = String::new();
        file.read_to_string(&mut holder)
            .map_err(LinuxError::file("reading", &path))?;
        let mut lock = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|_| LinuxError::AlreadyManaged(holder.trim().to_owned()))?;
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "process {} ({purpose})", std::process::id())?;
            file.flush()
        };
        write(&mut lock).map_err(LinuxError::file("writing", &path))?;
        Ok(Self { _lock: lock })
    }
}
