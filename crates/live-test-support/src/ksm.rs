//! Runs the kernel's merging of equal pages (KSM) during a test.

use crate::settings::Changed;
use std::fs;
use std::path::PathBuf;

/// KSM running with the test's settings; the former settings are restored when this is dropped.
pub struct KsmGuard {
    _changed: Changed,
}

impl KsmGuard {
    /// `None` where the kernel has no KSM.
    pub fn start() -> Option<Self> {
        let values = [
            ("use_zero_pages", "0"),
            ("sleep_millisecs", "10"),
            ("pages_to_scan", "20000"),
            ("run", "1"),
        ];
        let _changed = Changed::to(values.map(|(file, value)| (Self::path(file), value)))?;
        Some(Self { _changed })
    }

    /// The file of a setting of KSM.
    pub fn path(file: &str) -> PathBuf {
        format!("/sys/kernel/mm/ksm/{file}").into()
    }

    /// How many pages are merged into others.
    ///
    /// # Panics
    /// This kernel has no KSM.
    pub fn pages_sharing() -> u64 {
        let text = fs::read_to_string(Self::path("pages_sharing")).expect("this kernel has KSM");
        text.trim().parse().expect("a number")
    }
}
