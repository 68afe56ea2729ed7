//! The file with the settings to put back.

use crate::error::{LinuxError, Result};
use crate::machine_lease::own_files::{self, UnusableFileReason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Version of the format.
const VERSION: u32 = 2;
/// Upper bound of the file's size, in bytes.
const LONGEST: u64 = 64 << 10;
/// Upper bound of a setting's length, in bytes.
const LONGEST_VALUE: usize = 256;
/// Its content changes with each start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Settings that may be changed and put back: everything in these folders, and these files. The
/// manager changes the first two, experiments the others. All are here, because experiments use the
/// manager's lease and file: its next start puts back what a killed experiment left.
const KERNEL: [&str; 5] = [
    "/sys/kernel/mm/transparent_hugepage",
    "/sys/module/prezero/parameters",
    "/sys/module/page_reporting/parameters",
    "/proc/sys/vm/compaction_proactiveness",
    "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
];

/// Which files may be written.
#[derive(Clone, Debug)]
pub struct WritableSettingFiles(Vec<PathBuf>);

impl WritableSettingFiles {
    /// The settings of this kernel that HawkEye changes.
    pub fn of_kernel() -> Self {
        Self(KERNEL.map(PathBuf::from).to_vec())
    }

    /// The files in a folder, for tests with settings of their own.
    pub fn under(folder: &Path) -> Self {
        Self(vec![folder.to_owned()])
    }

    pub(super) fn contains(&self, path: &Path) -> bool {
        let plain = |part| matches!(part, Component::Normal(_) | Component::RootDir);
        path.components().all(plain) && self.0.iter().any(|folder| path.starts_with(folder))
    }
}

/// One setting that was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SettingChange {
    /// The value before the change.
    pub(super) found: String,
    /// The values that HawkEye may have left. That is one value, or two while it is being changed.
    pub(super) set: Vec<String>,
}

impl SettingChange {
    fn is_plausible(&self) -> bool {
        let values = std::iter::once(&self.found).chain(&self.set);
        let is_plausible = |value: &String| {
            !value.is_empty() && value.len() <= LONGEST_VALUE && !value.contains(char::is_control)
        };
        !self.set.is_empty() && values.into_iter().all(is_plausible)
    }
}

/// Changes, by the file of the setting.
pub(super) type SettingChanges = BTreeMap<PathBuf, SettingChange>;

