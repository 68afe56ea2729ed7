//! Free memory that the kernel zeroes in advance, on kernels with this repository's patches
//! (`kernel/README.md`): its counters and its rate limit.
//!
//! `/sys/kernel/mm/prezero` is the kernel's own part. A module does the zeroing; its parameters
//! exist while it is loaded. Nothing here loads it.

pub(crate) mod error;

use crate::error::Result;
use crate::machine_lease::thp_settings::KernelSettingsGuard;
pub use error::{LOAD_COMMAND, PrezeroingError};
use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The lowest rate, one page a second: 0 would mean no limit.
const LOWEST_RATE: u32 = 1;

/// Counts since the machine started, in base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ZeroedPageCounts {
    /// Zeroed in advance.
    pub zeroed: u64,
    /// Handed out to a request for zeroed pages.
    pub served: u64,
    /// Handed out to a request that needs no zeros, such as for files and copies.
    pub passed_over: u64,
    /// No longer known to be zero, for example because they were merged with others.
    pub lost: u64,
    /// Free and zeroed now.
    pub free: u64,
}

/// Counts of one zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ZoneZeroedPageCounts {
    /// Node and zone, such as `node0-Normal`.
    pub zone: String,
    /// The zone's counts.
    #[serde(flatten)]
    pub pages: ZeroedPageCounts,
}

/// Settings of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ZeroingModuleSettings {
    /// Most base pages per second; 0: no limit.
    pub pages_per_second: u32,
    /// Whether it zeroes only when a processor has nothing else to run.
    pub idle_only: bool,
}

/// State of pre-zeroing on a kernel that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelPrezeroingState {
    /// Whether pages are being zeroed.
    pub active: bool,
    /// The module, where it is loaded.
    pub module: Option<ZeroingModuleSettings>,
    /// Counts of each zone, by name.
    pub zones: Vec<ZoneZeroedPageCounts>,
}

impl KernelPrezeroingState {
    /// Sum over all zones.
    pub fn total_page_counts(&self) -> ZeroedPageCounts {
        let none = ZeroedPageCounts::default();
        self.zones.iter().map(|zone| zone.pages).fold(none, |sum, pages| ZeroedPageCounts {
            zeroed: sum.zeroed + pages.zeroed,
            served: sum.served + pages.served,
            passed_over: sum.passed_over + pages.passed_over,
            lost: sum.lost + pages.lost,
            free: sum.free + pages.free,
        })
    }
}

/// The sysfs files of pre-zeroing.
#[derive(Clone, Debug)]
pub struct PrezeroingFiles {
    core: PathBuf,
    rate: PathBuf,
    idle_only: PathBuf,
}

impl Default for PrezeroingFiles {
    /// The files of this machine.
    fn default() -> Self {
        Self::under(Path::new("/sys"))
    }
}

impl PrezeroingFiles {
    /// The files below `sys`: sysfs mounted elsewhere, or made by a test.
    pub fn under(sys: &Path) -> Self {
        let parameters = sys.join("module/prezero/parameters");
        Self {
            core: sys.join("kernel/mm/prezero"),
            rate: parameters.join("pages_per_second"),
            idle_only: parameters.join("idle_only"),
        }
    }

    /// Whether this kernel has pre-zeroing.
    pub fn exists(&self) -> bool {
        self.core.is_dir()
    }

    /// The state of pre-zeroing; `None` on kernels without it.
    pub fn read_state(&self) -> Result<Option<KernelPrezeroingState>, PrezeroingError> {
        if !self.exists() {
            return Ok(None);
        }
        let active = self.core.join("active");
        Ok(Some(KernelPrezeroingState {
            active: match read_number_from_file::<u8>(&active)? {
                0 => false,
                1 => true,
                other => return Err(unexpected_value_error(&active, other.to_string(), "0 or 1")),
            },
            module: self.read_module_settings()?,
            zones: self.read_zone_counts()?,
        }))
    }

    fn read_zone_counts(&self) -> Result<Vec<ZoneZeroedPageCounts>, PrezeroingError> {
        let mut zones = Vec::new();
        for entry in fs::read_dir(&self.core).map_err(unreadable_error(&self.core))? {
            let entry = entry.map_err(unreadable_error(&self.core))?;
            let folder = entry.path();
            if !folder.is_dir() {
                continue;
            }
            let pages = |name| read_number_from_file::<u64>(&folder.join(name));
            zones.push(ZoneZeroedPageCounts {
                zone: entry.file_name().to_string_lossy().into_owned(),
                pages: ZeroedPageCounts {
                    zeroed: pages("zeroed")?,
                    served: pages("served")?,
                    passed_over: pages("passed_over")?,
                    lost: pages("lost")?,
                    free: pages("free")?,
                },
            });
        }
        zones.sort_by(|one, other| one.zone.cmp(&other.zone));
        Ok(zones)
    }

