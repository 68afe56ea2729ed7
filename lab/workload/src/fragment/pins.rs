//! Pages that can't be moved: pipes hold a reference on each.

use crate::error::WorkloadError;
use crate::memory::{Mapping, PAGE};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// Pages in each pipe: as many as anybody may have (`/proc/sys/fs/pipe-max-size`).
const PAGES_PER_PIPE: usize = 256;

/// Pages of a mapping, pinned while it lives, whatever becomes of the mapping.
#[derive(Debug)]
pub(super) struct Pins {
    _pipes: Vec<[OwnedFd; 2]>,
}

impl Pins {
    /// Pins these pages, which are filled.
    ///
    /// # Errors
    /// There are no more pipes to be had, or none large enough.
    pub(super) fn on(memory: &Mapping, pages: &[usize]) -> Result<Self, WorkloadError> {
        let mut pipes = Vec::new();
        for some in pages.chunks(PAGES_PER_PIPE) {
            let pipe = pipe_of(PAGES_PER_PIPE * PAGE).map_err(WorkloadError::system("a pipe"))?;
            for page in some {
                memory.reference(page * PAGE, PAGE, pipe[1].as_fd())?;
            }
            pipes.push(pipe);
        }
        Ok(Self { _pipes: pipes })
    }
}

/// A pipe that holds so many bytes: its two ends.
fn pipe_of(bytes: usize) -> io::Result<[OwnedFd; 2]> {
    let mut ends = [-1; 2];
    // SAFETY: the call writes two descriptors to `ends`, which is ours.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both were just opened, and nobody else has them.
    let ends = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    let raw = ends[1].as_raw_fd();
    // SAFETY: the descriptor is open and the call touches no memory of ours.
    match unsafe { libc::fcntl(raw, libc::F_SETPIPE_SZ, bytes as libc::c_int) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(ends),
    }
}
