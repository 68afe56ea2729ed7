//! Clears the access bits of a whole process by `/proc/PID/clear_refs`, for comparisons and for
//! tests. The manager never does so to a program that it manages.

use hawkeye_linux::LinuxError;

/// Clears the access bits of all anonymous mappings of the process.
///
/// `2` selects anonymous memory, so large file mappings cost nothing (fs/proc/task_mmu.c,
/// `CLEAR_REFS_ANON`). TLBs are not flushed: a page with a cached translation is not marked again.
/// A huge page would not help such a page.
///
/// The call cannot be sliced. It holds the target's `mmap_lock` for writing, and write-locks all
/// its mappings, for 5 to 7 ms per GiB of base pages. That includes pages that can never be huge.
/// Every page fault waits for it.
pub fn clear_access_bits_of_process(pid: u32) -> Result<(), LinuxError> {
    write_clear_refs(pid, "2")
}

pub(crate) fn write_clear_refs(pid: u32, value: &str) -> Result<(), LinuxError> {
    let path = format!("/proc/{pid}/clear_refs");
    std::fs::write(&path, value).map_err(LinuxError::wrap_io_error("writing", path))
}
