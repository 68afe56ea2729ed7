//! Kernel settings of transparent huge pages: read, changed for a while, and put back afterwards.
//!
//! The value found and the value set are written to the state folder before each change. The value
//! found is put back when the guard is dropped. After a crash or SIGKILL, the next start or
//! `hawkeye restore` puts it back. A setting that another program has changed meanwhile stays as it
//! is.
//!
//! Read [`KernelSettingsGuard`] first, then [`KernelThpPlan`]. `saved_settings` is the file.

mod kernel_settings_guard;
mod saved_settings;
#[cfg(test)]
pub(crate) mod testing;

pub(in crate::machine_lease) use kernel_settings_guard::prevent_setting_changes;
pub use kernel_settings_guard::{
    KernelSettingsGuard, KernelSettingsHandle, SettingRestoreReport, SettingRestoreResult,
    restore_leftover_settings,
};
pub use saved_settings::WritableSettingFiles;

use crate::error::{LinuxError, Result};
use hawkeye_policy::{HUGE_PAGE_BYTES, PAGES_PER_REGION};
use std::fs;
use std::path::{Path, PathBuf};

/// The kernel's folder of these settings.
pub const THP_DIR: &str = "/sys/kernel/mm/transparent_hugepage";

/// Whether the kernel splits huge pages full of zeros when memory runs out (since 6.12).
pub const SHRINK_UNDERUSED: &str = "shrink_underused";

/// How khugepaged, the kernel's own promotion, runs while the daemon does. It applies to every
/// program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KhugepagedMode {
    /// It is stopped, because two promoters with different orders compete for the same memory.
    #[default]
    Off,
    /// It runs, but does not fill again what recovery has taken back. The kernel's own splitting
    /// does not change.
    Restrain,
    /// It does not change.
    Leave,
}

/// How the kernel's own promotion and splitting are set while a manager runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelThpPlan {
    /// How khugepaged runs.
    pub khugepaged: KhugepagedMode,
    /// Whether the kernel itself splits sparse huge pages when memory runs out, including those of
    /// excluded programs.
    pub kernel_split: bool,
    /// Whether the kernel aligns shared memory that programs map from now on.
    pub align_shared_memory: bool,
    /// Least number of zero base pages in a sparse huge page.
    pub zero_pages: u16,
}

impl KernelThpPlan {
    /// Changes the settings until the guard is dropped.
    ///
    /// # Errors
    /// A setting cannot be changed, for example because `/sys` is read-only in a container.
    /// Settings changed before that stay so until the guard is dropped.
    pub fn apply_to_kernel_settings(self, guard: &mut KernelSettingsGuard) -> Result<()> {
        if self.kernel_split {
            limit_khugepaged_and_enable_shrinker(guard, self.zero_pages)?;
        }
        match self.khugepaged {
            KhugepagedMode::Restrain if !self.kernel_split => {
                prevent_khugepaged_refill(guard, self.zero_pages)?
            }
            KhugepagedMode::Leave | KhugepagedMode::Restrain => {}
            KhugepagedMode::Off => pause_khugepaged(guard)?,
        }
        // Last, so that an error here prevents none of the others.
        if self.align_shared_memory {
            align_new_shared_memory(guard)?;
        }
        Ok(())
    }
}

/// Makes khugepaged sleep until the guard is dropped. It has no switch of its own: `enabled` also
/// changes what faults get.
///
/// This sets it to sleep for a day after each base page that it scans. It still collapses one
/// region when it wakes because the first process with huge pages has appeared. It collapses
/// nothing else (seen on 6.18). Writing a sleep time wakes it, so the number of pages is set first.
pub fn pause_khugepaged(guard: &mut KernelSettingsGuard) -> Result<()> {
    const DAY_MS: &str = "86400000";
    let folder = Path::new(THP_DIR).join("khugepaged");
    guard.set(&folder.join("pages_to_scan"), "1")?;
    guard.set(&folder.join("alloc_sleep_millisecs"), DAY_MS)?;
    guard.set(&folder.join("scan_sleep_millisecs"), DAY_MS)
}

/// The setting of huge pages in shared memory that no user mounted: `memfd`, System V, shared
/// anonymous memory.
pub const SHMEM_ENABLED: &str = "shmem_enabled";

/// Makes the kernel choose addresses for new shared memory that a promotion can use, until the
/// guard is dropped. It also gives huge pages at page faults to shared memory for which a program
/// calls `madvise(MADV_HUGEPAGE)`. Mapped memory does not move. A setting other than `never`
/// already aligns memory, or forbids huge pages (`deny`), and does not change.
fn align_new_shared_memory(guard: &mut KernelSettingsGuard) -> Result<()> {
    let path = Path::new(THP_DIR).join(SHMEM_ENABLED);
    match read_setting(&path)?.as_str() {
        "never" => guard.set(&path, "advise"),
        _ => Ok(()),
    }
}

