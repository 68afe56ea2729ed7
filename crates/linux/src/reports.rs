//! What a BPF program reports through its ring buffer.

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

/// The reading end of a ring buffer. To be dropped before the program that writes to it.
pub(crate) struct Reports<T> {
    ring: RingBuffer<'static>,
    read: Rc<RefCell<Vec<T>>>,
}

impl<T: 'static> Reports<T> {
    /// Of the ring buffer `map`; `parse` makes something of the bytes of one report, or nothing of what is no report.
    ///
    /// # Errors
    /// The map is no ring buffer, or can't be mapped.
    pub(crate) fn of(
        map: &dyn MapCore,
        parse: fn(&[u8]) -> Option<T>,
    ) -> Result<Self, libbpf_rs::Error> {
        let read = Rc::new(RefCell::new(Vec::new()));
        let into = Rc::clone(&read);
        let mut builder = RingBufferBuilder::new();
        builder.add(map, move |bytes| {
            into.borrow_mut().extend(parse(bytes));
            0
        })?;
        let ring = builder.build()?;
        Ok(Self { ring, read })
    }

    /// Readable when there is something to take.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the ring's, which lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }

    /// What was reported since the last call.
    pub(crate) fn take(&self) -> Vec<T> {
        // What can't be read now is read the next time.
        let _ = self.ring.consume();
        self.read.take()
    }

    /// The same; waits for the first report for so long at the most.
    pub(crate) fn wait(&self, most: Duration) -> Vec<T> {
        // An interrupted wait is a short one.
        let _ = self.ring.poll(most);
        self.read.take()
    }
}
