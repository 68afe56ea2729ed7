//! Wakes a waiting manager from another thread.

use crate::error::{LinuxError, Result};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// A bell, which is an eventfd. Clones ring the same bell.
#[derive(Clone, Debug)]
pub struct Bell(Arc<EventFd>);

impl Bell {
    /// A bell that has not been rung.
    pub fn new() -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_flags(flags).map_err(LinuxError::call("eventfd"))?;
        Ok(Self(Arc::new(event)))
    }

    /// Wakes the thread that waits, or the next one that will. Several rings before the answer are
    /// one wake.
    pub fn ring(&self) {
        // It fails only after 2^64 rings: then the bell is ringing.
        let _ = self.0.write(1);
    }

    /// Silences the bell. Returns whether it was ringing.
    pub fn answer(&self) -> bool {
        self.0.read().is_ok()
    }

    /// A descriptor to poll, readable while the bell rings.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rings_cause_one_wakeup() {
        let bell = Bell::new().expect("an eventfd can be created");
        assert!(!bell.answer());
        bell.clone().ring();
        bell.ring();
        assert!(bell.answer());
        assert!(!bell.answer());
    }
}
