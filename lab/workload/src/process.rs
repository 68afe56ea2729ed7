//! What a workload needs to know of its own process, and forking.

use crate::console::{Console, Input};
use crate::error::WorkloadError;
use crate::memory::PAGE;
use crate::protocol::{Event, Ready, Request};
use std::fs;
use std::io;

/// Memory that the process has resident, in bytes (`/proc/self/statm`).
pub(crate) fn rss_bytes() -> Result<u64, WorkloadError> {
    let path = "/proc/self/statm";
    let statm = fs::read_to_string(path).map_err(WorkloadError::system(path))?;
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|field| field.parse::<u64>().ok());
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    pages
        .map(|pages| pages * PAGE as u64)
        .ok_or_else(|| WorkloadError::System {
            what: path,
            source: malformed(),
        })
}

/// What this process says of its memory once it is there (see [`Ready`]).
pub(crate) fn ready(start: u64, bytes: u64, hot_start: u64) -> Ready {
    Ready {
        pid: std::process::id(),
        start,
        bytes,
        hot_start,
        huge_bytes: huge_bytes(),
        execs: 0,
    }
}

/// Answers what the process's size is until it is told to end, or its input ends.
pub(crate) fn stay(console: &mut Console) -> Result<(), WorkloadError> {
    loop {
        match console.next() {
            Input::Request(Request::Quit) | Input::End => return Ok(()),
            Input::Request(Request::Rss) => console.emit(&Event::Rss {
                rss_bytes: rss_bytes()?,
                huge_bytes: huge_bytes(),
            })?,
            Input::Request(other) => console.refuse(other)?,
            Input::Bad(bad) => console.correct(&bad)?,
        }
    }
}

/// Anonymous memory of the process that huge pages map, in bytes; 0 where the kernel has no THP.
pub(crate) fn huge_bytes() -> u64 {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").unwrap_or_default();
    rollup
        .lines()
        .find_map(|line| line.strip_prefix("AnonHugePages:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        .map_or(0, |kilobytes| kilobytes * 1024)
}

/// A forked child of this process; dropping it waits for its end.
#[derive(Debug)]
pub(crate) struct Child(libc::pid_t);

/// A child that has not finished by itself after so many seconds is stuck and is ended.
const CHILD_SECONDS: u32 = 120;

impl Child {
    /// Forks; the child runs `work` and exits with the status that it returns.
    ///
    /// # Safety
    /// Other threads may hold any lock at the fork, so `work` must restrict itself to what is
    /// async-signal-safe: reads and writes of memory, no allocation, no lock, no output.
    pub(crate) unsafe fn fork(work: impl FnOnce() -> u8) -> io::Result<Self> {
        // SAFETY: the child runs only what the caller vouches for, and async-signal-safe calls.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let panicked = ExitOnDrop;
                // SAFETY: async-signal-safe; it ends a child that hangs.
                unsafe { libc::alarm(CHILD_SECONDS) };
                let status = work();
                std::mem::forget(panicked);
                // SAFETY: async-signal-safe, and does not return.
                unsafe { libc::_exit(status.into()) }
            }
            pid => Ok(Self(pid)),
        }
    }

    /// Waits for the end of the child and returns its wait status.
    pub(crate) fn wait(self) -> io::Result<i32> {
        let status = self.reap();
        std::mem::forget(self);
        status
    }

    fn reap(&self) -> io::Result<i32> {
        let mut status = 0;
        loop {
            // SAFETY: the pid is that of a child which nobody else waits for; `status` is ours.
            if unsafe { libc::waitpid(self.0, &raw mut status, 0) } == self.0 {
                return Ok(status);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Only on an error path: it ends by itself, and its status no longer matters.
        let _ = self.reap();
    }
}

/// Ends a child that panics before it unwinds into its parent's code.
struct ExitOnDrop;

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        // SAFETY: async-signal-safe, and does not return.
        unsafe { libc::_exit(101) }
    }
}

/// The exit status in a wait status, or nothing if a signal ended the process.
pub(crate) fn exit_code(wait_status: i32) -> Option<i32> {
    libc::WIFEXITED(wait_status).then(|| libc::WEXITSTATUS(wait_status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_returns_its_status() {
        // SAFETY: the child computes nothing.
        let child = unsafe { Child::fork(|| 7) }.unwrap();
        assert_eq!(exit_code(child.wait().unwrap()), Some(7));
    }

    #[test]
    fn own_memory_is_known() {
        assert!(rss_bytes().unwrap() > 0);
    }
}
