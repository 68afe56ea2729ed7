//! A stream whose other side may stall: whatever is read or written, it is over by a deadline.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// A stream with time limits for single calls.
pub trait Timed: Read + Write {
    /// Limits the next reads and writes.
    fn set_timeouts(&self, limit: Duration) -> io::Result<()>;
}

impl Timed for UnixStream {
    fn set_timeouts(&self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit))?;
        self.set_write_timeout(Some(limit))
    }
}

impl Timed for TcpStream {
    fn set_timeouts(&self, limit: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(limit))?;
        self.set_write_timeout(Some(limit))
    }
}

/// Reads and writes until a deadline. A limit for each call alone would let a client that sends a byte
/// now and then stay for ever.
pub struct UntilDeadline<S> {
    stream: S,
    deadline: Instant,
}

impl<S: Timed> UntilDeadline<S> {
    /// From now on, for this long.
    pub fn new(stream: S, limit: Duration) -> Self {
        Self {
            stream,
            deadline: Instant::now() + limit,
        }
    }

    /// Starts the time anew.
    pub fn extend(&mut self, limit: Duration) {
        self.deadline = Instant::now() + limit;
    }

    fn ready(&mut self) -> io::Result<&mut S> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_timeouts(left)?;
        Ok(&mut self.stream)
    }
}

impl<S: Timed> Read for UntilDeadline<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.ready()?.read(buffer)
    }
}

impl<S: Timed> Write for UntilDeadline<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.ready()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
