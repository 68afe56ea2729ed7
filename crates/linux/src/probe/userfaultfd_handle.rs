//! A process's own userfaultfd. The probe and tests set it up to verify that management leaves it
//! intact.
//!
//! It makes system calls only, so it may be used between a fork and an exec.

use crate::processes::process::raw_fd_from_result;
use crate::ring_buffer::decode_u64s;
use nix::errno::Errno;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// include/uapi/linux/userfaultfd.h
mod uapi {
    pub const API: u64 = 0xaa;
    pub const FEATURE_WRITE_PROTECT: u64 = 1;
    pub const USER_MODE_ONLY: libc::c_int = 1;
    pub const IOCTL_API: u64 = 0xc018_aa3f;
    pub const IOCTL_REGISTER: u64 = 0xc020_aa00;
    pub const IOCTL_UNREGISTER: u64 = 0x8010_aa01;
    pub const IOCTL_WRITE_PROTECT: u64 = 0xc018_aa06;
}

/// Faults that a range is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum WatchMode {
    /// First touches.
    Missing = 1,
    /// Writes to protected pages.
    WriteProtect = 2,
}

/// One userfaultfd. Dropping it ends the watch on its ranges.
#[derive(Debug)]
pub struct UserfaultfdHandle(OwnedFd);

impl UserfaultfdHandle {
    /// Opens a userfaultfd. `user_only`: faults inside the kernel fail instead of waiting.
    ///
    /// # Errors
    /// - `ENOSYS`: this kernel has no userfaultfd.
    /// - `EOPNOTSUPP`: it cannot write-protect pages.
    pub fn open(user_only: bool) -> Result<Self, Errno> {
        let only = if user_only { uapi::USER_MODE_ONLY } else { 0 };
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | only;
        // SAFETY: a plain system call without pointers.
        let fd = Errno::result(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) })?;
        // SAFETY: the call just made this descriptor, and nothing else has it.
        let opened = Self(unsafe { OwnedFd::from_raw_fd(raw_fd_from_result(fd)) });
        let mut api = [uapi::API, 0, 0];
        opened.ioctl(uapi::IOCTL_API, &mut api)?;
        if api[1] & uapi::FEATURE_WRITE_PROTECT == 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(opened)
    }

    /// Watches addresses of this process.
    pub fn register(&self, range: Range<u64>, mode: WatchMode) -> Result<(), Errno> {
        let length = range.end - range.start;
        let mut register = [range.start, length, mode as u64, 0];
        self.ioctl(uapi::IOCTL_REGISTER, &mut register)
    }

    /// Stops watching addresses.
    pub fn unregister(&self, range: Range<u64>) -> Result<(), Errno> {
        let mut unregister = [range.start, range.end - range.start];
        self.ioctl(uapi::IOCTL_UNREGISTER, &mut unregister)
    }

    /// Write-protects pages, or removes the protection and wakes the threads that wait.
    pub fn write_protect(&self, range: Range<u64>, protected: bool) -> Result<(), Errno> {
        let length = range.end - range.start;
        let mut protect = [range.start, length, u64::from(protected)];
        self.ioctl(uapi::IOCTL_WRITE_PROTECT, &mut protect)
    }

    /// The address of the next fault that waits for an answer; `None` if none does.
    pub fn next_fault_address(&self) -> Result<Option<u64>, Errno> {
        const PAGE_FAULT: u64 = 0x12;
        // event, flags, address, thread
        let mut message = [0u8; 32];
        match nix::unistd::read(&self.0, &mut message) {
            Ok(_) | Err(Errno::EAGAIN) => {
                let mut words = decode_u64s(&message);
                let is_fault = words.next().is_some_and(|event| event & 0xff == PAGE_FAULT);
                Ok(words.nth(1).filter(|_| is_fault))
            }
            Err(errno) => Err(errno),
        }
    }

    fn ioctl<const N: usize>(&self, request: u64, argument: &mut [u64; N]) -> Result<(), Errno> {
        // SAFETY: `argument` has the size that is part of `request`, and lives through the call.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), request, argument.as_mut_ptr()) };
        Errno::result(result).map(drop)
    }
}