#[derive(Serialize, Deserialize)]
struct SavedSettingsJson {
    version: u32,
    boot_id: Option<String>,
    settings: SettingChanges,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SavedSettings {
    pub(super) changes: SettingChanges,
    /// The changes were made before the last start of the machine. The kernel has begun with its
    /// own settings since.
    pub(super) of_earlier_boot: bool,
}

pub(super) fn saved_settings_file_in(state_dir: &Path) -> PathBuf {
    state_dir.join("settings.json")
}

/// Reads the file; `None` if there is none. A file with any impossible value is unusable as a
/// whole.
pub(super) fn read_saved_settings(
    file: &Path,
    allowed: &WritableSettingFiles,
) -> Result<Option<SavedSettings>, UnusableFileReason> {
    own_files::read_trusted_file(file, LONGEST, |text| {
        parse_saved_settings(text, allowed, read_boot_id().as_deref())
    })
}

fn parse_saved_settings(
    text: &[u8],
    allowed: &WritableSettingFiles,
    boot_id: Option<&str>,
) -> Result<SavedSettings, UnusableFileReason> {
    let parsed: SavedSettingsJson = own_files::parse_json_of_version(text, VERSION)?;
    let wrong = |(path, change): &(&PathBuf, &SettingChange)| {
        !allowed.contains(path) || !change.is_plausible()
    };
    if let Some((path, _)) = parsed.settings.iter().find(wrong) {
        return Err(UnusableFileReason::NotASetting(path.clone()));
    }
    Ok(SavedSettings {
        of_earlier_boot: matches!((&parsed.boot_id, boot_id),
            (Some(then), Some(now)) if then != now),
        changes: parsed.settings,
    })
}

fn read_boot_id() -> Option<String> {
    let text = fs::read_to_string(BOOT_ID).ok()?;
    Some(text.trim().to_owned())
}

/// Writes the changes before a setting is changed; removes the file if there are none.
pub(super) fn write_or_remove_saved_settings(file: &Path, changes: &SettingChanges) -> Result<()> {
    if changes.is_empty() {
        return match fs::remove_file(file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(LinuxError::wrap_io_error("removing", file)(error))
            }
            _ => Ok(()),
        };
    }
    let text = serde_json::to_vec(&SavedSettingsJson {
        version: VERSION,
        boot_id: read_boot_id(),
        settings: changes.clone(),
    });
    let written = text.map_err(std::io::Error::other);
    let written = written.and_then(|text| own_files::replace_file_atomically(file, &text));
    written.map_err(LinuxError::wrap_io_error("writing", file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const THP: &str = "/sys/kernel/mm/transparent_hugepage";

    fn parsed(text: &str) -> Result<SavedSettings, String> {
        let boot = Some("now");
        parse_saved_settings(text.as_bytes(), &WritableSettingFiles::of_kernel(), boot)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn another_boot_is_recognised() {
        let text = |boot| format!(r#"{{"version": 2, "boot_id": {boot}, "settings": {{}}}}"#);
        for (boot, earlier) in [("\"now\"", false), ("\"then\"", true), ("null", false)] {
            let found = parsed(&text(boot)).expect("the file is valid");
            assert_eq!(found.of_earlier_boot, earlier, "{boot}");
        }
    }

    #[test]
    fn a_file_with_one_foreign_entry_is_refused_as_a_whole() {
        let settings = |path: &str, found: &str| {
            let change = format!(r#"{{"found": "{found}", "set": ["1"]}}"#);
            format!(r#"{{"version": 2, "boot_id": null, "settings": {{"{path}": {change}}}}}"#)
        };
        let good = settings(&format!("{THP}/defrag"), "never");
        assert!(parsed(&good).is_ok());
        // Without what was set, another program's change could not be recognised.
        assert!(parsed(&good.replace(r#"["1"]"#, "[]")).is_err());
        for (path, found, said) in [
            ("/etc/passwd", "root::0:0::/:/bin/sh", "/etc/passwd"),
            ("/proc/sys/kernel/core_pattern", "|/tmp/a", "core_pattern"),
            (&format!("{THP}/../ksm/run"), "1", "ksm"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "1", "enabled"),
            (&format!("{THP}_evil"), "1", "_evil"),
            (&format!("{THP}/enabled"), "", "enabled"),
            (&format!("{THP}/enabled"), "always\\nnever", "enabled"),
            (&format!("{THP}/enabled"), &"9".repeat(300), "enabled"),
        ] {
            let refused = parsed(&settings(path, found)).expect_err(path);
            assert!(refused.contains(said), "{refused}");
        }
        for (text, said) in [
            ("", "damaged"),
            ("{\"/sys/x\": ", "damaged"),
            ("[2]", "damaged"),
            ("{\"version\": 3}", "version 3"),
            // The first builds wrote no version.
            (&format!(r#"{{"{THP}/enabled": "madvise"}}"#), "missing field `version`"),
            ("{\"version\": 1e999}", "damaged"),
            (&"[".repeat(9000), "damaged"),
        ] {
            let refused = parsed(text).expect_err(text);
            assert!(refused.contains(said), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_give_an_answer(text: Vec<u8>) {
            let _ = parse_saved_settings(&text, &WritableSettingFiles::of_kernel(), None);
        }

        #[test]
        fn half_a_file_is_refused(cut in 1..150usize, found in "[a-z0-9+]{1,20}") {
            let change = SettingChange { found, set: vec!["always".into()] };
            let changes = SettingChanges::from([(Path::new(THP).join("enabled"), change)]);
            let boot_id = Some("now".to_owned());
            let whole = SavedSettingsJson { version: VERSION, boot_id, settings: changes.clone() };
            let whole = serde_json::to_vec(&whole).expect("the record serializes");
            let allowed = WritableSettingFiles::of_kernel();
            let back = parse_saved_settings(&whole, &allowed, Some("now")).expect("the whole file is valid");
            prop_assert_eq!(back.changes, changes);
            prop_assert!(parse_saved_settings(&whole[..cut.min(whole.len() - 1)], &allowed, None).is_err());
        }
    }
}
