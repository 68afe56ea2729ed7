//! The file of settings that have to be put back.

use crate::error::{LinuxError, Result};
use crate::takeover::own_files;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};
use thiserror::Error;

/// Version of the format. Files without a version are of HawkEye before 0.1.0.
const VERSION: u64 = 2;
/// No such file is as long as this, in bytes.
const LONGEST: u64 = 64 << 10;
/// No setting has a longer value, in bytes.
const LONGEST_VALUE: usize = 256;
/// Changes with each start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Settings that may be changed and put back: everything under these folders, and these files.
/// The first two are the manager's, the others those of experiments.
const KERNEL: [&str; 4] = [
    "/sys/kernel/mm/transparent_hugepage",
    "/sys/module/prezero/parameters",
    "/sys/module/page_reporting/parameters",
    "/proc/sys/vm/compaction_proactiveness",
];

/// Which files may be written.
#[derive(Clone, Debug)]
pub struct Allowed(Vec<PathBuf>);

impl Allowed {
    /// Those of this kernel that HawkEye sets.
    pub fn of_kernel() -> Self {
        Self(KERNEL.map(PathBuf::from).to_vec())
    }

    /// Those under a folder: for tests with settings of their own.
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
pub(super) struct Change {
    /// What it was before.
    pub(super) found: String,
    /// What HawkEye may have left it at: one value, two while it is being changed. None where a
    /// manager before 0.1.0 has not written it down.
    pub(super) set: Vec<String>,
}

impl Change {
    fn is_plausible(&self) -> bool {
        let values = std::iter::once(&self.found).chain(&self.set);
        values.into_iter().all(|value| {
            !value.is_empty() && value.len() <= LONGEST_VALUE && !value.contains(char::is_control)
        })
    }
}

/// Changes, by file.
pub(super) type Changes = BTreeMap<PathBuf, Change>;

#[derive(Serialize)]
struct File<'a> {
    version: u64,
    boot_id: Option<&'a str>,
    settings: &'a Changes,
}

/// The same when it is read back.
#[derive(Deserialize)]
struct Parsed {
    boot_id: Option<String>,
    settings: Changes,
}

/// What was found in the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) changes: Changes,
    /// They are of an earlier start of the machine: the kernel began with its own settings since.
    pub(super) of_earlier_boot: bool,
}

