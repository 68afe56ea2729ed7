//! Calls that take a target's locks, made by a helper process.
//!
//! A target can hold its `mmap_lock` without limit, for example in a read of its own memory from a
//! file system that never answers. `process_madvise` then waits in the kernel, and no signal ends
//! that wait. A thread in such a wait keeps its whole process from ending, so a separate process
//! makes the calls. The manager waits for the answer up to a deadline, and abandons the helper if
//! none comes.
//!
//! ```text
//!  CallHelperPool --TargetRequest--> CallHelper --RawRequest--> helper_process.rs: the system call
//!    (call_helper_pool.rs)                   (helper_messages.rs)               |
//!         ^                                                                     |
//!         +------------------------------ CallResult ---------------------------+
//! ```

mod call_helper_pool;
mod helper_messages;
mod helper_process;
mod target_operations;

pub use call_helper_pool::{CallHelperPool, LateCall};
pub(crate) use call_helper_pool::{CallTimingStatistics, PAUSE_FOR_LATE_CALL, SERIES_TIME};
pub use helper_messages::{CallResult, TargetRequest};
pub(crate) use helper_process::{HELPER_NAME, SOCKET, become_helper, exit_process, read_clock_ns};
pub use target_operations::AccessBitClearResult;
pub(crate) use target_operations::ZERO_CHECKED_PER_CALL;

use crate::error::{LinuxError, Result};
use crate::mutex::lock;
use helper_messages::receive_result_packet;
use helper_process::serve_requests;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair,
};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A helper process and the socket to it. The helper makes one call at a time.
#[derive(Debug)]
pub struct CallHelper {
    socket: OwnedFd,
    helper: Pid,
    /// Data received so far of an answer in several packets.
    received: Vec<u8>,
}

/// Helpers that were killed in the middle of a call. They end when the kernel finishes that call.
static LEFT_BEHIND: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

impl CallHelper {
    /// Starts a helper.
    pub fn start() -> Result<Self> {
        reap_ended_helpers();
        // SAFETY: `helper_process.rs` keeps to the contract.
        let started =
            unsafe { fork_helper_process(|socket, manager| serve_requests(socket, manager)) };
        let (helper, socket) = started.map_err(helper_start_error)?;
        Ok(Self { socket, helper, received: Vec::new() })
    }

    /// Makes the helper start a call. No other call may be made before its answer has come.
    pub fn send_request(&mut self, request: &TargetRequest<'_>) -> Result<()> {
        let passed = request.passed.map(|descriptor| [descriptor.as_raw_fd()]);
        let rights = passed.as_ref().map(|it| ControlMessage::ScmRights(it));
        let control = rights.as_slice();
        let packet = [IoSlice::new(request.raw.as_bytes())];
        let socket = self.socket.as_raw_fd();
        let sent = sendmsg::<()>(socket, &packet, control, MsgFlags::MSG_NOSIGNAL, None);
        sent.map(drop).map_err(helper_call_error)
    }

    /// The answer to the call under way, if it comes within `wait`; a later call can return it too.
    pub fn wait_for_result(&mut self, wait: Duration) -> Result<Option<CallResult>> {
        let deadline = Instant::now() + wait;
        loop {
            if !wait_until_readable(self.socket.as_fd(), deadline).map_err(helper_call_error)? {
                return Ok(None);
            }
            let received = receive_result_packet(self.socket.as_fd());
            let (mut answer, is_last) = received.map_err(helper_call_error)?;
            self.received.append(&mut answer.data);
            if is_last {
                answer.data = std::mem::take(&mut self.received);
                return Ok(Some(answer));
            }
        }
    }
}

/// Forks a process that serves this one. Returns it and the socket to it. `serve` gets the socket's
/// other end and this process's id.
///
/// # Safety
/// `serve` makes plain system calls on memory of its own stack and of its own mappings: no
/// allocation, no lock, no unwinding.
pub(crate) unsafe fn fork_helper_process(
    serve: impl FnOnce(RawFd, u32),
) -> nix::Result<(Pid, OwnedFd)> {
    let (family, flags) = (AddressFamily::Unix, SockFlag::SOCK_CLOEXEC);
    let (ours, theirs) = socketpair(family, SockType::SeqPacket, None, flags)?;
    let manager = std::process::id();
    // SAFETY: the child calls only `serve`, by the contract above.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok((child, ours)),
        ForkResult::Child => {
            serve(theirs.as_raw_fd(), manager);
            exit_process()
        }
    }
}

/// Waits until there is something to read, or until the deadline; returns whether there is.
pub(crate) fn wait_until_readable(socket: BorrowedFd<'_>, deadline: Instant) -> nix::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left_ms = left.as_micros().div_ceil(1000);
        let timeout = PollTimeout::try_from(left_ms).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(socket, PollFlags::POLLIN)], timeout) {
            Ok(0) if left.is_zero() => return Ok(false),
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(errno) => return Err(errno),
        }
    }
}

fn helper_start_error(errno: Errno) -> LinuxError {
    let doing = "starting a helper process for calls into processes";
    LinuxError::HelperFailed { doing, errno }
}

fn helper_call_error(errno: Errno) -> LinuxError {
    let doing = "sending a call to the helper process";
    LinuxError::HelperFailed { doing, errno }
}

impl Drop for CallHelper {
    fn drop(&mut self) {
        kill_helper(self.helper);
    }
}

/// Ends a helper. It is reaped now, or when a later one starts or ends.
pub(crate) fn kill_helper(helper: Pid) {
    // This fails only if the helper has died already.
    let _ = kill(helper, Signal::SIGKILL);
    lock(&LEFT_BEHIND).push(helper);
    reap_ended_helpers();
}

fn reap_ended_helpers() {
    let status = |helper: &Pid| waitpid(*helper, Some(WaitPidFlag::WNOHANG));
    lock(&LEFT_BEHIND).retain(|helper| matches!(status(helper), Ok(WaitStatus::StillAlive)));
}

#[cfg(test)]
mod tests;
