//! One manager a machine: a lock that dies with its holder.

use crate::error::LinuxError;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};

/// Where the manager keeps its lock and the settings it has to restore: `HAWKEYE_STATE_DIR`, or
/// `/run/hawkeye`.
pub fn state_dir() -> PathBuf {
    std::env::var_os("HAWKEYE_STATE_DIR").map_or_else(|| "/run/hawkeye".into(), PathBuf::from)
}

/// The lock's name in the state folder.
const LOCK: &str = "manager.lock";

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
        let path = state_dir.join(LOCK);
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

    /// The machine's manager, as it told others what it does; `None`: there is none. Only looks.
    ///
    /// # Errors
    /// The lock is there and can't be read.
    pub fn holder(state_dir: &Path) -> Result<Option<String>, LinuxError> {
        let path = state_dir.join(LOCK);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LinuxError::file("opening", &path)(error)),
        };
        let mut holder = String::new();
        file.read_to_string(&mut holder)
            .map_err(LinuxError::file("reading", &path))?;
        // Let go of at once, where it can be had.
        let free = Flock::lock(file, FlockArg::LockSharedNonblock).is_ok();
        Ok((!free).then(|| holder.trim().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_manages_is_seen_without_being_disturbed() {
        let name = format!("hawkeye-instance-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        assert_eq!(Instance::holder(&folder).expect("looks"), None);
        assert!(!folder.exists(), "looking leaves nothing behind");
        let instance = Instance::claim(&folder, "a test").expect("nobody else does");
        let holder = Instance::holder(&folder).expect("looks");
        assert!(holder.is_some_and(|holder| holder.ends_with("(a test)")));
        drop(instance);
        assert_eq!(Instance::holder(&folder).expect("looks"), None);
        assert!(Instance::claim(&folder, "another").is_ok());
        fs::remove_dir_all(&folder).expect("removes");
    }
}
