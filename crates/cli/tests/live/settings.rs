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

/// Path of a setting.
pub fn file(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// The switches of all page sizes; none on kernels before 6.8.
pub fn sizes() -> Vec<String> {
    let entries = fs::read_dir(FOLDER)
        .expect("the folder can be read")
        .flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .map(|name| format!("{name}/enabled"))
        .filter(|name| name.starts_with("hugepages-") && file(name).exists())
        .collect();
    names.sort();
    names
}

/// Value of a setting.
pub fn read(name: &str) -> String {
    chosen(&fs::read_to_string(file(name)).expect("the file can be read"))
}

/// The chosen word in a setting's text, without the other choices.
pub fn chosen(text: &str) -> String {
    let chosen = text.split_once('[');
    let chosen = chosen.and_then(|(_, rest)| rest.split(']').next());
    chosen.unwrap_or(text.trim()).to_owned()
}

/// The machine's settings; restored when dropped.
pub struct Settings(Vec<(String, String)>);

impl Settings {
    /// Saves the machine's settings and sets the kernel's defaults.
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
