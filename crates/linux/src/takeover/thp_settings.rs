//! Kernel settings of transparent huge pages: read, changed for a while, and put back afterwards.
//!
//! The value found and the value set are written to the state folder before each change. The value
//! found is put back when the guard is dropped; after a crash or SIGKILL by the next start, or by
//! `hawkeye restore`. A setting that another program has changed meanwhile stays as it is.

mod guard;
mod saved;
#[cfg(test)]
pub(crate) mod testing;

pub use guard::{Outcome, SettingsGuard, SettingsHandle, restore_leftovers};
pub use saved::Allowed;

use crate::error::{LinuxError, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel keeps them.
pub const THP_DIR: &str = "/sys/kernel/mm/transparent_hugepage";

/// Whether the kernel splits huge pages full of zeros where memory runs out (since 6.12).
pub const SHRINK_UNDERUSED: &str = "shrink_underused";

/// What becomes of the kernel's own promotion while the daemon runs, for every program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Khugepaged {
    /// It is stopped: two that promote by different orders fight over the same memory.
    #[default]
    Off,
    /// It goes on, but does not fill again what recovery has taken back. When the kernel splits
    /// huge pages stays as it is.
    Restrain,
    /// It is left as it is.
    Leave,
}

/// What a manager makes of the kernel's own promotion and splitting while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelRules {
    /// What becomes of khugepaged.
    pub khugepaged: Khugepaged,
    /// Whether the kernel is to split sparse huge pages itself where memory runs out: those of
    /// excluded programs, too.
    pub kernel_split: bool,
    /// A huge page with this many zero base pages or more is sparse.
    pub zero_pages: u16,
}

impl KernelRules {
    /// Changes the settings for as long as the guard lives.
    ///
    /// # Errors
    /// A setting can't be changed (read-only `/sys` in a container, say). What was changed before
    /// stays so until the guard is dropped.
    pub fn apply(self, guard: &mut SettingsGuard) -> Result<()> {
        let split = self.kernel_split;
        if split {
            restrain_khugepaged(guard, self.zero_pages)?;
        }
        match self.khugepaged {
            Khugepaged::Restrain if !split => stop_refilling(guard, self.zero_pages),
            Khugepaged::Leave | Khugepaged::Restrain => Ok(()),
            Khugepaged::Off => pace_down_khugepaged(guard),
        }
    }
}

/// Has khugepaged sleep for as long as the guard lives. There is no switch for it alone: `enabled`
/// changes what faults get, too. Asleep for a day after each base page that it scans, it collapses
/// one region when it wakes because the first process with huge pages has appeared, and nothing
/// else (seen on 6.18). Writing a time wakes it, so the amount comes first.
pub fn pace_down_khugepaged(guard: &mut SettingsGuard) -> Result<()> {
    const DAY_MS: &str = "86400000";
    let folder = Path::new(THP_DIR).join("khugepaged");
    guard.set(&folder.join("pages_to_scan"), "1")?;
    guard.set(&folder.join("alloc_sleep_millisecs"), DAY_MS)?;
    guard.set(&folder.join("scan_sleep_millisecs"), DAY_MS)
}

/// For as long as the guard lives, khugepaged collapses nothing with `zero_pages` empty base pages
/// or more, and the kernel splits huge pages with as many zero base pages where memory runs out.
/// That holds for every program on the machine. A stricter setting is left alone.
///
/// The kernel does that in a cgroup at its limit too, before it kills (since 6.12;
/// `deferred_split_scan` in mm/huge_memory.c). With its default limit of 511 it splits nothing.
pub fn restrain_khugepaged(guard: &mut SettingsGuard, zero_pages: u16) -> Result<()> {
    let shrinker = Path::new(THP_DIR).join(SHRINK_UNDERUSED);
    if shrinker.exists() {
        guard.set(&shrinker, "1")?;
    }
    limit_empty_pages(guard, zero_pages)
}

/// Keeps khugepaged from filling again what recovery has taken back, and the kernel's own splitting
/// as it is. Both go by `max_ptes_none`: where the kernel splits nothing because that is 511, its
/// splitting is switched off before. Where it splits already, nothing is changed.
fn stop_refilling(guard: &mut SettingsGuard, zero_pages: u16) -> Result<()> {
    let shrinker = Path::new(THP_DIR).join(SHRINK_UNDERUSED);
    let shrinks = read_setting(&shrinker).is_ok_and(|value| value != "0");
    if shrinks {
        if read_setting(&max_ptes_none())? != SPLITS_NOTHING {
            return Ok(());
        }
        guard.set(&shrinker, "0")?;
    }
    limit_empty_pages(guard, zero_pages)
}

/// With this `max_ptes_none` the kernel splits no huge page for its zeros.
const SPLITS_NOTHING: &str = "511";