    /// Settings of the module; `None` where it is not loaded. It may be unloaded during the read.
    pub fn read_module_settings(&self) -> Result<Option<ZeroingModuleSettings>, PrezeroingError> {
        let path = &self.idle_only;
        let found =
            read_number_from_file(&self.rate).and_then(|rate| Ok((rate, read_trimmed_text(path)?)));
        let (pages_per_second, word) = match found {
            Err(PrezeroingError::Unreadable { error, .. })
                if error.kind() == io::ErrorKind::NotFound =>
            {
                return Ok(None);
            }
            found => found?,
        };
        let idle_only = match word.as_str() {
            "Y" | "1" => true,
            "N" | "0" => false,
            _ => return Err(unexpected_value_error(path, word, "Y or N")),
        };
        Ok(Some(ZeroingModuleSettings { pages_per_second, idle_only }))
    }

    /// Limits zeroing to this number of base pages per second (1 and up); `None` is the lowest
    /// rate, one page a second. The limit holds until it is set again or `guard` is dropped.
    /// Returns what was set.
    pub fn set_rate(
        &self,
        pages_per_s: Option<u32>,
        guard: &mut KernelSettingsGuard,
    ) -> Result<u32> {
        let rate = pages_per_s.unwrap_or(LOWEST_RATE).max(1);
        set_module_parameter(&self.rate, &rate.to_string(), guard)?;
        Ok(rate)
    }

    /// Lets the module zero only when a processor has nothing else to run, or at any time.
    /// Otherwise as [`Self::set_rate`].
    pub fn set_idle_only(&self, idle_only: bool, guard: &mut KernelSettingsGuard) -> Result<()> {
        let word = if idle_only { "Y" } else { "N" };
        set_module_parameter(&self.idle_only, word, guard)
    }

    /// Restores both settings as they were found, if the module is still loaded.
    pub fn restore_module_settings(&self, guard: &mut KernelSettingsGuard) -> Result<()> {
        guard.put_back(&self.rate)?;
        guard.put_back(&self.idle_only)
    }
}

fn set_module_parameter(path: &Path, value: &str, guard: &mut KernelSettingsGuard) -> Result<()> {
    if !path.exists() {
        return Err(PrezeroingError::NoModule.into());
    }
    guard.set(path, value)
}

fn unreadable_error(path: &Path) -> impl FnOnce(io::Error) -> PrezeroingError {
    move |error| PrezeroingError::Unreadable { path: path.to_owned(), error }
}

fn read_trimmed_text(path: &Path) -> Result<String, PrezeroingError> {
    let text = fs::read_to_string(path).map_err(unreadable_error(path))?;
    Ok(text.trim().to_owned())
}

fn read_number_from_file<T: FromStr>(path: &Path) -> Result<T, PrezeroingError> {
    let found = read_trimmed_text(path)?;
    let number = found.parse();
    number.map_err(|_| unexpected_value_error(path, found, "a number"))
}

