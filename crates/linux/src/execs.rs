//! Programs as they are started, heard of within a millisecond: a warm start can't wait for the next sweep.

use crate::bpf::execs::{ExecsSkel, ExecsSkelBuilder};
use crate::error::LinuxError;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use std::cell::RefCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

/// A program that was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// Its process.
    pub pid: u32,
    /// Its command name, of 15 bytes at most.
    pub command: String,
}

/// Hears of every program that is started from its creation until it is dropped.
pub struct Execs {
    // Before the program that writes to it.
    ring: RingBuffer<'static>,
    heard: Rc<RefCell<Vec<Started>>>,
    _skel: ExecsSkel<'static>,
}

impl fmt::Debug for Execs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Execs")
    }
}

impl Execs {
    /// Loads and attaches the program.
    ///
    /// # Errors
    /// BPF is missing or forbidden.
    pub fn attach() -> Result<Self, LinuxError> {
        let failed = |error: libbpf_rs::Error| {
            LinuxError::Bpf(format!("hearing of started programs: {error:#}"))
        };
        // As rarely as rules change.
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let open = ExecsSkelBuilder::default().open(storage).map_err(failed)?;
        let mut skel = open.load().map_err(failed)?;
        skel.attach().map_err(failed)?;
        let heard = Rc::new(RefCell::new(Vec::new()));
        let into = Rc::clone(&heard);
        let mut builder = RingBufferBuilder::new();
        let read = move |bytes: &[u8]| {
            into.borrow_mut().extend(parse(bytes));
            0
        };
        builder.add(&skel.maps.started, read).map_err(failed)?;
        Ok(Self {
            ring: builder.build().map_err(failed)?,
            heard,
            _skel: skel,
        })
    }

    /// Readable when there is something to hear.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the ring's, which lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }

    /// What was heard of since the last call.
    pub fn heard(&self) -> Vec<Started> {
        // What can't be read now is read the next time.
        let _ = self.ring.consume();
        self.heard.borrow_mut().drain(..).collect()
    }
}

/// One `struct started_program`.
fn parse(bytes: &[u8]) -> Option<Started> {
    let pid = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
    let command = bytes.get(4..)?.split(|byte| *byte == 0).next()?;
    Some(Started {
        pid,
        command: String::from_utf8_lossy(command).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read() {
        let mut bytes = 7u32.to_ne_bytes().to_vec();
        bytes.extend(b"java\0rubbish\0\0\0\0");
        let java = Started {
            pid: 7,
            command: "java".into(),
        };
        assert_eq!(parse(&bytes), Some(java));
        assert_eq!(parse(b"abc"), None);
    }
}
