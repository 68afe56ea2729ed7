//! Keeps the values that settings had, and puts them back if HawkEye's values are still in place.

use super::read_setting;
use super::saved_settings::{
    self, SavedSettings, SettingChange, SettingChanges, WritableSettingFiles,
};
use crate::error::{LinuxError, Result};
use crate::machine_lease::own_files::{self, UnusableFileReason};
use crate::mutex::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Held while a setting and its record are changed.
static CHANGE: Mutex<()> = Mutex::new(());

/// Waits for the change under way, and prevents others until the result is dropped. Some take
/// seconds: until the kernel has filled the hugetlb pool, a reader sees fewer pages.
pub(in crate::machine_lease) fn prevent_setting_changes() -> MutexGuard<'static, ()> {
    lock(&CHANGE)
}

/// Changes settings. Dropping it puts back each one that still has the value that this guard left.
/// A thread that panics has changed at most one setting, already on the list.
#[derive(Debug)]
pub struct KernelSettingsGuard(Arc<Mutex<KernelSettingsGuardState>>);

/// Changes settings through a guard, while that guard exists.
#[derive(Clone, Debug)]
pub struct KernelSettingsHandle(Weak<Mutex<KernelSettingsGuardState>>);

#[derive(Debug)]
struct KernelSettingsGuardState {
    file: PathBuf,
    allowed: WritableSettingFiles,
    changes: SettingChanges,
    /// The value at which this guard left each setting that it has set or put back.
    last_values: BTreeMap<PathBuf, String>,
    /// Settings that another program has changed since. The guard no longer touches them.
    changed_by_others: BTreeSet<PathBuf>,
}

/// The result of putting one setting back.
#[derive(Debug)]
pub struct SettingRestoreReport {
    /// The setting.
    pub path: PathBuf,
    /// Its value before HawkEye changed it.
    pub found: String,
    /// The result.
    pub became: SettingRestoreResult,
}

/// What happened to a setting.
#[derive(Debug)]
pub enum SettingRestoreResult {
    /// It has its old value again.
    PutBack,
    /// Another program has changed it since, so it stays.
    Left {
        /// The value that HawkEye had set.
        set: String,
        /// Its value now.
        now: String,
    },
    /// It cannot be written, for this reason. Its old value is kept for the next attempt.
    Failed(io::Error),
}

impl fmt::Display for SettingRestoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, found) = (self.path.display(), &self.found);
        match &self.became {
            SettingRestoreResult::PutBack => write!(f, "{path} is restored to {found}"),
            SettingRestoreResult::Left { set, now } => write!(
                f,
                "{path} stays {now}: another program changed it from {set}, the value that HawkEye had set (before HawkEye: {found})"
            ),
            SettingRestoreResult::Failed(error) => write!(
                f,
                "{path} could not be restored to {found}: {error}; the next start or `hawkeye restore` tries again"
            ),
        }
    }
}

impl KernelSettingsGuard {
    /// Puts back what an earlier manager left changed, logs it, and starts without changes. The
    /// caller holds the [`ManagerLock`](crate::machine_lease::manager_lock::ManagerLock), so no other
    /// manager changes settings. What cannot be put back is kept for later and does not prevent the
    /// start. An unusable record of the changes is set aside, which is logged.
    ///
    /// # Errors
    /// The record cannot be read or written. A start without it would replace it.
    pub fn restore_leftovers_and_start(state_dir: &Path) -> Result<Self> {
        Self::restore_and_start_for_files(state_dir, WritableSettingFiles::of_kernel())
    }

    /// As [`Self::restore_leftovers_and_start`], for the files in `allowed`.
    pub fn restore_and_start_for_files(
        state_dir: &Path,
        allowed: WritableSettingFiles,
    ) -> Result<Self> {
        let file = saved_settings::saved_settings_file_in(state_dir);
        let found = match saved_settings::read_saved_settings(&file, &allowed) {
            Ok(found) => found,
            Err(UnusableFileReason::Io(error)) => {
                return Err(LinuxError::wrap_io_error("reading", file)(error));
            }
            Err(why) => {
                let what = "settings that an earlier manager may have changed are not restored (check /sys/kernel/mm/transparent_hugepage): the record of them is";
                own_files::log_and_set_aside(what, &file, &why);
                None
            }
        };
        let (outcomes, changes) = restore_saved_settings(&file, found)?;
        for outcome in &outcomes {
            match outcome.became {
                SettingRestoreResult::PutBack => tracing::info!("{outcome}"),
                SettingRestoreResult::Left { .. } | SettingRestoreResult::Failed(_) => {
                    tracing::warn!("{outcome}")
                }
            }
        }
        Ok(Self(Arc::new(Mutex::new(KernelSettingsGuardState {
            file,
            allowed,
            changes,
            last_values: BTreeMap::new(),
            changed_by_others: BTreeSet::new(),
        }))))
    }