/// Limits khugepaged and lets the kernel split, until the guard is dropped. khugepaged collapses no
/// region with `zero_pages` or more empty base pages. When memory runs out, the kernel splits huge
/// pages with at least as many zero base pages. Both apply to every program on the machine. A
/// stricter setting does not change.
///
/// The kernel also does that in a cgroup at its limit, before it kills (since 6.12;
/// `deferred_split_scan` in mm/huge_memory.c). With its default limit of 511 it splits nothing.
fn limit_khugepaged_and_enable_shrinker(
    guard: &mut KernelSettingsGuard,
    zero_pages: u16,
) -> Result<()> {
    let shrinker = Path::new(THP_DIR).join(SHRINK_UNDERUSED);
    if shrinker.exists() {
        guard.set(&shrinker, "1")?;
    }
    limit_max_ptes_none(guard, zero_pages)
}

/// Makes new memory come as base pages, until the guard is dropped, so that managed and unmanaged
/// programs can be compared: under `always` all of it would be huge from the start.
pub fn start_programs_on_base_pages(guard: &mut KernelSettingsGuard) -> Result<()> {
    let enabled = enabled_file();
    match read_setting(&enabled)?.as_str() {
        "madvise" => Ok(()),
        _ => guard.set(&enabled, "madvise"),
    }
}

/// Prevents khugepaged from filling again what recovery has taken back, without a change of the
/// kernel's own splitting. Both depend on `max_ptes_none`. If that is 511, the kernel splits
/// nothing, so its splitting is switched off first. If the kernel already splits, nothing is
/// changed.
fn prevent_khugepaged_refill(guard: &mut KernelSettingsGuard, zero_pages: u16) -> Result<()> {
    let shrinker = Path::new(THP_DIR).join(SHRINK_UNDERUSED);
    let shrinks = read_setting(&shrinker).is_ok_and(|value| value != "0");
    if shrinks {
        if read_setting(&max_ptes_none_file())? != SPLITS_NOTHING.to_string() {
            return Ok(());
        }
        guard.set(&shrinker, "0")?;
    }
    limit_max_ptes_none(guard, zero_pages)
}

/// With this `max_ptes_none` the kernel splits no huge page because of its zeros.
const SPLITS_NOTHING: u16 = PAGES_PER_REGION - 1;

fn max_ptes_none_file() -> PathBuf {
    Path::new(THP_DIR).join("khugepaged/max_ptes_none")
}

fn limit_max_ptes_none(guard: &mut KernelSettingsGuard, zero_pages: u16) -> Result<()> {
    let path = max_ptes_none_file();
    let limit = zero_pages.saturating_sub(1);
    match read_setting(&path)?.parse::<u16>() {
        Ok(found) if found <= limit => Ok(()),
        _ => guard.set(&path, &limit.to_string()),
    }
}

/// The size of huge pages in bytes, in the folder of these settings.
pub(crate) const HUGE_PAGE_SIZE_FILE: &str = "hpage_pmd_size";

/// The size of this kernel's huge pages; `None`: it has none, or its file cannot be read.
pub(crate) fn huge_page_bytes() -> Option<u64> {
    huge_page_bytes_in_folder(Path::new(THP_DIR))
}

fn huge_page_bytes_in_folder(folder: &Path) -> Option<u64> {
    read_setting(&folder.join(HUGE_PAGE_SIZE_FILE)).ok()?.parse().ok()
}

/// The setting for huge pages alone. Kernels with larger huge pages have a file for 2 MiB, too:
/// there it switches another size.
fn enabled_file_of_huge_pages(folder: &Path) -> PathBuf {
    let bytes = huge_page_bytes_in_folder(folder).unwrap_or(HUGE_PAGE_BYTES);
    folder.join(format!("hugepages-{}kB/enabled", bytes >> 10))
}

/// The file that decides which faults get huge pages. Since Linux 6.8 that is the file for their
/// size, unless it contains `inherit`, the default. Then the file for all sizes decides
/// (Documentation/admin-guide/mm/transhuge.rst).
pub fn enabled_file() -> PathBuf {
    effective_enabled_file(Path::new(THP_DIR))
}

