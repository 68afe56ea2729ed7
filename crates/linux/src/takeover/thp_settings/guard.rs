//! Keeps what settings were found at, and puts that back where they are still as HawkEye left them.

use super::read_setting;
use super::saved::{self, Allowed, Change, Changes};
use crate::error::{LinuxError, Result};
use crate::takeover::own_files;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Changes settings; dropping it puts back all of them that are still as it left them.
#[derive(Debug)]
pub struct SettingsGuard(Arc<Mutex<State>>);

/// Changes settings as the guard does that it is from, for as long as that one lives.
#[derive(Clone, Debug)]
pub struct SettingsHandle(Weak<Mutex<State>>);

#[derive(Debug)]
struct State {
    file: PathBuf,
    allowed: Allowed,
    /// To be put back.
    changes: Changes,
    /// As this guard left each setting that it has set or put back.
    left: BTreeMap<PathBuf, String>,
    /// Changed by another program since: not touched again.
    others: BTreeMap<PathBuf, String>,
}

/// What became of one setting that was to be put back.
#[derive(Debug)]
pub enum Outcome {
    /// It has its old value.
    PutBack {
        /// Which.
        path: PathBuf,
        /// Its value.
        value: String,
    },
    /// Another program has changed it since: it stays.
    Left {
        /// Which.
        path: PathBuf,
        /// What HawkEye had set.
        set: String,
        /// What it is.
        now: String,
        /// What it was before HawkEye.
        found: String,
    },
    /// It can't be written. What it was is kept for the next try.
    Failed {
        /// Which.
        path: PathBuf,
        /// What it was before HawkEye.
        found: String,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PutBack { path, value } => write!(f, "{} is {value} again", path.display()),
            Self::Left {
                path,
                set,
                now,
                found,
            } => write!(
                f,
                "{} stays {now}: another program changed it from {set}, which HawkEye had set ({found} before that)",
                path.display()
            ),
            Self::Failed { path, found, error } => write!(
                f,
                "{} could not be set back to {found}: {error}; the next start or `hawkeye restore` tries again",
                path.display()
            ),
        }
    }
}

impl SettingsGuard {
    /// Puts back what an earlier manager left changed, reports it in the log, and starts anew. The
    /// caller holds the [`Instance`](crate::takeover::instance::Instance) lock: no other manager changes
    /// anything. What can't be put back is kept for later and does not prevent the start.
    ///
    /// # Errors
    /// The state folder can't be written.
    pub fn start(state_dir: &Path) -> Result<Self> {
        Self::start_with(state_dir, Allowed::of_kernel())
    }

    /// The same for other files than the kernel's.
    ///
    /// # Errors
    /// As there.
    pub fn start_with(state_dir: &Path, allowed: Allowed) -> Result<Self> {
        let file = saved::file_in(state_dir);
        let (outcomes, changes) = restore_file(&file, &allowed)?;
        for outcome in &outcomes {
            match outcome {
                Outcome::PutBack { .. } => tracing::info!("{outcome}"),
                Outcome::Left { .. } | Outcome::Failed { .. } => tracing::warn!("{outcome}"),
            }
        }
        Ok(Self(Arc::new(Mutex::new(State {
            file,
            allowed,
            changes,
            left: BTreeMap::new(),
            others: BTreeMap::new(),
        }))))
    }

    /// Sets the file at `path` to `value`. What it was is on disk before.
    ///
    /// A setting that another program or a person has changed since this guard set it, found it so
    /// or put it back, is that one's from then on. It is neither set nor put back again by this
    /// guard: whoever sets `enabled` to `never` during an incident must be able to rely on it.
    ///
    /// # Errors
    /// [`LinuxError::ChangedByOthers`]; [`LinuxError::NotASetting`]; it can't be written.
    pub fn set(&mut self, path: &Path, value: &str) -> Result<()> {
        lock(&self.0).set(path, value)
    }

