//! Reports of a BPF program through its ring buffer, and other records of the kernel.

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

/// Decodes bytes from the kernel as numbers of 8 bytes each.
pub(crate) fn decode_u64s(bytes: &[u8]) -> impl Iterator<Item = u64> {
    let words = bytes.chunks_exact(8);
    words.map(|word| word.try_into().map_or(0, u64::from_ne_bytes))
}

/// The reading end of a ring buffer. Drop it before the program that writes to it.
pub(crate) struct RingBufferReader<T> {
    ring: RingBuffer<'static>,
    read: Rc<RefCell<Vec<T>>>,
}

impl<T: 'static> RingBufferReader<T> {
    /// Reads the ring buffer `map`. `parse` decodes one report; `None`: the bytes are no report.
    /// Fails if the map is no ring buffer, or cannot be mapped.
    pub(crate) fn for_map(
        map: &dyn MapCore,
        parse: fn(&[u8]) -> Option<T>,
    ) -> libbpf_rs::Result<Self> {
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

    /// A descriptor that is readable when there are reports to take.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the ring's, which lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }

    pub(crate) fn take_reports(&self) -> Vec<T> {
        // Reports that cannot be read now are read the next time.
        let _ = self.ring.consume();
        self.read.take()
    }

    /// Reports since the last call; waits at most `most` for the first one.
    pub(crate) fn wait_for_reports(&self, most: Duration) -> Vec<T> {
        // An interrupted wait only ends early.
        let _ = self.ring.poll(most);
        self.read.take()
    }
}
