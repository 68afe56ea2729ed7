//! Keeps what settings were found at, and puts it back whatever happens.

use super::read_setting;
use crate::error::LinuxError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Values as found, by file.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Saved(BTreeMap<PathBuf, String>);

/// Changes settings; dropping it puts all of them back.
#[derive(Debug)]
pub struct SettingsGuard(Arc<Mutex<Changes>>);

/// Changes settings as the guard does that it is from, for as long as that one lives.
#[derive(Clone, Debug)]
pub struct SettingsHandle(Weak<Mutex<Changes>>);

#[derive(Debug)]
struct Changes {
    file: PathBuf,
    saved: Saved,
}

impl SettingsGuard {
    /// Puts back what an earlier manager left changed and starts anew. The caller holds the
    /// [`Instance`](crate::instance::Instance) lock, so nobody else is changing anything.
    pub fn start(state_dir: &Path) -> Result<Self, LinuxError> {
        restore_leftovers(state_dir)?;
        Ok(Self(Arc::new(Mutex::new(Changes {
            file: saved_file(state_dir),
            saved: Saved::default(),
        }))))
    }

    /// Sets the file at `path` (under `/sys` or `/proc/sys`) to `value`.
    pub fn set(&mut self, path: &Path, value: &str) -> Result<(), LinuxError> {
        lock(&self.0).set(path, value)
    }

    /// Puts one back now, where it was changed. What somebody else makes of it afterwards is theirs.
    pub fn put_back(&mut self, path: &Path) -> Result<(), LinuxError> {
        lock(&self.0).put_back(path)
    }

    /// Puts everything back now.
    pub fn restore(&mut self) -> Result<(), LinuxError> {
        lock(&self.0).restore()
    }

    /// For whoever changes settings while this is kept elsewhere.
    pub fn handle(&self) -> SettingsHandle {
        SettingsHandle(Arc::downgrade(&self.0))
    }
}

impl SettingsHandle {
    /// As [`SettingsGuard::set`].
    ///
    /// # Errors
    /// The same, and that the guard is gone.
    pub fn set(&self, path: &Path, value: &str) -> Result<(), LinuxError> {
        let guard = self.0.upgrade().ok_or(LinuxError::SettingsPutBack)?;
        lock(&guard).set(path, value)
    }

    /// As [`SettingsGuard::put_back`]. What a guard that is gone has changed is put back already.
    ///
    /// # Errors
    /// The setting can't be changed.
    pub fn put_back(&self, path: &Path) -> Result<(), LinuxError> {
        match self.0.upgrade() {
            Some(guard) => lock(&guard).put_back(path),
            None => Ok(()),
        }
    }
}

/// Whoever panicked has changed one setting at the most, and it is on the list before it is changed.
fn lock(changes: &Mutex<Changes>) -> MutexGuard<'_, Changes> {
    changes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Changes {
    fn set(&mut self, path: &Path, value: &str) -> Result<(), LinuxError> {
        let found = read_setting(path)?;
        if found == value {
            return Ok(());
        }
        if !self.saved.0.contains_key(path) {
            self.saved.0.insert(path.to_owned(), found);
            if let Err(error) = write_durably(&self.file, &self.saved) {
                // What is not on disk must not be changed, at the next try either.
                self.saved.0.remove(path);
                return Err(error);
            }
        }
        fs::write(path, value).map_err(LinuxError::file("writing", path))
    }

    fn put_back(&mut self, path: &Path) -> Result<(), LinuxError> {
        let Some(found) = self.saved.0.get(path) else {
            return Ok(());
        };
        match fs::write(path, found) {
            // A module that had it was unloaded.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            written => written.map_err(LinuxError::file("restoring", path))?,
        }
        self.saved.0.remove(path);
        if self.saved.0.is_empty() {
            forget(&self.file)
        } else {
            write_durably(&self.file, &self.saved)
        }
    }

    fn restore(&mut self) -> Result<(), LinuxError> {
        restore(&self.file, &self.saved)?;
        self.saved.0.clear();
        Ok(())
    }
}

impl Drop for SettingsGuard {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            tracing::error!("{error}; `hawkeye restore` tries again");
        }
    }
}

