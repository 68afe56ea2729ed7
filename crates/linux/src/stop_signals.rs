//! What wakes a waiting manager: signals, the end of managed processes, a waker.

use crate::error::{LinuxError, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// SIGINT, SIGQUIT, SIGTERM and SIGHUP as a descriptor to wait for. While it exists, they do not
/// kill the program.
#[derive(Debug)]
pub struct StopSignals {
    /// `None`: the surrounding program handles the signals.
    taken: Option<(SigSet, SignalFd)>,
}

/// Unblocks the signals in the program that `command` starts, because a child inherits its parent's
/// signal mask.
pub fn unblock_signals_in_child(command: &mut Command) {
    // SAFETY: between fork and exec only the signal mask is changed, by a system call.
    unsafe {
        command.pre_exec(|| {
            let taken = signal_set(&STOP_AND_RELOAD);
            Ok(taken.thread_unblock()?)
        });
    }
}

const STOP_AND_RELOAD: [Signal; 4] =
    [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP];

fn signal_set(signals: &[Signal]) -> SigSet {
    signals.iter().copied().collect()
}

fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action the call only fills in the current one, for which all zeros are
    // valid, too.
    let action = unsafe {
        libc::sigaction(signal as libc::c_int, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Makes the kernel keep ended children until this process has waited for them. It does not where
/// SIGCHLD is ignored, and exec keeps that. The pid of an ended child could then be another's.
pub fn keep_ended_children() {
    // SAFETY: the default action runs no code.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitResult {
    /// The timeout has passed.
    TimedOut,
    /// One of the descriptors became readable: its process has ended, or its waker was used.
    Readable,
    /// A signal arrived, with this number.
    Signal(i32),
}

impl StopSignals {
    /// Blocks SIGINT, SIGQUIT, SIGTERM and SIGHUP for all threads started from now on, and receives
    /// them here. SIGHUP is left alone where it is ignored, as under `nohup`: while blocked it
    /// would arrive.
    pub fn take_over() -> Result<Self> {
        let mut taken = signal_set(&STOP_AND_RELOAD);
        if is_ignored(Signal::SIGHUP) {
            taken.remove(Signal::SIGHUP);
        }
        Self::block_and_receive(taken)
    }

    /// As [`Self::take_over`], for a program that SIGHUP asks to read its configuration again. It
    /// receives SIGHUP even where it was ignored.
    pub fn take_over_with_reload() -> Result<Self> {
        Self::block_and_receive(signal_set(&STOP_AND_RELOAD))
    }

    fn block_and_receive(taken: SigSet) -> Result<Self> {
        let failed = LinuxError::wrap_errno("waiting for signals");
        taken.thread_block().map_err(failed)?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let fd = SignalFd::with_flags(&taken, flags).map_err(failed)?;
        let taken = Some((taken, fd));
        Ok(Self { taken })
    }

    /// The number of a signal that has arrived already.
    pub fn signal_so_far(&self) -> Option<i32> {
        match self.wait(&[], Duration::ZERO) {
            WaitResult::Signal(number) => Some(number),
            WaitResult::TimedOut | WaitResult::Readable => None,
        }
    }

    /// For a manager inside a program that handles signals itself.
    pub fn disabled() -> Self {
        Self { taken: None }
    }

    /// Waits for a signal, until one of `others` (pidfds, bells) becomes readable, or until
    /// `timeout` has passed.
    pub fn wait(&self, others: &[BorrowedFd<'_>], timeout: Duration) -> WaitResult {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let signals = self.taken.iter().map(|(_, fd)| fd.as_fd());
            let all = signals.chain(others.iter().copied());
            let mut fds: Vec<_> = all.map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            // poll counts milliseconds. Rounding up avoids a busy loop in the last one.
            let timeout =
                PollTimeout::try_from(left.as_micros().div_ceil(1000)).unwrap_or(PollTimeout::MAX);
            let ready = poll(&mut fds, timeout).unwrap_or(0);
            if ready == 0 {
                if Instant::now() >= deadline {
                    return WaitResult::TimedOut;
                }
                continue;
            }
            if let Some(Ok(Some(signal))) = self.taken.as_ref().map(|(_, fd)| fd.read_signal()) {
                return WaitResult::Signal(i32::try_from(signal.ssi_signo).unwrap_or(0));
            }
            let mut others = fds[fds.len() - others.len()..].iter();
            if others.any(|fd| fd.revents().is_some_and(|events| !events.is_empty())) {
                return WaitResult::Readable;
            }
        }
    }
}

impl Drop for StopSignals {
    fn drop(&mut self) {
        if let Some((taken, _)) = &self.taken {
            // It fails only for an invalid set.
            let _ = taken.thread_unblock();
        }
    }
}

/// Wakes a waiting manager from another thread, by an eventfd. All clones wake the same thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<EventFd>);

impl Waker {
    /// A waker that has not been used.
    pub fn new() -> Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_flags(flags).map_err(LinuxError::wrap_errno("eventfd"))?;
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
    use nix::sys::signal::{SigHandler, raise};

    const LONG: Duration = Duration::from_secs(600);

    /// One test, because to ignore a signal drops those of all threads.
    #[test]
    fn a_hangup_ends_the_wait_if_requested_or_not_ignored() {
        let signals = StopSignals::take_over_with_reload().expect("signals can be blocked");
        assert_eq!(signals.signal_so_far(), None);
        raise(Signal::SIGHUP).expect("the signal can be sent");
        assert_eq!(signals.signal_so_far(), Some(libc::SIGHUP));
        raise(Signal::SIGHUP).expect("the signal can be sent");
        assert_eq!(signals.wait(&[], LONG), WaitResult::Signal(libc::SIGHUP));
        let waited = signals.wait(&[], Duration::from_millis(1));
        assert_eq!(waited, WaitResult::TimedOut);
        drop(signals);

        let waits = || {
            let signals = StopSignals::take_over().expect("signals can be blocked");
            raise(Signal::SIGHUP).expect("the signal can be sent");
            signals.wait(&[], Duration::from_millis(100))
        };
        let set = |handler| {
            // SAFETY: the handlers of this test are the kernel's own.
            unsafe { nix::sys::signal::signal(Signal::SIGHUP, handler) }.expect("can be set");
        };
        set(SigHandler::SigDfl);
        assert_eq!(waits(), WaitResult::Signal(libc::SIGHUP));
        set(SigHandler::SigIgn);
        assert_eq!(waits(), WaitResult::TimedOut);
        set(SigHandler::SigDfl);
    }

    #[test]
    fn a_quit_is_received_and_ends_nothing() {
        let signals = StopSignals::take_over().expect("signals can be blocked");
        raise(Signal::SIGQUIT).expect("the signal can be sent");
        assert_eq!(signals.signal_so_far(), Some(libc::SIGQUIT));
    }

    #[test]
    fn two_rings_cause_one_wakeup() {
        let waker = Waker::new().expect("an eventfd can be created");
        assert!(!waker.clear());
        waker.clone().wake();
        waker.wake();
        assert!(waker.clear());
        assert!(!waker.clear());
    }

    #[test]
    fn a_descriptor_ends_the_wait() {
        let waker = Waker::new().expect("an eventfd can be created");
        waker.wake();
        let waited = StopSignals::disabled().wait(&[waker.fd()], LONG);
        assert_eq!(waited, WaitResult::Readable);
    }
}
