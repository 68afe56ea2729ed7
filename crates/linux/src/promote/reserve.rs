//! A reserve of huge pages that are ready: touched, so backed by memory.
//!
//! A process of its own holds them ([`process`]). Its filling thread runs at idle priority, and a
//! page fault at idle priority can hold the `mmap_lock` of its process for seconds on a busy
//! machine. In the manager's address space that would stop the loop.
//!
//! Right before a call that needs a huge page, the reserve gives one back. The kernel puts it on
//! the list of free pages of that CPU and hands it out again, so the call is made on the same CPU.

mod process;

use crate::error::{LinuxError, Result};
use crate::mutex::lock;
use crate::promote::target_call::{fork_helper_process, kill_helper, wait_until_readable};
use hawkeye_policy::{ReserveState, ReserveTarget};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use nix::unistd::Pid;
use process::{GIVE_BACK, ReserveSharedState, SHRINK};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longest wait for a huge page. The call is then made without one. Tests wait longer, because they
/// check what is given on any machine.
const WAIT: Duration = Duration::from_millis(if cfg!(test) { 3_000 } else { 5 });

/// The reserve of this process. The pages are the machine's, so there is only one.
pub(crate) static RESERVE: Reserve = Reserve::new();

/// A reserve of huge pages. Its process is started when the first page is wanted.
pub(crate) struct Reserve {
    /// Never locked while a thread waits for a page: the manager's loop locks it.
    running: Mutex<Option<Arc<ReserveProcess>>>,
    /// Locked while a thread waits for a page: answers go to one thread at a time.
    giving: Mutex<()>,
    /// The process, or 0.
    pid: AtomicU32,
}

struct ReserveProcess {
    pid: Pid,
    socket: OwnedFd,
    shared: &'static ReserveSharedState,
    /// Number of the last request; answers carry it.
    request: AtomicU32,
}

impl Reserve {
    const fn new() -> Self {
        Self { running: Mutex::new(None), giving: Mutex::new(()), pid: AtomicU32::new(0) }
    }

    pub(crate) fn is_reserve_pid(&self, pid: u32) -> bool {
        self.pid.load(Ordering::Relaxed) == pid
    }

    pub(crate) fn state(&self) -> ReserveState {
        let state = lock(&self.running).as_ref().map(|running| running.shared.state());
        state.unwrap_or_default()
    }

    /// Sets how many huge pages it holds; returns at once. `most` is the limit of all later
    /// targets.
    pub(crate) fn set_target(&self, target: ReserveTarget, most: u32) -> Result<()> {
        let mut running = lock(&self.running);
        let reserve = match &mut *running {
            Some(reserve) => reserve,
            None if target.pages == 0 => return Ok(()),
            empty => {
                let started = ReserveProcess::start(most)?;
                self.pid.store(started.pid.as_raw().unsigned_abs(), Ordering::Relaxed);
                empty.insert(Arc::new(started))
            }
        };
        let result = match reserve.shared.set_target(target) {
            true => reserve.send_request(SHRINK).map(drop),
            false => Ok(()),
        };
        if result.is_err() {
            self.end_reserve_process(&mut running);
        }
        result
    }

    /// Gives one huge page back to the kernel. Returns the CPU that has it on its list of free
    /// pages; `None` if the reserve is empty, or busy.
    pub(crate) fn give_back_page(&self) -> Option<u32> {
        let _giving = self.giving.try_lock().ok()?;
        let reserve = lock(&self.running).clone()?;
        if reserve.shared.state().held == 0 {
            return None;
        }
        match reserve.give_back_page() {
            Ok(cpu) => cpu,
            Err(error) => {
                tracing::warn!("the reserve of huge pages was lost: {error}");
                let mut running = lock(&self.running);
                // Another process may have been started meanwhile.
                if running.as_ref().is_some_and(|now| Arc::ptr_eq(now, &reserve)) {
                    self.end_reserve_process(&mut running);
                }
                None
            }
        }
    }

    /// Ends its process, which gives all huge pages back. A thread that waits for one of them may
    /// delay that.
    pub(crate) fn stop(&self) {
        self.end_reserve_process(&mut lock(&self.running));
    }

    fn end_reserve_process(&self, running: &mut Option<Arc<ReserveProcess>>) {
        *running = None;
        self.pid.store(0, Ordering::Relaxed);
    }
}

fn reserve_call_error(errno: Errno) -> LinuxError {
    LinuxError::wrap_errno("asking the process that holds the reserve of huge pages")(errno)
}

impl ReserveProcess {
    fn start(most: u32) -> Result<Self> {
        let failed = LinuxError::wrap_errno("starting a process for the reserve of huge pages");
        let shared = ReserveSharedState::map().map_err(failed)?;
        let serve = |socket, manager| process::serve_manager(socket, manager, shared, most);
        // SAFETY: `process.rs` keeps to the contract.
        let (pid, socket) = unsafe { fork_helper_process(serve) }.map_err(failed)?;
        Ok(Self { pid, socket, shared, request: AtomicU32::new(0) })
    }

    /// Sends a request; returns its number.
    fn send_request(&self, call: u32) -> Result<u32> {
        let number = self.request.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let packet = [call.to_ne_bytes(), number.to_ne_bytes()].concat();
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let sent = send(self.socket.as_raw_fd(), &packet, flags);
        sent.map(|_| number).map_err(reserve_call_error)
    }

    /// Only one thread at a time may call it.
    fn give_back_page(&self) -> Result<Option<u32>> {
        let number = self.send_request(GIVE_BACK)?;
        let deadline = Instant::now() + WAIT;
        loop {
            if !wait_until_readable(self.socket.as_fd(), deadline).map_err(reserve_call_error)? {
                return Ok(None);
            }
            let mut packet = [0; 8];
            let length = recv(self.socket.as_raw_fd(), &mut packet, MsgFlags::empty());
            if length.map_err(reserve_call_error)? != packet.len() {
                return Err(reserve_call_error(Errno::ECONNRESET));
            }
            let [a, b, c, d, request @ ..] = packet;
            // An answer to an earlier request, for which nothing waits.
            if u32::from_ne_bytes(request) == number {
                return Ok(u32::try_from(i32::from_ne_bytes([a, b, c, d])).ok());
            }
        }
    }
}

impl Drop for ReserveProcess {
    fn drop(&mut self) {
        kill_helper(self.pid);
        self.shared.unmap_self();
    }
}

#[cfg(test)]
mod tests;
