//! Why it can't be told how pre-zeroing stands.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Loads the module that zeroes.
pub const LOAD: &str = "modprobe prezero";

/// Why it can't be told how pre-zeroing stands.
#[derive(Debug, Error)]
pub enum PrezeroingError {
    /// A file that such kernels have can't be read.
    #[error("reading {path}: {source}; reading it takes no privileges, but /sys must be mounted", path = path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file holds something else than it should.
    #[error(
        "{path} holds {found:?} and not {expected}: the kernel's patches are of another version than this program",
        path = path.display()
    )]
    NotUnderstood {
        /// Which file.
        path: PathBuf,
        /// What is in it.
        found: String,
        /// What should be.
        expected: &'static str,
    },
    /// There is no module whose settings could be changed.
    #[error("no module zeroes free memory: `{LOAD}` loads it")]
    NoModule,
}
