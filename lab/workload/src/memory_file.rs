//! Files of shared memory, which several processes map.

use crate::prelude::*;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// A new file in memory, without a name, of `bytes` zeros.
///
/// # Errors
/// What the kernel refuses: too many open files, or a file that is too large.
pub fn create_memory_file(bytes: u64) -> io::Result<File> {
    let file = File::from(memfd_create(c"workload", MFdFlags::MFD_CLOEXEC)?);
    file.set_len(bytes)?;
    Ok(file)
}

/// The path by which other processes open a file, as long as this process has it open.
pub fn path_for_other_processes(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

/// A file of shared memory that other processes may map, too. It must be as long as a mapping of
/// it, because an access beyond its end would be fatal.
pub(crate) fn open_memory_file(path: &Path, bytes: usize) -> WorkloadResult<File> {
    let failed = WorkloadError::wrap_system_error("opening the file to map");
    let file = File::options().read(true).write(true).open(path).map_err(failed)?;
    let failed = WorkloadError::wrap_system_error("reading the file's size");
    if file.metadata().map_err(failed)?.len() < bytes as u64 {
        return Err(WorkloadError::Usage("--file is smaller than --mib".to_owned()));
    }
    Ok(file)
}

/// Maps a file of shared memory, or private memory without one, aligned to 2 MiB. `fill` writes to
/// it first. `pages` is for private memory.
pub(crate) fn map_file_or_private_memory(
    file: Option<&Path>,
    bytes: usize,
    pages: RequestedPageKind,
    fill: impl FnOnce(&mut WorkloadMemory),
) -> WorkloadResult<WorkloadMemory> {
    let Some(path) = file else {
        return Ok(WorkloadMemory::map_private_and_touch(bytes, pages, fill)?);
    };
    let mut memory = WorkloadMemory::map_file_aligned(&open_memory_file(path, bytes)?, bytes, 0)?;
    fill(&mut memory);
    Ok(memory)
}