    /// Sets the file at `path` to `value`. Its old value is on disk before the change.
    ///
    /// The guard remembers the value of each setting that it has set, put back, or found to be
    /// `value`. If another program or a user has changed it since, the setting is theirs. The guard
    /// neither sets it nor puts it back again. A user that sets `enabled` to `never` during an
    /// incident must be able to rely on that.
    ///
    /// # Errors
    /// - [`LinuxError::ChangedByOthers`] or [`LinuxError::NotASetting`].
    /// - The setting cannot be written.
    pub fn set(&mut self, path: &Path, value: &str) -> Result<()> {
        lock(&self.0).set(path, value)
    }

    /// Puts a setting back now, if it was changed and still has the value set.
    ///
    /// # Errors
    /// The setting cannot be written. It stays on the list.
    pub fn put_back(&mut self, path: &Path) -> Result<()> {
        lock(&self.0).put_back(path)
    }

    /// A handle for code that changes settings while the guard is kept elsewhere.
    pub fn handle(&self) -> KernelSettingsHandle {
        KernelSettingsHandle(Arc::downgrade(&self.0))
    }
}

impl KernelSettingsHandle {
    /// As [`KernelSettingsGuard::set`].
    ///
    /// # Errors
    /// Those of [`KernelSettingsGuard::set`], and [`LinuxError::SettingsPutBack`] if the guard is
    /// gone.
    pub fn set(&self, path: &Path, value: &str) -> Result<()> {
        let guard = self.0.upgrade().ok_or(LinuxError::SettingsPutBack)?;
        lock(&guard).set(path, value)
    }

    /// As [`KernelSettingsGuard::put_back`]. A guard that is gone has already put back its changes.
    pub fn put_back(&self, path: &Path) -> Result<()> {
        match self.0.upgrade() {
            Some(guard) => lock(&guard).put_back(path),
            None => Ok(()),
        }
    }
}

impl KernelSettingsGuardState {
    fn set(&mut self, path: &Path, value: &str) -> Result<()> {
        if !self.allowed.contains(path) {
            return Err(LinuxError::NotASetting(path.to_owned()));
        }
        let _change = lock(&CHANGE);
        let now = read_setting(path)?;
        self.check_unchanged_by_others(path, &now)?;
        if now == value {
            self.last_values.insert(path.to_owned(), now);
            return Ok(());
        }
        let before = self.changes.get(path).cloned();
        let mut change =
            before.clone().unwrap_or_else(|| SettingChange { found: now, set: Vec::new() });
        change.set.push(value.to_owned());
        // A change must be on disk before it is made.
        self.save_or_remove_one_change(path, Some(change.clone()))?;
        if let Err(error) = write_existing_file(path, value) {
            if let Err(error) = self.save_or_remove_one_change(path, before) {
                tracing::warn!("{error}");
            }
            return Err(LinuxError::wrap_io_error("writing", path)(error));
        }
        // The kernel rounds some values, and shows other words than it accepts.
        let left = read_setting(path).unwrap_or_else(|_| value.to_owned());
        self.last_values.insert(path.to_owned(), left.clone());
        if change.set != [left.clone()] {
            change.set = vec![left];
            self.save_or_remove_one_change(path, Some(change))?;
        }
        Ok(())
    }

    /// Checks that a setting still has the value at which this guard left it, if it has set it.
    fn check_unchanged_by_others(&mut self, path: &Path, now: &str) -> Result<()> {
        if !self.changed_by_others.contains(path) {
            match self.last_values.get(path) {
                Some(ours) if ours != now => tracing::warn!(
                    "{} was changed from {ours} to {now} by another program: HawkEye does not set it again",
                    path.display()
                ),
                Some(_) | None => return Ok(()),
            }
            self.changed_by_others.insert(path.to_owned());
            self.save_or_remove_one_change(path, None)?;
        }
        Err(LinuxError::ChangedByOthers { path: path.to_owned(), now: now.to_owned() })
    }

    /// Records on disk the change of a setting to put back. `None` removes it.
    fn save_or_remove_one_change(
        &mut self,
        path: &Path,
        change: Option<SettingChange>,
    ) -> Result<()> {
        let mut changes = self.changes.clone();
        match change {
            Some(change) => changes.insert(path.to_owned(), change),
            None => changes.remove(path),
        };
        if changes != self.changes {
            saved_settings::write_or_remove_saved_settings(&self.file, &changes)?;
            self.changes = changes;
        }
        Ok(())
    }

