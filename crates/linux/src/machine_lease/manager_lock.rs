//! Ensures one manager per machine, by locks that end with their holder and that other users cannot
//! take.
//!
//! There are two locks, each a file that only root can open. One is in the state folder. The other
//! is always in `/run/hawkeye`, so that managers with different state folders exclude each other.
//!
//! A container with its own `/run` but the host's processes has other lock files. Its manager is
//! found by the locks that processes hold. Managers in different pid namespaces remain possible.
//! Each manages only the processes that it sees, but they may change the same settings.

mod lock_holders;

use crate::error::{LinuxError, Result};
use crate::machine_lease::own_files;
use lock_holders::{LOCK, LockHolder, LockedFile};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder of the machine's lock, independent of the state folder.
const MACHINE_DIR: &str = "/run/hawkeye";
/// Attempts to take a lock that may be held only briefly, and the time between them.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);
/// Upper bound of a purpose's length, in bytes.
const LONGEST_PURPOSE: u64 = 4096;

/// The manager's folder for its lock and the settings to put back: `HAWKEYE_STATE_DIR`, or
/// `/run/hawkeye`.
pub fn state_dir() -> PathBuf {
    std::env::var_os("HAWKEYE_STATE_DIR").map_or_else(|| MACHINE_DIR.into(), PathBuf::from)
}

/// Held while this process manages the machine: the lock of the state folder and the machine's,
/// unless that is the same, or held by the process that started this one.
#[derive(Debug)]
pub struct ManagerLock(Vec<Flock<File>>);

impl ManagerLock {
    /// Becomes the machine's manager. `purpose` describes it to other managers. A process that a
    /// manager has started may manage too, with its own state folder.
    ///
    /// # Errors
    /// - Another manager is running, or another process holds its lock. The error names it.
    /// - The state folder cannot be created, or other users can change it.
    pub fn claim(state_dir: &Path, purpose: &str) -> Result<Self> {
        let own = Self::claim_in_folders(state_dir, Path::new(MACHINE_DIR), purpose)?;
        let locked = own.0.iter().filter_map(|lock| LockedFile::of_open_file(lock));
        let locked: Vec<LockedFile> = locked.collect();
        match lock_holders::find_other_manager_pid(&locked) {
            Some(pid) => {
                let other = format!("process {pid} (its lock is in another folder)");
                Err(LinuxError::AlreadyManaged(other))
            }
            None => Ok(own),
        }
    }

    fn claim_in_folders(state_dir: &Path, machine_dir: &Path, purpose: &str) -> Result<Self> {
        let lock =
            take_lock_in_folder(state_dir, purpose)?.map_err(ForeignManagerLock::into_error)?;
        let mut locks = vec![lock];
        if state_dir != machine_dir {
            match take_lock_in_folder(machine_dir, purpose) {
                Ok(Ok(machine)) => locks.push(machine),
                Ok(Err(held)) if held.is_held_by_ancestor() => {}
                Ok(Err(held)) => return Err(held.into_error()),
                // /run is read-only, or this manager is not root.
                Err(error) => tracing::warn!(
                    "a manager with another state folder cannot be detected: {error}"
                ),
            }
        }
        Ok(Self(locks))
    }

    /// The machine's manager, by its own description; `None` if there is none. It takes no lock for
    /// longer than the check.
    pub fn describe_holder(state_dir: &Path) -> Result<Option<String>> {
        match describe_holder_in_folder(state_dir)? {
            None if state_dir != Path::new(MACHINE_DIR) => {
                describe_holder_in_folder(Path::new(MACHINE_DIR))
            }
            holder => Ok(holder),
        }
    }
}

fn describe_holder_in_folder(folder: &Path) -> Result<Option<String>> {
    let path = folder.join(LOCK);
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW);
    let mut file = match options.open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LinuxError::wrap_io_error("opening", &path)(error)),
    };
    let holder = read_holder_text(&mut file, &path)?;
    // If the lock is free, this releases it at once.
    let free = Flock::lock(file, FlockArg::LockSharedNonblock).is_ok();
    Ok((!free).then_some(holder))
}

/// A lock that another process holds.
#[derive(Debug)]
struct ForeignManagerLock {
    path: PathBuf,
    holders: Vec<LockHolder>,
    /// The text that the last manager wrote there.
    recorded: String,
    inode: u64,
}

