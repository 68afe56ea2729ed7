//! What a waiting manager is woken by: signals, the end of what is managed, a bell.

pub mod bell;

use crate::error::{LinuxError, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// SIGINT and SIGTERM, and SIGHUP where asked for, as something to wait for. While it exists they
/// don't kill the program.
#[derive(Debug)]
pub struct StopSignals {
    taken: SigSet,
    /// None: somebody else takes care of the signals.
    fd: Option<SignalFd>,
}

/// Has the program that `command` starts get the signals again: a child inherits what its parent
/// holds back.
pub fn let_signals_through(command: &mut Command) {
    // SAFETY: between fork and exec only the signal mask is changed, by a system call.
    unsafe {
        command.pre_exec(|| {
            let taken = set(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
            Ok(taken.thread_unblock()?)
        });
    }
}

fn set(signals: &[Signal]) -> SigSet {
    signals.iter().copied().collect()
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// The time is up.
    TimedOut,
    /// One of the descriptors became readable: its process has ended, or its bell rings.
    Readable,
    /// This signal came.
    Signal(i32),
}

impl StopSignals {
    /// Takes SIGINT and SIGTERM over for all threads started from now on.
    pub fn take_over() -> Result<Self> {
        Self::take(set(&[Signal::SIGINT, Signal::SIGTERM]))
    }

    /// Takes SIGHUP over as well, which then asks for the configuration to be read again.
    pub fn take_over_with_reload() -> Result<Self> {
        Self::take(set(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]))
    }

    fn take(taken: SigSet) -> Result<Self> {
        let failed = |errno| LinuxError::Call {
            call: "waiting for signals",
            errno,
        };
        taken.thread_block().map_err(failed)?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let fd = SignalFd::with_flags(&taken, flags).map_err(failed)?;
        Ok(Self {
            taken,
            fd: Some(fd),
        })
    }

    /// For a manager inside a program that takes care of signals itself.
    pub fn left_alone() -> Self {
        Self {
            taken: SigSet::empty(),
            fd: None,
        }
    }

    /// Waits for a signal, for one of `others` (pidfds, bells) to become readable, or for the end of
    /// `timeout`.
    pub fn wait(&self, others: &[BorrowedFd<'_>], timeout: Duration) -> Waited {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let signals = self.fd.iter().map(AsFd::as_fd);
            let mut fds: Vec<_> = signals
                .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
                .collect();
            let signals = fds.len();
            fds.extend(others.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)));
            // poll counts in milliseconds: round up, so as not to spin through the last one.
            let timeout =
                PollTimeout::try_from(left.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX);
            let ready = poll(&mut fds, timeout).unwrap_or(0);
            if ready == 0 {
                if Instant::now() >= deadline {
                    return Waited::TimedOut;
                }
                continue;
            }
            if let Some(Ok(Some(signal))) = self.fd.as_ref().map(SignalFd::read_signal) {
                return Waited::Signal(i32::try_from(signal.ssi_signo).unwrap_or(0));
            }
            if fds[signals..]
                .iter()
                .any(|fd| fd.revents().is_some_and(|events| !events.is_empty()))
            {
                return Waited::Readable;
            }
        }
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        if self.fd.is_none() {
            return;
        }
        // Fails only for an invalid set.
        let _ = self.taken.thread_unblock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::bell::Bell;
    use nix::sys::signal::raise;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_hangup_is_something_to_wait_for_where_asked() {
        let signals = StopSignals::take_over_with_reload().expect("signals can be had");
        raise(Signal::SIGHUP).expect("it can be sent");
        assert_eq!(signals.wait(&[], LONG), Waited::Signal(libc::SIGHUP));
        let waited = signals.wait(&[], Duration::from_millis(1));
        assert_eq!(waited, Waited::TimedOut);
    }

    #[test]
    fn a_descriptor_ends_the_wait() {
        let bell = Bell::new().expect("an eventfd");
        bell.ring();
        let waited = StopSignals::left_alone().wait(&[bell.fd()], LONG);
        assert_eq!(waited, Waited::Readable);
    }
}
