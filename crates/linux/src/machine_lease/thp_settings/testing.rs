//! Files that stand for settings in a test.

use super::{KernelSettingsGuard, WritableSettingFiles};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A folder that is removed when dropped.
pub(crate) struct TestFolder(pub(crate) PathBuf);

impl TestFolder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("hawkeye-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("the folder can be created");
        Self(path)
    }

    /// A guard of settings that are files in this folder.
    pub(crate) fn guard(&self) -> KernelSettingsGuard {
        KernelSettingsGuard::restore_and_start_for_files(
            &self.0,
            WritableSettingFiles::under(&self.0),
        )
        .expect("the guard starts")
    }

    /// Creates a file with this text in the folder, and its parents.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&self.0)).expect("the folder can be created");
        fs::write(&path, text).expect("the file can be written");
        path
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("the mode can be changed");
}