fn unexpected_value_error(path: &Path, found: String, expected: &'static str) -> PrezeroingError {
    PrezeroingError::NotUnderstood { path: path.to_owned(), found, expected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_lease::thp_settings::testing::TestFolder;

    const CORE: &str = "kernel/mm/prezero";
    const MODULE: &str = "module/prezero/parameters";

    fn kernel(name: &str) -> (TestFolder, PrezeroingFiles) {
        let folder = TestFolder::new(name);
        folder.file(&format!("{CORE}/active"), "0\n");
        for (zone, first) in [("node0-Normal", 100), ("node0-DMA32", 1)] {
            let counters = ["zeroed", "served", "passed_over", "lost", "free"];
            for (more, counter) in counters.iter().enumerate() {
                let text = format!("{}\n", first + more);
                folder.file(&format!("{CORE}/{zone}/{counter}"), &text);
            }
        }
        let sys = PrezeroingFiles::under(&folder.0);
        (folder, sys)
    }

    fn load(folder: &TestFolder) -> [PathBuf; 2] {
        folder.file(&format!("{CORE}/active"), "1\n");
        [
            folder.file(&format!("{MODULE}/pages_per_second"), "10000\n"),
            folder.file(&format!("{MODULE}/idle_only"), "N\n"),
        ]
    }

    fn state(sys: &PrezeroingFiles) -> KernelPrezeroingState {
        let found = sys.read_state().expect("the state can be read");
        found.expect("the kernel has prezeroing")
    }

    fn set_rate(sys: &PrezeroingFiles, rate: Option<u32>, guard: &mut KernelSettingsGuard) {
        sys.set_rate(rate, guard).expect("the setting can be changed");
    }

    #[test]
    fn stock_kernels_have_none() {
        let folder = TestFolder::new("prezeroing-none");
        let sys = PrezeroingFiles::under(&folder.0);
        assert!(!sys.exists());
        assert!(matches!(sys.read_state(), Ok(None)));
    }

    #[test]
    fn state_is_read_with_and_without_the_module() {
        let (folder, sys) = kernel("prezeroing-told");
        let found = state(&sys);
        assert!(!found.active);
        assert_eq!(found.module, None);
        let zones: Vec<_> = found.zones.iter().map(|zone| zone.zone.as_str()).collect();
        assert_eq!(zones, ["node0-DMA32", "node0-Normal"]);
        let all =
            ZeroedPageCounts { zeroed: 101, served: 103, passed_over: 105, lost: 107, free: 109 };
        assert_eq!(found.total_page_counts(), all);
        load(&folder);
        let found = state(&sys);
        let module = found.module.expect("the module is loaded");
        assert!(found.active && !module.idle_only);
        assert_eq!(module.pages_per_second, 10_000);
    }

    #[test]
    fn settings_are_changed_and_put_back() {
        let (folder, sys) = kernel("prezeroing-settings");
        let files = load(&folder);
        let read = |path: &PathBuf| read_trimmed_text(path).expect("the file can be read");
        let set = || files.each_ref().map(read).join(" ");
        let mut guard = folder.guard();
        set_rate(&sys, Some(20_000), &mut guard);
        sys.set_idle_only(true, &mut guard).expect("the setting can be changed");
        assert_eq!(set(), "20000 Y");
        set_rate(&sys, None, &mut guard);
        // 0 would mean no limit.
        assert_eq!(set(), "1 Y");
        sys.restore_module_settings(&mut guard).expect("the setting can be restored");
        assert_eq!(set(), "10000 N");
        set_rate(&sys, Some(5), &mut guard);
        // The manager is killed.
        std::mem::forget(guard);
        drop(folder.guard());
        assert_eq!(set(), "10000 N");
    }

    #[test]
    fn unloading_the_module_does_no_harm() {
        let (folder, sys) = kernel("prezeroing-unloaded");
        load(&folder);
        let mut guard = folder.guard();
        set_rate(&sys, Some(20_000), &mut guard);
        fs::remove_dir_all(folder.0.join("module")).expect("the folder can be removed");
        sys.restore_module_settings(&mut guard).expect("a missing module needs no restoring");
        let refused = sys.set_rate(Some(20_000), &mut guard);
        let said = refused.expect_err("a missing module is refused").to_string();
        assert!(said.contains("run `modprobe prezero`"), "{said}");
        // The module that is loaded next has its own settings.
        let [rate, _] = load(&folder);
        fs::write(&rate, "7\n").expect("the file can be written");
        drop(guard);
        assert_eq!(read_trimmed_text(&rate).expect("the file can be read"), "7");
    }

    #[test]
    fn unexpected_contents_are_named() {
        let (folder, sys) = kernel("prezeroing-strange");
        load(&folder);
        let said = || sys.read_state().expect_err("they are refused").to_string();
        let (active, lost) = (format!("{CORE}/active"), format!("{CORE}/node0-DMA32/lost"));
        let idle_only = format!("{MODULE}/idle_only");
        for (file, strange, right, expected) in [
            (&active, "2", "1", "active contains \"2\" instead of 0 or 1"),
            (&lost, "many", "0", "lost contains \"many\""),
            (&idle_only, "maybe", "N", "instead of Y or N"),
        ] {
            folder.file(file, strange);
            assert!(said().contains(expected), "{}", said());
            folder.file(file, right);
        }
        fs::remove_file(folder.0.join(lost)).expect("the file can be removed");
        assert!(said().starts_with("reading ") && said().contains("lost: "));
    }
}
