//! Finds the processes with enough anonymous memory, for as little as that can be had.
//!
//! A sweep costs three system calls a process, and remembers none of them: a process that is forked and
//! gone between two sweeps costs nothing.

use crate::error::LinuxError;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use std::os::fd::AsFd;

/// A process that a sweep came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Its id.
    pub pid: u32,
    /// Resident memory that is no file's, in bytes.
    pub anonymous_bytes: u64,
}

/// What one sweep saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Processes there were, kernel threads included.
    pub processes: usize,
    /// Those with enough anonymous memory, by ascending pid.
    pub large: Vec<Sighting>,
}

/// Looks at all processes of the machine (of its pid namespace, to be exact).
#[derive(Debug)]
pub struct Census {
    proc: Dir,
    page_bytes: u64,
}

impl Census {
    /// Opens `/proc`.
    pub fn open() -> Result<Self, LinuxError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let proc = Dir::open("/proc", flags, Mode::empty()).map_err(|errno| LinuxError::Call {
            call: "opening /proc",
            errno,
        })?;
        Ok(Self {
            proc,
            page_bytes: procfs::page_size(),
        })
    }

    /// Every process with at least `least_bytes` (over 0) of anonymous memory. Those that end meanwhile
    /// are not among them, nor are kernel threads, which have none.
    ///
    /// # Errors
    /// Processes can't be read at all at the moment (too many open files, say): nobody is known to have
    /// gone.
    pub fn sweep(&mut self, least_bytes: u64) -> Result<Sweep, LinuxError> {
        let pids: Vec<u32> = self
            .proc
            .iter()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok())
            .collect();
        let mut large = Vec::new();
        for &pid in &pids {
            match self.anonymous_bytes(pid) {
                Ok(anonymous_bytes) if anonymous_bytes >= least_bytes => large.push(Sighting {
                    pid,
                    anonymous_bytes,
                }),
                Ok(_) | Err(Errno::ENOENT | Errno::ESRCH | Errno::EACCES | Errno::EPERM) => {}
                Err(errno) => {
                    return Err(LinuxError::Call {
                        call: "reading /proc/PID/statm",
                        errno,
                    });
                }
            }
        }
        Ok(Sweep {
            processes: pids.len(),
            large,
        })
    }

    /// `resident - shared` of `/proc/PID/statm`.
    fn anonymous_bytes(&self, pid: u32) -> Result<u64, Errno> {
        let path = format!("{pid}/statm");
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let file = openat(self.proc.as_fd(), path.as_str(), flags, Mode::empty())?;
        // Seven numbers of at most 20 digits.
        let mut text = [0u8; 160];
        let length = nix::unistd::read(&file, &mut text)?;
        let pages = anonymous_pages(&text[..length]).unwrap_or(0);
        Ok(pages.saturating_mul(self.page_bytes))
    }
}

fn anonymous_pages(statm: &[u8]) -> Option<u64> {
    let mut fields = std::str::from_utf8(statm).ok()?.split_ascii_whitespace();
    let resident: u64 = fields.nth(1)?.parse().ok()?;
    let shared: u64 = fields.next()?.parse().ok()?;
    // Two counters that are not read at one time.
    Some(resident.saturating_sub(shared))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_is_what_no_file_backs() {
        assert_eq!(anonymous_pages(b"2603 1250 900 10 0 400 0\n"), Some(350));
        assert_eq!(
            anonymous_pages(b"0 0 0 0 0 0 0\n"),
            Some(0),
            "a kernel thread"
        );
        assert_eq!(anonymous_pages(b"9 3 4 1 0 1 0\n"), Some(0));
        assert_eq!(anonymous_pages(b""), None);
        assert_eq!(anonymous_pages(b"x y z"), None);
    }

    #[test]
    fn each_sweep_finds_this_process_by_its_memory() {
        let memory = vec![1u8; 16 << 20];
        let mut census = Census::open().expect("/proc is there");
        for _ in 0..2 {
            let sweep = census.sweep(8 << 20).expect("it can be read");
            let own = sweep.large.iter().find(|s| s.pid == std::process::id());
            assert!(own.is_some_and(|s| s.anonymous_bytes >= memory.len() as u64));
            assert!(sweep.processes >= sweep.large.len());
        }
        let nobody = census.sweep(u64::MAX).map(|sweep| sweep.large);
        assert!(nobody.is_ok_and(|large| large.is_empty()));
    }
}