impl ForeignManagerLock {
    /// The manager that holds it, if the text in the file names it.
    fn holder_named_in_file(&self) -> Option<&LockHolder> {
        let says_so = |holder: &&LockHolder| {
            let words = format!("process {} ", holder.pid);
            self.recorded.starts_with(&words)
        };
        self.holders.iter().find(says_so)
    }

    fn is_held_by_ancestor(&self) -> bool {
        let family = lock_holders::pids_of_process_and_ancestors(std::process::id());
        self.holder_named_in_file()
            .is_some_and(|holder| holder.pid != std::process::id() && family.contains(&holder.pid))
    }

    fn into_error(self) -> LinuxError {
        if self.holder_named_in_file().is_some() {
            return LinuxError::AlreadyManaged(self.recorded);
        }
        let holder = match self.holders.first() {
            Some(holder) => holder.to_string(),
            None => format!(
                "a process that is not visible here (`grep :{} /proc/locks` on the host shows it)",
                self.inode
            ),
        };
        LinuxError::LockHeld { path: self.path, holder }
    }
}

/// Takes the lock in a folder, and creates the folder if it is missing.
fn take_lock_in_folder(
    folder: &Path,
    purpose: &str,
) -> Result<Result<Flock<File>, ForeignManagerLock>> {
    own_files::create_trusted_folder(folder, 0o755)?;
    let path = folder.join(LOCK);
    let mut held = None;
    for _ in 0..TRIES {
        let mut file =
            open_or_create_lock_file(&path).map_err(LinuxError::wrap_io_error("opening", &path))?;
        let found = (file.metadata()).map_err(LinuxError::wrap_io_error("reading", &path))?;
        let recorded = read_holder_text(&mut file, &path)?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) if !is_same_file_at_path(&path, &found) => drop(lock),
            Ok(lock) if is_private_file(&found) => {
                let text = holder_text(purpose);
                lock.set_len(0)
                    .and_then(|()| lock.write_all_at(text.as_bytes(), 0))
                    .map_err(LinuxError::wrap_io_error("writing", &path))?;
                return Ok(Ok(lock));
            }
            // Other users may have it open and lock it later. Keep this lock until the new file is
            // in place.
            Ok(lock) => {
                replace_lock_file(&path, &found, purpose)?;
                drop(lock);
            }
            Err((file, Errno::EWOULDBLOCK)) => {
                let inode = found.ino();
                let locked = LockedFile::of_open_file(&file);
                let holders = locked.map_or_else(Vec::new, lock_holders::lock_holders_of_file);
                let strangers = !holders.is_empty()
                    && holders.iter().all(|h| !own_files::is_trusted_uid(h.uid));
                if strangers {
                    tracing::warn!(
                        "the lock {} was held by {}; the file is replaced",
                        path.display(),
                        holders[0]
                    );
                    replace_lock_file(&path, &found, purpose)?;
                    continue;
                }
                let foreign = ForeignManagerLock { path: path.clone(), holders, recorded, inode };
                let is_manager = foreign.holder_named_in_file().is_some();
                held = Some(foreign);
                if is_manager {
                    break;
                }
                // A process that only calls `holder` has the lock for a moment.
                std::thread::sleep(BETWEEN_TRIES);
            }
            Err((_, errno)) => {
                return Err(LinuxError::wrap_io_error("locking", &path)(errno.into()));
            }
        }
    }
    held.map(Err).ok_or_else(|| {
        let error = std::io::Error::other("other processes keep replacing it");
        LinuxError::wrap_io_error("locking", &path)(error)
    })
}

fn open_or_create_lock_file(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// The text that the holder has written into its lock file.
fn read_holder_text(file: &mut File, path: &Path) -> Result<String> {
    let mut text = Vec::new();
    file.take(LONGEST_PURPOSE)
        .read_to_end(&mut text)
        .map_err(LinuxError::wrap_io_error("reading", path))?;
    Ok(String::from_utf8_lossy(&text).trim().to_owned())
}

fn holder_text(purpose: &str) -> String {
    format!("process {} ({purpose})\n", std::process::id())
}

/// Whether only root and this user can have opened it.
fn is_private_file(found: &Metadata) -> bool {
    found.mode() & 0o077 == 0 && own_files::is_trusted_uid(found.uid())
}

fn is_same_file_at_path(path: &Path, found: &Metadata) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|there| (there.dev(), there.ino()) == (found.dev(), found.ino()))
}