/// Puts back what a manager that was killed left changed; returns the files concerned.
pub fn restore_leftovers(state_dir: &Path) -> Result<Vec<PathBuf>, LinuxError> {
    let file = saved_file(state_dir);
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(LinuxError::file("reading", file)(error)),
    };
    let saved: Saved =
        serde_json::from_str(&text).map_err(|error| LinuxError::DamagedSettings {
            path: file.clone(),
            why: error.to_string(),
        })?;
    restore(&file, &saved)?;
    Ok(saved.0.into_keys().collect())
}

fn saved_file(state_dir: &Path) -> PathBuf {
    state_dir.join("settings.json")
}

/// On disk before the setting changes: rename is atomic, so a crash leaves the old file or the new.
fn write_durably(file: &Path, saved: &Saved) -> Result<(), LinuxError> {
    let new = file.with_extension("new");
    let write = || {
        let mut out = File::create(&new)?;
        serde_json::to_writer(&out, saved)?;
        out.flush()?;
        out.sync_all()?;
        fs::rename(&new, file)
    };
    write().map_err(LinuxError::file("writing", file))
}

fn restore(file: &Path, saved: &Saved) -> Result<(), LinuxError> {
    let mut failed = None;
    for (path, value) in &saved.0 {
        match fs::write(path, value) {
            // Of a kernel that ran before: this one has no such setting.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                failed.get_or_insert(LinuxError::file("restoring", path)(error));
            }
            Ok(()) => {}
        }
    }
    match failed {
        Some(error) => Err(error),
        None => forget(file),
    }
}

fn forget(file: &Path) -> Result<(), LinuxError> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(LinuxError::file("removing", file)(error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::Folder;
    use super::*;

    #[test]
    fn dropping_the_guard_puts_the_first_value_back() {
        let folder = Folder::new("drop");
        let knob = folder.file("knob", "10\n");
        let mut guard = SettingsGuard::start(&folder.0).expect("starts");
        guard.set(&knob, "20").expect("sets");
        guard.set(&knob, "30").expect("sets again");
        assert_eq!(fs::read_to_string(&knob).expect("reads"), "30");
        drop(guard);
        assert_eq!(fs::read_to_string(&knob).expect("reads"), "10");
        assert!(!saved_file(&folder.0).exists());
    }

    #[test]
    fn one_setting_is_put_back_and_can_be_changed_again() {
        let folder = Folder::new("one");
        let knob = folder.file("knob", "10\n");
        let mut guard = SettingsGuard::start(&folder.0).expect("starts");
        guard.put_back(&knob).expect("was never changed");
        for _ in 0..2 {
            guard.set(&knob, "20").expect("sets");
            guard.put_back(&knob).expect("puts back");
            assert_eq!(fs::read_to_string(&knob).expect("reads"), "10");
        }
    }

    #[test]
    fn the_next_start_restores_what_a_killed_manager_left() {
        let folder = Folder::new("killed");
        let knob = folder.file("knob", "always [madvise] never\n");
        let mut guard = SettingsGuard::start(&folder.0).expect("starts");
        guard.set(&knob, "always").expect("sets");
        std::mem::forget(guard);
        drop(SettingsGuard::start(&folder.0).expect("starts again"));
        assert_eq!(fs::read_to_string(&knob).expect("reads"), "madvise");
    }

    #[test]
    fn a_damaged_file_is_an_error_that_says_what_to_do() {
        let folder = Folder::new("damaged");
        folder.file("settings.json", "{\"/sys/x\": ");
        let error = SettingsGuard::start(&folder.0).expect_err("refuses");
        assert!(error.to_string().contains("is damaged"), "{error}");
    }

    #[test]
    fn a_handle_changes_what_its_guard_puts_back() {
        let folder = Folder::new("handle");
        let knob = folder.file("knob", "10\n");
        let guard = SettingsGuard::start(&folder.0).expect("starts");
        let handle = guard.handle();
        handle.set(&knob, "20").expect("sets");
        assert_eq!(fs::read_to_string(&knob).expect("reads"), "20");
        handle.put_back(&knob).expect("puts back");
        handle.set(&knob, "30").expect("sets again");
        drop(guard);
        assert_eq!(fs::read_to_string(&knob).expect("reads"), "10");
        assert!(handle.set(&knob, "40").is_err());
        handle.put_back(&knob).expect("it is put back");
        assert_eq!(fs::read_to_string(&knob).expect("reads"), "10");
    }
}
