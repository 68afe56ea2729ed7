//! Wakes a waiting manager from another thread.

use crate::error::{LinuxError, Result};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// An eventfd. All clones wake the same thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<EventFd>);

impl Waker {
    /// A waker that has not been used.
    pub fn new() -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_flags(flags).map_err(LinuxError::call("eventfd"))?;
        Ok(Self(Arc::new(event)))
    }

    /// Wakes the thread that waits, or the next one that will. Several calls before
    /// [`clear`](Self::clear) are one wake.
    pub fn wake(&self) {
        // It fails only after 2^64 calls: then a wake is pending.
        let _ = self.0.write(1);
    }

    /// Clears a pending wake. Returns whether there was one.
    pub fn clear(&self) -> bool {
        self.0.read().is_ok()
    }

    /// A descriptor to poll, readable while a wake is pending.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rings_cause_one_wakeup() {
        let waker = Waker::new().expect("an eventfd can be created");
        assert!(!waker.clear());
        waker.clone().wake();
        waker.wake();
        assert!(waker.clear());
        assert!(!waker.clear());
    }
}
