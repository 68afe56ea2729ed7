//! Runs the kernel's merging of equal pages (KSM) during a test.

use std::fs;

/// KSM running with the test's settings; the former settings are restored when this is dropped.
pub(crate) struct Ksm(Vec<(&'static str, String)>);

impl Ksm {
    const FILES: [(&'static str, &'static str); 4] = [
        ("use_zero_pages", "0"),
        ("sleep_millisecs", "10"),
        ("pages_to_scan", "20000"),
        ("run", "1"),
    ];

    /// `None` where the kernel has no KSM.
    pub(crate) fn start() -> Option<Self> {
        let mut before = Vec::new();
        for (file, value) in Self::FILES {
            before.push((file, Self::read(file)?.to_string()));
            fs::write(Self::path(file), value).ok()?;
        }
        Some(Self(before))
    }

    pub(crate) fn path(file: &str) -> String {
        format!("/sys/kernel/mm/ksm/{file}")
    }

    fn read(file: &str) -> Option<u64> {
        let text = fs::read_to_string(Self::path(file)).ok()?;
        text.trim().parse().ok()
    }

    pub(crate) fn pages_sharing() -> u64 {
        Self::read("pages_sharing").expect("KSM is there")
    }
}

impl Drop for Ksm {
    fn drop(&mut self) {
        for (file, value) in self.0.iter().rev() {
            let _ = fs::write(Self::path(file), value);
        }
    }
}
