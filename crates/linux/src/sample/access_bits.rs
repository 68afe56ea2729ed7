//! Clears marks of a whole process through `clear_refs`: for comparisons and for the probe's own child.
//!
//! No manager calls this for a program that it manages.

use crate::error::{LinuxError, Result};

/// Clears the access bits of all anonymous mappings of the process.
///
/// `2` selects anonymous memory, so that big file mappings cost nothing (fs/proc/task_mmu.c,
/// `CLEAR_REFS_ANON`). TLBs are not flushed: a page whose translation stays cached is not marked
/// again, and it is no page that a huge page would help. The call can't be sliced: it holds the
/// target's `mmap_lock` for writing, and write-locks all its mappings, for 5-7 ms per GiB of base
/// pages, also of those that can never be huge. Every page fault waits for that.
pub fn clear(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    std::fs::write(&path, "2").map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => LinuxError::NoSuchProcess(pid),
        _ => LinuxError::file("clearing access bits through", &path)(error),
    })
}

/// Clears the soft-dirty bits of a process (`CLEAR_REFS_SOFT_DIRTY`). Only for a child of the manager's own: other tools rely on those of
/// their processes.
pub(crate) fn clear_soft_dirty(pid: u32) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    std::fs::write(&path, "4").map_err(LinuxError::file("clearing soft-dirty bits through", &path))
}