    fn put_back(&mut self, path: &Path) -> Result<()> {
        let Some(change) = self.changes.get(path) else {
            return Ok(());
        };
        let _change = lock(&CHANGE);
        if let Some(outcome) = restore_setting(path, change) {
            match outcome.became {
                SettingRestoreResult::Failed(error) => {
                    return Err(LinuxError::wrap_io_error("restoring", path)(error));
                }
                SettingRestoreResult::Left { .. } => {
                    tracing::warn!("{outcome}");
                    self.changed_by_others.insert(path.to_owned());
                    return self.save_or_remove_one_change(path, None);
                }
                SettingRestoreResult::PutBack => {}
            }
        }
        if let Ok(now) = read_setting(path) {
            self.last_values.insert(path.to_owned(), now);
        }
        self.save_or_remove_one_change(path, None)
    }
}

impl Drop for KernelSettingsGuard {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        for path in state.changes.clone().into_keys() {
            if let Err(error) = state.put_back(&path) {
                tracing::error!("{error}; `hawkeye restore` tries again");
            }
        }
    }
}

/// Puts back what a killed manager left changed, where that is still in place. Returns the result
/// for each setting. The caller holds the
/// [`ManagerLock`](crate::machine_lease::manager_lock::ManagerLock).
///
/// # Errors
/// The record of the changes is unusable, or cannot be read or written. It stays where it is.
pub fn restore_leftover_settings(state_dir: &Path) -> Result<Vec<SettingRestoreReport>> {
    restore_leftovers_of_files(state_dir, &WritableSettingFiles::of_kernel())
}

fn restore_leftovers_of_files(
    state_dir: &Path,
    allowed: &WritableSettingFiles,
) -> Result<Vec<SettingRestoreReport>> {
    let file = saved_settings::saved_settings_file_in(state_dir);
    match saved_settings::read_saved_settings(&file, allowed) {
        Ok(found) => Ok(restore_saved_settings(&file, found)?.0),
        Err(UnusableFileReason::Io(error)) => {
            Err(LinuxError::wrap_io_error("reading", file)(error))
        }
        Err(why) => Err(LinuxError::UnusableRecord { path: file, why: why.to_string() }),
    }
}

/// The result for each setting, and the changes that remain.
fn restore_saved_settings(
    file: &Path,
    found: Option<SavedSettings>,
) -> Result<(Vec<SettingRestoreReport>, SettingChanges)> {
    let Some(found) = found else {
        return Ok(Default::default());
    };
    let mut still = found.changes;
    if found.of_earlier_boot {
        tracing::info!(
            "{} is from before the last start of the machine: no setting has to be restored",
            file.display()
        );
        still.clear();
    }
    let mut outcomes = Vec::new();
    still.retain(|path, change| {
        let outcome = restore_setting(path, change);
        let became = outcome.as_ref().map(|outcome| &outcome.became);
        let failed = matches!(became, Some(SettingRestoreResult::Failed(_)));
        outcomes.extend(outcome);
        failed
    });
    saved_settings::write_or_remove_saved_settings(file, &still)?;
    Ok((outcomes, still))
}

/// Puts a setting back. `None` if there was nothing to do, or the kernel lacks the setting now.
fn restore_setting(path: &Path, change: &SettingChange) -> Option<SettingRestoreReport> {
    let became = match read_setting(path) {
        Ok(now) if now == change.found => return None,
        Ok(now) if !change.set.contains(&now) => {
            SettingRestoreResult::Left { set: change.set.last().cloned().unwrap_or_default(), now }
        }
        Ok(_) => write_existing_file(path, &change.found)
            .map_or_else(SettingRestoreResult::Failed, |()| SettingRestoreResult::PutBack),
        Err(LinuxError::File { error, .. }) => SettingRestoreResult::Failed(error),
        Err(error) => SettingRestoreResult::Failed(io::Error::other(error)),
    };
    // The module with the setting was unloaded, or another kernel was started.
    if matches!(&became, SettingRestoreResult::Failed(error) if error.kind() == ErrorKind::NotFound)
    {
        return None;
    }
    Some(SettingRestoreReport { path: path.to_owned(), found: change.found.clone(), became })
}

/// Writes to an existing file. It never follows a link and never creates a file.
fn write_existing_file(path: &Path, value: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).truncate(true);
    let mut file = options.custom_flags(libc::O_NOFOLLOW).open(path)?;
    file.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests;
