//! Pages that can't be moved: pipes hold a reference on each.

use crate::prelude::*;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Pages in each pipe: the limit for an unprivileged process (`/proc/sys/fs/pipe-max-size`).
const PAGES_PER_PIPE: usize = 256;

/// Pages of a mapping. They are pinned for this value's life, even if the mapping goes away.
pub(super) struct PinnedPages {
    _pipes: Vec<(OwnedFd, OwnedFd)>,
}

impl PinnedPages {
    /// Pins these pages, which must be filled.
    pub(super) fn pin_pages(memory: &WorkloadMemory, pages: &[usize]) -> WorkloadResult<Self> {
        let mut pipes = Vec::new();
        for some in pages.chunks(PAGES_PER_PIPE) {
            let pipe = pipe_with_capacity(PAGES_PER_PIPE * PAGE)
                .map_err(WorkloadError::wrap_system_error("a pipe"))?;
            for page in some {
                memory.pin_by_pipe(page * PAGE, PAGE, pipe.1.as_fd())?;
            }
            pipes.push(pipe);
        }
        Ok(Self { _pipes: pipes })
    }
}

fn pipe_with_capacity(bytes: usize) -> io::Result<(OwnedFd, OwnedFd)> {
    let pipe = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&pipe.1, FcntlArg::F_SETPIPE_SZ(bytes as i32))?;
    Ok(pipe)
}
