//! Wakes a waiting manager from another thread.

use crate::error::{LinuxError, Result};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// A bell (an eventfd). Clones ring the same one.
#[derive(Clone, Debug)]
pub struct Bell(Arc<EventFd>);

impl Bell {
    /// A bell that nobody has rung.
    pub fn new() -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_flags(flags).map_err(|errno| LinuxError::Call {
            call: "eventfd",
            errno,
        })?;
        Ok(Self(Arc::new(event)))
    }

    /// Wakes whoever waits, or the next who will. However often it is rung meanwhile, that is one
    /// wake.
    pub fn ring(&self) {
        // Fails only when it was rung 2^64 times: then it is ringing.
        let _ = self.0.write(1);
    }

    /// Stops it ringing; whether it did.
    pub fn answer(&self) -> bool {
        self.0.read().is_ok()
    }

    /// Something to poll: readable while it rings.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rung_twice_is_answered_once() {
        let bell = Bell::new().expect("an eventfd");
        assert!(!bell.answer());
        bell.clone().ring();
        bell.ring();
        assert!(bell.answer());
        assert!(!bell.answer());
    }
}