    /// Puts one back now, where it was changed and is still as it was set.
    ///
    /// # Errors
    /// It can't be written; it stays on the list.
    pub fn put_back(&mut self, path: &Path) -> Result<()> {
        lock(&self.0).put_back(path)
    }

    /// Puts everything back now that is still as it was set.
    ///
    /// # Errors
    /// One of them can't be written; it stays on the list.
    pub fn restore(&mut self) -> Result<()> {
        lock(&self.0).restore()
    }

    /// For code that changes settings while this is kept elsewhere.
    pub fn handle(&self) -> SettingsHandle {
        SettingsHandle(Arc::downgrade(&self.0))
    }
}

impl SettingsHandle {
    /// As [`SettingsGuard::set`].
    ///
    /// # Errors
    /// The same, and that the guard is gone.
    pub fn set(&self, path: &Path, value: &str) -> Result<()> {
        let guard = self.0.upgrade().ok_or(LinuxError::SettingsPutBack)?;
        lock(&guard).set(path, value)
    }

    /// As [`SettingsGuard::put_back`]. What a guard that is gone has changed is put back already.
    ///
    /// # Errors
    /// The setting can't be changed.
    pub fn put_back(&self, path: &Path) -> Result<()> {
        match self.0.upgrade() {
            Some(guard) => lock(&guard).put_back(path),
            None => Ok(()),
        }
    }
}

/// A thread that panicked has changed one setting at most, and that is on the list before.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn set(&mut self, path: &Path, value: &str) -> Result<()> {
        if !self.allowed.contains(path) {
            return Err(LinuxError::NotASetting {
                path: path.to_owned(),
            });
        }
        let now = read_setting(path)?;
        self.check_ours(path, &now)?;
        if now == value {
            self.left.insert(path.to_owned(), now);
            return Ok(());
        }
        let before = self.changes.get(path).cloned();
        let mut change = before.clone().unwrap_or_else(|| Change {
            found: now,
            set: Vec::new(),
        });
        change.set.push(value.to_owned());
        // What is not on disk must not be changed.
        self.keep(path, Some(change.clone()))?;
        if let Err(error) = write(path, value) {
            if let Err(error) = self.keep(path, before) {
                tracing::warn!("{error}");
            }
            return Err(LinuxError::file("writing", path)(error));
        }
        // Kernels round, and show other words than they take.
        let left = read_setting(path).unwrap_or_else(|_| value.to_owned());
        self.left.insert(path.to_owned(), left.clone());
        if change.set != [left.clone()] {
            change.set = vec![left];
            self.keep(path, Some(change))?;
        }
        Ok(())
    }

    /// Whether it is as this guard left it, if it did.
    fn check_ours(&mut self, path: &Path, now: &str) -> Result<()> {
        let others = self.others.contains_key(path);
        let ours = self.left.get(path);
        if !others && ours.is_none_or(|ours| ours == now) {
            return Ok(());
        }
        if !others {
            tracing::warn!(
                "{} was changed from {} to {now} by another program: it stays so",
                path.display(),
                ours.map_or("", String::as_str)
            );
            self.others.insert(path.to_owned(), now.to_owned());
            self.keep(path, None)?;
        }
        Err(LinuxError::ChangedByOthers {
            path: path.to_owned(),
            now: now.to_owned(),
        })
    }

    /// Notes on disk what is to be put back of a setting: nothing any more, or this.
    fn keep(&mut self, path: &Path, change: Option<Change>) -> Result<()> {
        let mut changes = self.changes.clone();
        match change {
            Some(change) => changes.insert(path.to_owned(), change),
            None => changes.remove(path),
        };
        if changes != self.changes {
            saved::write(&self.file, &changes)?;
            self.changes = changes;
        }
        Ok(())
    }

    fn put_back(&mut self, path: &Path) -> Result<()> {
        let Some(change) = self.changes.get(path) else {
            return Ok(());
        };
        match put_back(path, change) {
            Some(Outcome::Failed { path, error, .. }) => {
                return Err(LinuxError::file("restoring", path)(error));
            }
            Some(outcome @ Outcome::Left { .. }) => {
                tracing::warn!("{outcome}");
                if let Outcome::Left { now, .. } = outcome {
                    self.others.insert(path.to_owned(), now);
                }
            }
            Some(Outcome::PutBack { .. }) | None => {
                if let Ok(now) = read_setting(path) {
                    self.left.insert(path.to_owned(), now);
                }
            }
        }
        self.keep(path, None)
    }

    fn restore(&mut self) -> Result<()> {
        let paths: Vec<PathBuf> = self.changes.keys().cloned().collect();
        let results: Vec<_> = paths.iter().map(|path| self.put_back(path)).collect();
        results.into_iter().collect()
    }
}