fn max_ptes_none() -> PathBuf {
    Path::new(THP_DIR).join("khugepaged/max_ptes_none")
}

fn limit_empty_pages(guard: &mut SettingsGuard, zero_pages: u16) -> Result<()> {
    let path = max_ptes_none();
    let limit = zero_pages.saturating_sub(1);
    match read_setting(&path)?.parse::<u16>() {
        Ok(found) if found <= limit => Ok(()),
        _ => guard.set(&path, &limit.to_string()),
    }
}

/// The file that decides which faults get huge pages: that of their size, which Linux has since 6.8, unless it says
/// `inherit` as it does by default; else the one for all sizes (Documentation/admin-guide/mm/transhuge.rst).
pub fn enabled_file() -> PathBuf {
    deciding_file(Path::new(THP_DIR))
}

fn deciding_file(folder: &Path) -> PathBuf {
    let of_size = folder.join("hugepages-2048kB/enabled");
    match read_setting(&of_size).as_deref() {
        Ok("inherit") | Err(_) => folder.join("enabled"),
        Ok(_) => of_size,
    }
}

/// Huge pages at first faults, of everybody on the machine: on while memory allows, as in the paper (section 3.1).
#[derive(Debug, Default)]
pub struct HugeFaults {
    /// The file that switches them, while they are on.
    on: Option<PathBuf>,
    /// Another program has changed one of the settings: from then on they are that program's.
    changed_by_others: bool,
}

impl HugeFaults {
    /// Switches them on, or back to what was set. Nobody waits for compaction because of it: who asked for huge
    /// pages by `madvise` does as before. Where another program has changed the settings since, nothing is done.
    ///
    /// # Errors
    /// The setting can't be changed.
    pub fn allow(&mut self, allowed: bool, guard: &mut SettingsGuard) -> Result<()> {
        if allowed && self.changed_by_others {
            return Ok(());
        }
        match self.switch(allowed, guard) {
            Err(LinuxError::ChangedByOthers { .. }) => {
                self.changed_by_others = true;
                guard.put_back(&Path::new(THP_DIR).join("defrag"))
            }
            switched => switched,
        }
    }

    fn switch(&mut self, allowed: bool, guard: &mut SettingsGuard) -> Result<()> {
        let defrag = Path::new(THP_DIR).join("defrag");
        match &self.on {
            None if allowed => {
                // Where nobody waits for compaction, or only the background does it, that stays so.
                if !matches!(read_setting(&defrag)?.as_str(), "never" | "defer") {
                    guard.set(&defrag, "defer+madvise")?;
                }
                let enabled = enabled_file();
                guard.set(&enabled, "always")?;
                self.on = Some(enabled);
            }
            Some(enabled) if !allowed => {
                guard.put_back(enabled)?;
                guard.put_back(&defrag)?;
                self.on = None;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Has remote reads of untouched memory install huge pages of its own, until told otherwise or for as long as the guard
/// lives. Reads of untouched memory by their owners do so too, instead of sharing one huge page of zeros.
///
/// # Errors
/// The setting can't be changed.
pub fn spare_zero_page(spare: bool, guard: &mut SettingsGuard) -> Result<()> {
    let path = Path::new(THP_DIR).join("use_zero_page");
    if spare {
        match guard.set(&path, "0") {
            // The log says so.
            Err(LinuxError::ChangedByOthers { .. }) => Ok(()),
            set => set,
        }
    } else {
        guard.put_back(&path)
    }
}

/// The value in force. Choices are shown as `always [madvise] never`: the one in brackets.
pub fn read_setting(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).map_err(LinuxError::file("reading", path))?;
    let chosen = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    Ok(chosen.unwrap_or(text.trim()).to_owned())
}

#[cfg(test)]
mod tests {
    use super::testing::Folder;
    use super::*;

    #[test]
    fn a_size_that_inherits_is_decided_by_the_setting_for_all() {
        let folder = Folder::new("sizes");
        let for_all = folder.0.join("enabled");
        assert_eq!(deciding_file(&folder.0), for_all, "before 6.8");
        let of_size = folder.0.join("hugepages-2048kB/enabled");
        fs::create_dir(folder.0.join("hugepages-2048kB")).expect("a folder");
        for (text, deciding) in [
            ("always [inherit] madvise never\n", &for_all),
            ("[always] inherit madvise never\n", &of_size),
            ("always inherit [madvise] never\n", &of_size),
            ("always inherit madvise [never]\n", &of_size),
        ] {
            fs::write(&of_size, text).expect("writes");
            assert_eq!(&deciding_file(&folder.0), deciding, "{text}");
        }
    }

    #[test]
    fn the_choice_in_force_is_the_one_in_brackets() {
        let folder = Folder::new("choice");
        let knob = folder.file("enabled", "always [madvise] never\n");
        assert_eq!(read_setting(&knob).expect("reads"), "madvise");
    }
}
