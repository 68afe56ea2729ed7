//! Reasons why the state of pre-zeroing cannot be read.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Command that loads the module which zeroes.
pub const LOAD_COMMAND: &str = "modprobe prezero";

/// Why the state of pre-zeroing cannot be read.
#[derive(Debug, Error)]
pub enum PrezeroingError {
    /// A file that such kernels have cannot be read.
    #[error("reading {path}: {error}; reading it needs no privileges, but /sys must be mounted", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
    /// A file has unexpected contents.
    #[error(
        "{path} contains {found:?} instead of {expected}: the kernel's patches and this program have different versions",
        path = path.display()
    )]
    NotUnderstood {
        /// The file.
        path: PathBuf,
        /// Its contents.
        found: String,
        /// The expected contents.
        expected: &'static str,
    },
    /// No module is loaded, so there are no settings to change.
    #[error("no loaded module zeroes free memory: run `{LOAD_COMMAND}`")]
    NoModule,
}
