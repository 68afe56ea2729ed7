//! Clears the access bits of a whole process through `clear_refs`: for comparisons and for the
//! probe's own child.
//!
//! No manager calls this for a program that it manages.

use crate::error::{LinuxError, Result};

/// Clears the access bits of all anonymous mappings of the process.
///
/// `2` selects anonymous memory, so large file mappings cost nothing (fs/proc/task_mmu.c,
/// `CLEAR_REFS_ANON`). TLBs are not flushed: a page with a cached translation is not marked again.
/// A huge page would not help such a page.
///
/// The call cannot be sliced. It holds the target's `mmap_lock` for writing, and write-locks all
/// its mappings, for 5 to 7 ms per GiB of base pages. That includes pages that can never be huge.
/// Every page fault waits for it.
pub fn clear_access_bits_of_process(pid: u32) -> Result<()> {
    write_clear_refs(pid, "2", "clearing access bits through")
}

/// Clears the soft-dirty bits of a process (`CLEAR_REFS_SOFT_DIRTY`). Only for a child of the
/// manager's own: other tools rely on the bits of their processes.
pub(crate) fn clear_soft_dirty(pid: u32) -> Result<()> {
    write_clear_refs(pid, "4", "clearing soft-dirty bits through")
}

fn write_clear_refs(pid: u32, bits: &str, doing: &'static str) -> Result<()> {
    let path = format!("/proc/{pid}/clear_refs");
    std::fs::write(&path, bits).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => LinuxError::NoSuchProcess(pid),
        _ => LinuxError::wrap_io_error(doing, &path)(error),
    })
}