impl Drop for SettingsGuard {
    fn drop(&mut self) {
        if let Err(error) = self.restore() {
            tracing::error!("{error}; `hawkeye restore` tries again");
        }
    }
}

/// Puts back what a manager that was killed left changed, where it is still so; what became of
/// each setting. A file that can't be used is set aside, and that is logged. The caller holds the
/// [`Instance`](crate::takeover::instance::Instance) lock.
///
/// # Errors
/// The state folder can't be written.
pub fn restore_leftovers(state_dir: &Path) -> Result<Vec<Outcome>> {
    let file = saved::file_in(state_dir);
    Ok(restore_file(&file, &Allowed::of_kernel())?.0)
}

/// What became of each, and what is left to do.
fn restore_file(file: &Path, allowed: &Allowed) -> Result<(Vec<Outcome>, Changes)> {
    let found = match saved::read(file, allowed) {
        Ok(None) => return Ok(Default::default()),
        Ok(Some(found)) => found,
        Err(why) => {
            let what = "settings that an earlier manager may have left changed are not put back (compare /sys/kernel/mm/transparent_hugepage with what you want): the record is";
            own_files::set_aside_aloud(what, file, &why);
            return Ok(Default::default());
        }
    };
    if found.of_earlier_boot {
        tracing::info!(
            "{} is of an earlier start of the machine: nothing has to be put back",
            file.display()
        );
        saved::write(file, &Changes::new())?;
        return Ok(Default::default());
    }
    let mut outcomes = Vec::new();
    let mut still = Changes::new();
    for (path, change) in &found.changes {
        let outcome = put_back(path, change);
        if matches!(outcome, Some(Outcome::Failed { .. })) {
            still.insert(path.clone(), change.clone());
        }
        outcomes.extend(outcome);
    }
    saved::write(file, &still)?;
    Ok((outcomes, still))
}

/// Puts one back; `None`: nothing had to be done, or the kernel has no such setting (any more).
fn put_back(path: &Path, change: &Change) -> Option<Outcome> {
    let failed = |error: io::Error| match error.kind() {
        // A module that had it was unloaded, or another kernel has been started.
        ErrorKind::NotFound => None,
        _ => Some(Outcome::Failed {
            path: path.to_owned(),
            found: change.found.clone(),
            error,
        }),
    };
    let now = match read_setting(path) {
        Ok(now) => now,
        Err(LinuxError::File { source, .. }) => return failed(source),
        Err(error) => return failed(io::Error::other(error)),
    };
    if now == change.found {
        return None;
    }
    match change.set.last() {
        Some(set) if !change.set.contains(&now) => Some(Outcome::Left {
            path: path.to_owned(),
            set: set.clone(),
            now,
            found: change.found.clone(),
        }),
        _ => match write(path, &change.found) {
            Ok(()) => Some(Outcome::PutBack {
                path: path.to_owned(),
                value: change.found.clone(),
            }),
            Err(error) => failed(error),
        },
    }
}

/// Writes to a file that is there: never through a link, and never a new one.
fn write(path: &Path, value: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).truncate(true);
    let mut file = options.custom_flags(libc::O_NOFOLLOW).open(path)?;
    file.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests;