/// Replaces a lock file that other users can lock with a new one. The next attempt locks that.
///
/// Managers that start at the same time take turns, by a lock that other users could never open.
fn replace_lock_file(path: &Path, found: &Metadata, purpose: &str) -> Result<()> {
    let turn = path.with_extension("replacing");
    let file =
        open_or_create_lock_file(&turn).map_err(LinuxError::wrap_io_error("opening", &turn))?;
    let _turn = Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| LinuxError::wrap_io_error("locking", &turn)(errno.into()))?;
    if is_same_file_at_path(path, found) {
        own_files::replace_file_atomically(path, holder_text(purpose).as_bytes())
            .map_err(LinuxError::wrap_io_error("writing", path))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_lease::thp_settings::testing::{TestFolder, set_mode};

    fn claim(folder: &TestFolder, state: &str) -> Result<ManagerLock> {
        let at = |name| folder.0.join(name);
        ManagerLock::claim_in_folders(&at(state), &at("machine"), "a test")
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("the file exists").mode() & 0o7777
    }

    #[test]
    fn the_manager_is_found_without_disturbing_it() {
        let folder = TestFolder::new("instance");
        let state = folder.0.join("state");
        assert_eq!(describe_holder_in_folder(&state).expect("the lock can be read"), None);
        assert!(!state.exists(), "a look creates no folder");
        let instance = claim(&folder, "state").expect("no other manager runs");
        let holder = describe_holder_in_folder(&state).expect("the lock can be read");
        assert!(holder.is_some_and(|holder| holder.ends_with("(a test)")));
        drop(instance);
        assert_eq!(describe_holder_in_folder(&state).expect("the lock can be read"), None);
        assert!(claim(&folder, "state").is_ok());
    }

    #[test]
    fn managers_with_different_state_folders_exclude_each_other() {
        let folder = TestFolder::new("instance-two");
        let first = claim(&folder, "one").expect("no other manager runs");
        let refused = claim(&folder, "two").expect_err("a second manager is refused");
        assert!(matches!(refused, LinuxError::AlreadyManaged(_)));
        drop(first);
        claim(&folder, "two").expect("the lock is free");
    }

    #[test]
    fn the_lock_is_for_us_alone_and_one_that_was_not_is_replaced() {
        let folder = TestFolder::new("instance-mode");
        let path = folder.file("state/manager.lock", "process 1 (long ago)");
        set_mode(&path, 0o644);
        let before = fs::metadata(&path).expect("the file exists").ino();
        let old = File::open(&path).expect("the file can be opened");
        let _instance = claim(&folder, "state").expect("the lock is free");
        assert_ne!(fs::metadata(&path).expect("the file exists").ino(), before);
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(&folder.0.join("machine/manager.lock")), 0o600);
        // A descriptor opened before the replacement locks a file that no longer matters.
        Flock::lock(old, FlockArg::LockExclusiveNonblock).expect("the old file can be locked");
        claim(&folder, "state").expect_err("a second manager is refused");
    }

    #[test]
    fn a_holder_that_is_not_a_manager_is_named() {
        let folder = TestFolder::new("instance-stranger");
        let path = folder.file("state/manager.lock", "process 4000000 (attach 5)");
        set_mode(&path, 0o600);
        let file = File::open(&path).expect("the file can be opened");
        let _stranger = Flock::lock(file, FlockArg::LockExclusive).expect("the file can be locked");
        let refused =
            claim(&folder, "state").expect_err("a lock that is held is refused").to_string();
        let us = format!("process {} (", std::process::id());
        assert!(refused.contains(&us), "{refused}");
        assert!(refused.contains("not a manager"), "{refused}");
        assert!(!refused.contains("4000000"), "{refused}");
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused() {
        let folder = TestFolder::new("instance-folder");
        let state = folder.0.join("state");
        fs::create_dir(&state).expect("the folder can be created");
        set_mode(&state, 0o777);
        let refused = claim(&folder, "state").expect_err("an unsafe folder is refused").to_string();
        assert!(refused.contains("mode 777"), "{refused}");
    }
}