fn effective_enabled_file(folder: &Path) -> PathBuf {
    let of_size = enabled_file_of_huge_pages(folder);
    match read_setting(&of_size).as_deref() {
        Ok("inherit") | Err(_) => folder.join("enabled"),
        Ok(_) => of_size,
    }
}

/// Huge pages at first faults, for every program on the machine. They are on while memory allows,
/// as in the paper (section 3.1).
#[derive(Debug)]
pub struct HugePageFaultSwitch {
    /// The kernel's folder of these settings.
    folder: PathBuf,
    /// The file that switches them; `Some` while they are on.
    on: Option<PathBuf>,
    /// The values of both `enabled` files before they were first switched on, if they were.
    found: Option<[Option<String>; 2]>,
    /// Another program has changed one of the settings. From then on they are left to that program.
    changed_by_others: bool,
}

impl HugePageFaultSwitch {
    /// The switch of this kernel.
    pub fn of_kernel() -> Self {
        Self::in_folder(Path::new(THP_DIR))
    }

    fn in_folder(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), on: None, found: None, changed_by_others: false }
    }

    /// Switches them on, or back to the value found. No fault waits for compaction because of it,
    /// except those in mappings with `MADV_HUGEPAGE`, as before. Does nothing if another program
    /// has changed the settings since.
    pub fn set_allowed(&mut self, allowed: bool, guard: &mut KernelSettingsGuard) -> Result<()> {
        if allowed && self.changed_by_others {
            return Ok(());
        }
        match self.switch(allowed, guard) {
            Err(LinuxError::ChangedByOthers { .. }) => {
                self.changed_by_others = true;
                guard.put_back(&self.folder.join("defrag"))
            }
            switched => switched,
        }
    }

    fn switch(&mut self, allowed: bool, guard: &mut KernelSettingsGuard) -> Result<()> {
        let defrag = self.folder.join("defrag");
        match &self.on {
            None if allowed => {
                self.check_enabled_unchanged_by_others()?;
                // The settings in which no fault waits for compaction, or only the background
                // compacts, stay.
                if !matches!(read_setting(&defrag)?.as_str(), "never" | "defer") {
                    guard.set(&defrag, "defer+madvise")?;
                }
                let enabled = effective_enabled_file(&self.folder);
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

    /// Checks that both `enabled` files are as they were found: the one for all sizes, and the one
    /// for huge pages, which may decide in its place. The guard notices only changes of files that
    /// it has set.
    fn check_enabled_unchanged_by_others(&mut self) -> Result<()> {
        let paths = [self.folder.join("enabled"), enabled_file_of_huge_pages(&self.folder)];
        let read = |path: &PathBuf| match path.try_exists() {
            Ok(false) => Ok(None),
            _ => read_setting(path).map(Some),
        };
        let values = [read(&paths[0])?, read(&paths[1])?];
        let found = self.found.get_or_insert_with(|| values.clone());
        let now = paths.into_iter().zip(values).zip(found);
        let changed = now.into_iter().find(|((_, now), found)| now != *found);
        let Some(((path, now), found)) = changed else { return Ok(()) };
        let [found, now] = [found.clone(), now].map(|value| value.unwrap_or("absent".into()));
        tracing::warn!(
            "{} was changed from {found} to {now} by another program: HawkEye does not switch huge pages at page faults on again",
            path.display()
        );
        Err(LinuxError::ChangedByOthers { path, now })
    }
}

/// If `spare` is set, remote reads of untouched memory install new huge pages, until it is unset or
/// the guard is dropped. Reads by the owner do so too, instead of sharing one huge page of zeros.
pub fn set_huge_zero_page_avoided(spare: bool, guard: &mut KernelSettingsGuard) -> Result<()> {
    let path = Path::new(THP_DIR).join("use_zero_page");
    if spare {
        match guard.set(&path, "0") {
            // The guard has logged it.
            Err(LinuxError::ChangedByOthers { .. }) => Ok(()),
            set => set,
        }
    } else {
        guard.put_back(&path)
    }
}

/// Whether first reads of memory that gets huge pages map the huge zero page. The kernel does so
/// unless set otherwise.
pub fn uses_huge_zero_page() -> bool {
    read_setting(&Path::new(THP_DIR).join("use_zero_page")).map_or(true, |value| value != "0")
}

/// The value in force. Among choices such as `always [madvise] never`, it is the one in brackets.
pub fn read_setting(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).map_err(LinuxError::wrap_io_error("reading", path))?;
    let chosen = text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    Ok(chosen.unwrap_or(text.trim()).to_owned())
}

#[cfg(test)]
mod tests {
    use super::testing::TestFolder;
    use super::*;

    const ENABLED_OF_SIZE: &str = "hugepages-2048kB/enabled";

    #[test]
    fn larger_huge_pages_are_not_decided_by_the_switch_of_2_mib() {
        let folder = TestFolder::new("large-sizes");
        folder.file(HUGE_PAGE_SIZE_FILE, "33554432\n");
        folder.file(ENABLED_OF_SIZE, "always inherit madvise [never]\n");
        folder.file("hugepages-32768kB/enabled", "always [inherit] madvise never\n");
        assert_eq!(effective_enabled_file(&folder.0), folder.0.join("enabled"));
        folder.file("hugepages-32768kB/enabled", "always inherit [madvise] never\n");
        let of_size = folder.0.join("hugepages-32768kB/enabled");
        assert_eq!(effective_enabled_file(&folder.0), of_size);
    }

    #[test]
    fn a_size_that_inherits_is_decided_by_the_setting_for_all() {
        let folder = TestFolder::new("sizes");
        let for_all = folder.0.join("enabled");
        // Before Linux 6.8.
        assert_eq!(effective_enabled_file(&folder.0), for_all);
        let of_size = folder.0.join("hugepages-2048kB/enabled");
        fs::create_dir(folder.0.join("hugepages-2048kB")).expect("the folder can be created");
        for (text, deciding) in [
            ("always [inherit] madvise never\n", &for_all),
            ("[always] inherit madvise never\n", &of_size),
            ("always inherit [madvise] never\n", &of_size),
            ("always inherit madvise [never]\n", &of_size),
        ] {
            fs::write(&of_size, text).expect("the file can be written");
            assert_eq!(&effective_enabled_file(&folder.0), deciding, "{text}");
        }
    }

    /// Settings of a kernel since Linux 6.8: for all sizes, and for huge pages.
    fn kernel_settings(name: &str, for_all: &str, of_size: &str) -> TestFolder {
        let folder = TestFolder::new(name);
        for (file, value) in
            [("enabled", for_all), (ENABLED_OF_SIZE, of_size), ("defrag", "madvise")]
        {
            folder.file(file, value);
        }
        folder
    }

    fn values(folder: &TestFolder) -> [String; 3] {
        ["enabled", ENABLED_OF_SIZE, "defrag"]
            .map(|file| fs::read_to_string(folder.0.join(file)).expect("the file can be read"))
    }

    #[test]
    fn faults_are_switched_on_and_off_repeatedly() {
        for (of_size, on) in [("inherit", ["always", "inherit"]), ("never", ["madvise", "always"])]
        {
            let folder = kernel_settings("faults", "madvise", of_size);
            let (mut guard, mut faults) =
                (folder.guard(), HugePageFaultSwitch::in_folder(&folder.0));
            for _ in 0..2 {
                faults.set_allowed(true, &mut guard).expect("faults can be switched on");
                assert_eq!(values(&folder), [on[0], on[1], "defer+madvise"]);
                faults.set_allowed(false, &mut guard).expect("faults can be switched off");
                assert_eq!(values(&folder), ["madvise", of_size, "madvise"]);
            }
        }
    }

    /// An administrator may write to either file, also to one that this switch has never set.
    #[test]
    fn faults_are_not_switched_on_again_where_another_program_changed_either_file() {
        for (found, while_off, theirs) in [
            (["madvise", "inherit"], true, ["madvise", "never"]),
            (["madvise", "inherit"], true, ["never", "inherit"]),
            (["madvise", "madvise"], true, ["never", "inherit"]),
            (["madvise", "madvise"], true, ["never", "madvise"]),
            (["madvise", "inherit"], false, ["always", "never"]),
            (["madvise", "inherit"], false, ["never", "inherit"]),
        ] {
            let folder = kernel_settings("faults-others", found[0], found[1]);
            let (mut guard, mut faults) =
                (folder.guard(), HugePageFaultSwitch::in_folder(&folder.0));
            faults.set_allowed(true, &mut guard).expect("faults can be switched on");
            if while_off {
                faults.set_allowed(false, &mut guard).expect("faults can be switched off");
            }
            folder.file("enabled", theirs[0]);
            folder.file(ENABLED_OF_SIZE, theirs[1]);
            faults.set_allowed(false, &mut guard).expect("faults can be switched off");
            let left = values(&folder);
            for _ in 0..2 {
                faults.set_allowed(true, &mut guard).expect("nothing is switched");
                assert_eq!(values(&folder), left, "{found:?}, then {theirs:?}");
            }
            drop(guard);
            assert_eq!(values(&folder), left, "{found:?}, then {theirs:?}");
        }
    }
}