/// Why the file is not used, as a clause that follows its name.
#[derive(Debug, Error)]
pub(super) enum Unusable {
    #[error(transparent)]
    Distrusted(#[from] own_files::Distrust),
    #[error("is damaged ({0})")]
    Damaged(#[from] serde_json::Error),
    #[error("is of version {0}, and this program knows {VERSION}")]
    Version(Value),
    #[error("names {}, which HawkEye never changes, or no possible value for it", .0.display())]
    NotASetting(PathBuf),
}

pub(super) fn file_in(state_dir: &Path) -> PathBuf {
    state_dir.join("settings.json")
}

/// Reads the file; `None`: there is none. Nothing is taken from a file with anything impossible in it.
pub(super) fn read(file: &Path, allowed: &Allowed) -> Result<Option<Found>, Unusable> {
    let Some(text) = own_files::read(file, LONGEST)? else {
        return Ok(None);
    };
    parse(&text, allowed, boot_id().as_deref()).map(Some)
}

fn parse(text: &[u8], allowed: &Allowed, boot_id: Option<&str>) -> Result<Found, Unusable> {
    let value: Value = serde_json::from_slice(text)?;
    let found = match value.get("version").cloned() {
        None => {
            let old: BTreeMap<PathBuf, String> = serde_json::from_value(value)?;
            let change = |found| Change {
                found,
                set: Vec::new(),
            };
            let changes = old.into_iter().map(|(path, found)| (path, change(found)));
            Found {
                changes: changes.collect(),
                of_earlier_boot: false,
            }
        }
        Some(version) if version.as_u64() == Some(VERSION) => {
            let parsed: Parsed = serde_json::from_value(value)?;
            Found {
                of_earlier_boot: matches!((&parsed.boot_id, boot_id),
                    (Some(then), Some(now)) if then != now),
                changes: parsed.settings,
            }
        }
        Some(version) => return Err(Unusable::Version(version)),
    };
    let wrong =
        |(path, change): &(&PathBuf, &Change)| !allowed.contains(path) || !change.is_plausible();
    match found.changes.iter().find(wrong) {
        Some((path, _)) => Err(Unusable::NotASetting(path.clone())),
        None => Ok(found),
    }
}

fn boot_id() -> Option<String> {
    let text = fs::read_to_string(BOOT_ID).ok()?;
    Some(text.trim().to_owned())
}

/// On disk before a setting changes; no file where nothing has to be put back.
pub(super) fn write(file: &Path, changes: &Changes) -> Result<()> {
    if changes.is_empty() {
        return match fs::remove_file(file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(LinuxError::file("removing", file)(error))
            }
            _ => Ok(()),
        };
    }
    let text = serde_json::to_vec(&File {
        version: VERSION,
        boot_id: boot_id().as_deref(),
        settings: changes,
    });
    let written = text.map_err(std::io::Error::other);
    let written = written.and_then(|text| own_files::replace(file, &text));
    written.map_err(LinuxError::file("writing", file))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const THP: &str = "/sys/kernel/mm/transparent_hugepage";

    fn parsed(text: &str) -> Result<Found, String> {
        let boot = Some("now");
        parse(text.as_bytes(), &Allowed::of_kernel(), boot).map_err(|error| error.to_string())
    }

    #[test]
    fn files_of_earlier_versions_are_understood() {
        let found = parsed(&format!(r#"{{"{THP}/enabled": "madvise"}}"#)).expect("is the old form");
        let change = &found.changes[Path::new("/sys/kernel/mm/transparent_hugepage/enabled")];
        assert_eq!((change.found.as_str(), change.set.len()), ("madvise", 0));
        assert!(!found.of_earlier_boot);
    }

    #[test]
    fn another_boot_is_recognised() {
        let text = |boot| format!(r#"{{"version": 2, "boot_id": {boot}, "settings": {{}}}}"#);
        for (boot, earlier) in [("\"now\"", false), ("\"then\"", true), ("null", false)] {
            let found = parsed(&text(boot)).expect("is right");
            assert_eq!(found.of_earlier_boot, earlier, "{boot}");
        }
    }

    #[test]
    fn what_is_not_ours_is_refused_as_a_whole() {
        let settings = |path: &str, found: &str| {
            let change = format!(r#"{{"found": "{found}", "set": ["1"]}}"#);
            format!(r#"{{"version": 2, "boot_id": null, "settings": {{"{path}": {change}}}}}"#)
        };
        assert!(parsed(&settings(&format!("{THP}/defrag"), "never")).is_ok());
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
            ("[1]", "damaged"),
            ("{\"version\": 3}", "version 3"),
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
            let _ = parse(&text, &Allowed::of_kernel(), None);
        }

        #[test]
        fn half_a_file_is_refused(cut in 1..150usize, found in "[a-z0-9+]{1,20}") {
            let changes = Changes::from([(
                PathBuf::from("/sys/kernel/mm/transparent_hugepage/enabled"),
                Change { found, set: vec!["always".into()] },
            )]);
            let whole = File { version: VERSION, boot_id: Some("now"), settings: &changes };
            let whole = serde_json::to_vec(&whole).expect("is text");
            let allowed = Allowed::of_kernel();
            let back = parse(&whole, &allowed, Some("now")).expect("is whole");
            prop_assert_eq!(back.changes, changes);
            prop_assert!(parse(&whole[..cut.min(whole.len() - 1)], &allowed, None).is_err());
        }
    }
}
