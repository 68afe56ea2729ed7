//! The kernel's settings of huge pages that a manager changes: as kernels start with them while a test
//! runs, and the machine's again afterwards, even where a failing test has killed its manager.

use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "/sys/kernel/mm/transparent_hugepage";

/// Settings, each with what kernels start with; `enabled` and `defrag` are the machine's own choice.
const STARTED: [(&str, &str); 5] = [
    ("use_zero_page", "1"),
    ("khugepaged/max_ptes_none", "511"),
    ("khugepaged/pages_to_scan", "4096"),
    ("khugepaged/alloc_sleep_millisecs", "60000"),
    ("khugepaged/scan_sleep_millisecs", "10000"),
];

/// The file of a setting.
pub fn file(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// The switches of all page sizes; none on kernels before 6.8.
pub fn sizes() -> Vec<String> {
    let entries = fs::read_dir(FOLDER).expect("is there").flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .map(|name| format!("{name}/enabled"))
        .filter(|name| name.starts_with("hugepages-") && file(name).exists())
        .collect();
    names.sort();
    names
}

/// What is set, without the names of other choices.
pub fn read(name: &str) -> String {
    let text = fs::read_to_string(file(name)).expect("reads");
    let chosen = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split(']').next());
    chosen.unwrap_or(text.trim()).to_owned()
}

/// The machine's settings, put back when dropped.
pub struct Settings(Vec<(String, String)>);

impl Settings {
    /// Notes the machine's and sets those that kernels start with.
    pub fn as_started() -> Self {
        let names = ["enabled", "defrag", "shrink_underused"];
        let names = names.into_iter().filter(|name| file(name).exists());
        let names = names.chain(STARTED.map(|(name, _)| name));
        let names = names.map(str::to_owned).chain(sizes());
        let read = |name: String| {
            let value = read(&name);
            (name, value)
        };
        let machines = Self(names.map(read).collect());
        for (name, value) in STARTED {
            fs::write(file(name), value).expect("writes");
        }
        machines
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        for (name, value) in &self.0 {
            if let Err(error) = fs::write(file(name), value) {
                eprintln!("{name} could not be put back to {value}: {error}");
            }
        }
    }
}
