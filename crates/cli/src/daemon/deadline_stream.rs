//! A stream with a deadline for all reads and writes, because the other side may stall.

use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Has one deadline, not a limit per call: a client that sends a byte now and then could stay.
pub struct DeadlineStream<S> {
    stream: S,
    deadline: Instant,
}

impl<S: AsFd> DeadlineStream<S> {
    pub fn new(stream: S, limit: Duration) -> Self {
        Self { stream, deadline: Instant::now() + limit }
    }

    pub fn restart_deadline(&mut self, limit: Duration) {
        self.deadline = Instant::now() + limit;
    }

    fn set_timeouts_to_time_left(&mut self) -> io::Result<&mut S> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        // A timeout of 0 would mean no limit (socket(7)).
        let limit = TimeVal::microseconds(left.as_micros().max(1) as i64);
        setsockopt(&self.stream, sockopt::ReceiveTimeout, &limit)?;
        setsockopt(&self.stream, sockopt::SendTimeout, &limit)?;
        Ok(&mut self.stream)
    }
}

impl<S: AsFd + Read> Read for DeadlineStream<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.set_timeouts_to_time_left()?.read(buffer)
    }
}

impl<S: AsFd + Write> Write for DeadlineStream<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.set_timeouts_to_time_left()?.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
pub(super) mod tests;
