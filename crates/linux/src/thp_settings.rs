//! Kernel settings of transparent huge pages: read, changed for a while, and put back whatever happens.
//!
//! The value found is written to the state folder before the first change. It is put back when the
//! guard is dropped; after a crash or SIGKILL by the next start, or by `hawkeye restore`.

mod guard;
#[cfg(test)]
pub(crate) mod testing;

pub use guard::{SettingsGuard, SettingsHandle, restore_leftovers};

use crate::error::LinuxError;
use hawkeye_manager::config::Khugepaged;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel keeps them.
pub const THP_DIR: &str = "/sys/kernel/mm/transparent_hugepage";

/// Whether the kernel splits huge pages full of zeros where memory runs out (since 6.12).
pub const SHRINK_UNDERUSED: &str = "shrink_underused";

/// Changes khugepaged's settings for as long as the guard lives; `zero_pages` as for
/// [`restrain_khugepaged`].
///
/// # Errors
/// A setting can't be changed (read-only `/sys` in a container, say). What was changed before stays so
/// until the guard is dropped.
pub fn apply(
    khugepaged: Khugepaged,
    guard: &mut SettingsGuard,
    zero_pages: u16,
) -> Result<(), LinuxError> {
    match khugepaged {
        Khugepaged::Leave => Ok(()),
        Khugepaged::Restrain => restrain_khugepaged(guard, zero_pages),
        Khugepaged::Off => {
            restrain_khugepaged(guard, zero_pages)?;
            pace_down_khugepaged(guard)
        }
    }
}

/// Has khugepaged sleep for as long as the guard lives. There is no switch for it alone: `enabled`
/// changes what faults get, too. Asleep for a day after each base page that it scans, it collapses
/// one region when it wakes because the first process with huge pages has appeared, and nothing
/// else (seen on 6.18). Writing a time wakes it, so the amount comes first.
pub fn pace_down_khugepaged(guard: &mut SettingsGuard) -> Result<(), LinuxError> {
    const DAY_MS: &str = "86400000";
    let folder = Path::new(THP_DIR).join("khugepaged");
    guard.set(&folder.join("pages_to_scan"), "1")?;
    guard.set(&folder.join("alloc_sleep_millisecs"), DAY_MS)?;
    guard.set(&folder.join("scan_sleep_millisecs"), DAY_MS)
}

/// Keeps khugepaged from filling again what recovery has taken back: for as long as the guard lives, it
/// collapses nothing with `zero_pages` empty base pages or more. A stricter setting is left alone.
///
/// The same limit has the kernel itself split huge pages with as many zero base pages where memory
/// runs out, in a cgroup at its limit too, before it kills (since 6.12; mm/huge_memory.c,
/// `deferred_split_scan`). By default it is 511 and nothing is split. That is what stands between a
/// container and its end where memory fills faster than we can look: so it is switched on.
pub fn restrain_khugepaged(guard: &mut SettingsGuard, zero_pages: u16) -> Result<(), LinuxError> {
    let shrinker = Path::new(THP_DIR).join(SHRINK_UNDERUSED);
    if shrinker.exists() {
        guard.set(&shrinker, "1")?;
    }
    let path = Path::new(THP_DIR).join("khugepaged/max_ptes_none");
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
}

impl HugeFaults {
    /// Switches them on, or back to what was set. Nobody waits for compaction because of it: who asked for huge
    /// pages by `madvise` does as before.
    ///
    /// # Errors
    /// The setting can't be changed.
    pub fn allow(&mut self, allowed: bool, guard: &mut SettingsGuard) -> Result<(), LinuxError> {
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
pub fn spare_zero_page(spare: bool, guard: &mut SettingsGuard) -> Result<(), LinuxError> {
    let path = Path::new(THP_DIR).join("use_zero_page");
    if spare {
        guard.set(&path, "0")
    } else {
        guard.put_back(&path)
    }
}

/// The value in force. Choices are shown as `always [madvise] never`: the one in brackets.
pub fn read_setting(path: &Path) -> Result<String, LinuxError> {
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
