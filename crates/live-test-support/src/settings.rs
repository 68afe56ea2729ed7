//! The kernel's huge page settings that a manager changes. A test runs with the kernel's defaults.
//! Afterwards the machine's own are restored, even if a failing test has killed its manager.

use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";

/// Settings with the kernel's defaults. `enabled` and `defrag` keep the machine's choice.
const STARTED: [(&str, &str); 5] = [
    ("use_zero_page", "1"),
    ("khugepaged/max_ptes_none", "511"),
    ("khugepaged/pages_to_scan", "4096"),
    ("khugepaged/alloc_sleep_millisecs", "60000"),
    ("khugepaged/scan_sleep_millisecs", "10000"),
];

/// The file of a setting of huge pages.
pub fn file(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// The switches of all page sizes; none on kernels before 6.8.
///
/// # Panics
/// This kernel has no huge pages.
pub fn sizes() -> Vec<String> {
    let entries = fs::read_dir(FOLDER).expect("the folder can be read").flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .map(|name| format!("{name}/enabled"))
        .filter(|name| name.starts_with("hugepages-") && file(name).exists())
        .collect();
    names.sort();
    names
}

/// The value of a setting.
///
/// # Panics
/// It can't be read.
pub fn read(name: &str) -> String {
    chosen(&fs::read_to_string(file(name)).expect("the file can be read"))
}

/// The chosen word in a setting's text, without the other choices.
pub fn chosen(text: &str) -> String {
    let chosen = text.split_once('[');
    let chosen = chosen.and_then(|(_, rest)| rest.split(']').next());
    chosen.unwrap_or(text.trim()).to_owned()
}

/// Files of the kernel that a test changes, with their former values; restored when dropped.
pub struct Changed(Vec<(PathBuf, String)>);

impl Changed {
    /// Writes these values. `None` where a file can't be read or written.
    pub fn to<'v>(values: impl IntoIterator<Item = (PathBuf, &'v str)>) -> Option<Self> {
        let mut changed = Self(Vec::new());
        for (file, value) in values {
            changed.keep(file.clone())?;
            fs::write(file, value).ok()?;
        }
        Some(changed)
    }

    fn keep(&mut self, file: PathBuf) -> Option<()> {
        let value = chosen(&fs::read_to_string(&file).ok()?);
        self.0.push((file, value));
        Some(())
    }

    /// Sets the kernel's default settings. The other settings of huge pages are restored too.
    ///
    /// # Panics
    /// A setting can't be changed.
    pub fn to_defaults() -> Self {
        let defaults = STARTED.map(|(name, value)| (file(name), value));
        let mut changed = Self::to(defaults).expect("root can change the settings");
        let names = ["enabled", "defrag", "shrink_underused"].map(str::to_owned);
        for name in names.into_iter().chain(sizes()) {
            changed.keep(file(&name));
        }
        changed
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        for (file, value) in self.0.iter().rev() {
            if let Err(error) = fs::write(file, value) {
                eprintln!("can't restore {} to {value}: {error}", file.display());
            }
        }
    }
}
