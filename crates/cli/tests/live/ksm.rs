//! Runs the kernel's merging of equal pages (KSM) during a test.

use crate::settings::Changed;
use std::fs;
use std::path::PathBuf;

/// KSM running with the test's settings; the former settings are restored when this is dropped.
pub(crate) struct KsmGuard {
    _changed: Changed,
}

impl KsmGuard {
    /// `None` where the kernel has no KSM.
    pub(crate) fn start() -> Option<Self> {
        let values = [
            ("use_zero_pages", "0"),
            ("sleep_millisecs", "10"),
            ("pages_to_scan", "20000"),
            ("run", "1"),
        ];
        let _changed = Changed::to(values.map(|(file, value)| (Self::path(file), value)))?;
        Some(Self { _changed })
    }

    pub(crate) fn path(file: &str) -> PathBuf {
        format!("/sys/kernel/mm/ksm/{file}").into()
    }

    pub(crate) fn pages_sharing() -> u64 {
        let text = fs::read_to_string(Self::path("pages_sharing")).expect("this kernel has KSM");
        text.trim().parse().expect("a number")
    }
}
