//! Errors of DAMON, with what to do about them.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// DAMON's operations on fixed address ranges of a process. `vaddr` is no alternative: it widens
/// the ranges to the whole process.
pub(super) const OPERATIONS: &str = "fvaddr";

/// Why DAMON cannot be used, or how it failed.
#[derive(Debug, thiserror::Error)]
pub enum DamonError {
    /// The kernel has no DAMON, or no sysfs interface to it.
    #[error("{} is not there: this kernel has no DAMON (CONFIG_DAMON_SYSFS)", .0.display())]
    Absent(PathBuf),
    /// DAMON exists, but not for virtual addresses.
    #[error(
        "this kernel's DAMON cannot monitor virtual addresses (CONFIG_DAMON_VADDR): {} offers \
         {offered:?}, not {OPERATIONS}",
        path.display()
    )]
    NoVirtualAddresses { path: PathBuf, offered: String },
    /// DAMON cannot list what it finds.
    #[error(
        "{} is not there: this kernel's DAMON cannot list its results (it is older than 6.2)",
        .0.display()
    )]
    NoResults(PathBuf),
    /// Another program uses DAMON, and is left alone.
    #[error(
        "DAMON is in use: {} is {count}; end the program that uses it, or write 0 to this file if \
         none does",
        path.display()
    )]
    InUse {
        /// The file with the number of configured kdamonds.
        path: PathBuf,
        count: u32,
    },
    /// The kernel itself uses DAMON exclusively.
    #[error(
        "DAMON is in use by the kernel itself (damon_stat, damon_reclaim or damon_lru_sort; their `enabled` in \
         /sys/module/*/parameters switches them off): {} stays busy",
        .0.display()
    )]
    Exclusive(PathBuf),
    /// A file could not be read or written.
    #[error("cannot {action} {}: {error}", path.display())]
    Io { action: &'static str, path: PathBuf, error: io::Error },
    /// A file holds something other than a number.
    #[error("{} holds {content:?}, not a number", path.display())]
    NotANumber { path: PathBuf, content: String },
    /// Monitoring stopped by itself, as it does when the process exits.
    #[error("DAMON stopped monitoring process {0}: it has ended, or another program stopped DAMON")]
    Stopped(u32),
    /// The window did not end within twice its length.
    #[error("DAMON did not end a window of {window:?} over {regions} regions in time")]
    TooSlow { window: Duration, regions: usize },
}

pub(super) type DamonResult<T> = std::result::Result<T, DamonError>;
