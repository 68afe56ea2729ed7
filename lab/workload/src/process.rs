//! Facts about a workload's own process, and forking.

use crate::console::{Console, ConsoleInput};
use crate::error::{WorkloadError, WorkloadResult};
use crate::memory::{PAGE, WorkloadMemory};
use crate::protocol::{WorkloadEvent, WorkloadReady, WorkloadRequest};
use crate::rng::WorkloadRng;
use hdrhistogram::Histogram;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// This process's report of its memory once that is present (see [`WorkloadReady`]).
pub(crate) fn ready_report(start: u64, bytes: u64, hot_start: u64) -> WorkloadReady {
    WorkloadReady {
        pid: std::process::id(),
        start,
        bytes,
        hot_start,
        huge_bytes: own_huge_bytes_or_zero(),
        execs: 0,
    }
}

/// Reports that memory is present, none of it hot.
pub(crate) fn report_ready(console: &mut Console, start: u64, bytes: u64) -> WorkloadResult<()> {
    console.emit_event(&WorkloadEvent::Ready(ready_report(start, bytes, start + bytes)))
}

pub(crate) fn resident_memory_event() -> WorkloadResult<WorkloadEvent> {
    Ok(WorkloadEvent::Rss {
        rss_bytes: hawkeye_linux::processes::process::rss_bytes(std::process::id())?,
        huge_bytes: own_huge_bytes_or_zero(),
    })
}

/// False if there is a reason to end instead. `until` names what the workload does after `go`.
pub(crate) fn wait_for_go(console: &mut Console, until: &str) -> WorkloadResult<bool> {
    loop {
        let message = match console.wait_for_input() {
            ConsoleInput::Request(WorkloadRequest::Go) => return Ok(true),
            ConsoleInput::Request(WorkloadRequest::Quit) | ConsoleInput::End => return Ok(false),
            ConsoleInput::Request(other) => {
                format!("this workload cannot {other} before it has {until}")
            }
            ConsoleInput::Bad(bad) => bad.to_string(),
        };
        console.emit_event(&WorkloadEvent::Error { message })?;
    }
}

/// Answers requests for the process's size until it gets `quit`, or its input ends.
pub(crate) fn serve_until_quit(console: &mut Console) -> WorkloadResult<()> {
    loop {
        match console.wait_for_input() {
            ConsoleInput::Request(WorkloadRequest::Quit) | ConsoleInput::End => return Ok(()),
            ConsoleInput::Request(WorkloadRequest::Rss) => {
                console.emit_event(&resident_memory_event()?)?
            }
            other => console.refuse_input(other)?,
        }
    }
}

/// The work of a thread.
pub(crate) type Worker<'a> = Box<dyn FnOnce() -> WorkloadResult<()> + Send + 'a>;

/// The first worker that ends, even with an error, ends the others, which check the flag.
pub(crate) fn run_workers_until_first_ends<'a, const N: usize>(
    console: &mut Console,
    over: &'a AtomicBool,
    workers: [Worker<'a>; N],
    answer: impl Fn(WorkloadRequest) -> Option<WorkloadEvent>,
) -> WorkloadResult<()> {
    let end = |result| {
        over.store(true, Ordering::Relaxed);
        result
    };
    std::thread::scope(|scope| {
        let workers = workers.map(|work| scope.spawn(move || end(work())));
        let answered = end(console.answer_requests_until_over(over, answer));
        let joined = workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.chain([answered]).collect()
    })
}

/// Writes to each of the first pages.
pub(crate) fn write_each_page(memory: &mut WorkloadMemory, bytes: usize) {
    for offset in (0..bytes).step_by(PAGE) {
        memory.write_word(offset, offset as u64 | 1);
    }
}

/// For nanoseconds, to three decimal digits.
pub(crate) fn new_nanosecond_histogram() -> WorkloadResult<Histogram<u64>> {
    Histogram::new(3).map_err(WorkloadError::from_histogram_error)
}

/// Adds a time, however long, to such a histogram.
pub(crate) fn record_time(times: &mut Histogram<u64>, took: Duration) -> WorkloadResult<()> {
    let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
    times.record(nanoseconds).map_err(WorkloadError::from_histogram_error)
}

pub(crate) fn read_at_random_until_over(
    memory: &WorkloadMemory,
    over: &AtomicBool,
) -> WorkloadResult<()> {
    /// Reads between two checks of the flag.
    const BATCH: usize = 8192;
    let mut rng = WorkloadRng::new(1, 0);
    while !over.load(Ordering::Relaxed) {
        for _ in 0..BATCH {
            memory.read_word(rng.draw_below(memory.bytes() / 8) * 8);
        }
    }
    Ok(())
}

/// Anonymous memory of the process that huge pages map, in bytes; 0 where the kernel has no THP.
pub(crate) fn own_huge_bytes_or_zero() -> u64 {
    hawkeye_linux::processes::process::own_huge_bytes().unwrap_or(0)
}

/// A forked child that works until this is dropped.
pub(crate) struct ForkedWorker(libc::pid_t);

impl ForkedWorker {
    /// Forks a child that runs `work`, and only waits if that returns.
    ///
    /// # Safety
    /// As for [`ForkedChild::fork`].
    pub(crate) unsafe fn fork(work: impl FnOnce()) -> WorkloadResult<Self> {
        // SAFETY: the child runs only what the caller vouches for, makes async-signal-safe calls,
        // and never returns.
        match unsafe { libc::fork() } {
            -1 => Err(WorkloadError::wrap_system_error("fork")(io::Error::last_os_error())),
            0 => {
                // SAFETY: async-signal-safe; if the parent is killed, its children end with it.
                unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
                work();
                loop {
                    // SAFETY: async-signal-safe.
                    unsafe { libc::pause() };
                }
            }
            pid => Ok(Self(pid)),
        }
    }
}

impl Drop for ForkedWorker {
    fn drop(&mut self) {
        let mut status = 0;
        // SAFETY: a child of ours for which nothing else waits; `status` is ours.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, &raw mut status, 0);
        }
    }
}

/// A forked child of this process; dropping it waits for its end.
pub(crate) struct ForkedChild(libc::pid_t);

/// Seconds after which a child that has not finished is stuck and is ended.
const CHILD_SECONDS: u32 = 120;

impl ForkedChild {
    /// Forks a child that runs `work` and exits with the status that it returns.
    ///
    /// # Safety
    /// Other threads may hold any lock at the fork, so `work` must restrict itself to what is
    /// async-signal-safe: reads and writes of memory, no allocation, no lock, no output.
    pub(crate) unsafe fn fork(work: impl FnOnce() -> u8) -> io::Result<Self> {
        // SAFETY: the child runs only what the caller vouches for, and async-signal-safe calls.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                let panicked = ExitOnDrop;
                // SAFETY: async-signal-safe; it ends a child that hangs.
                unsafe { libc::alarm(CHILD_SECONDS) };
                let status = work();
                std::mem::forget(panicked);
                // SAFETY: async-signal-safe, and does not return.
                unsafe { libc::_exit(status.into()) }
            }
            pid => Ok(Self(pid)),
        }
    }

    pub(crate) fn wait(self) -> io::Result<i32> {
        let status = self.reap();
        std::mem::forget(self);
        status
    }

    fn reap(&self) -> io::Result<i32> {
        let mut status = 0;
        loop {
            // SAFETY: the pid is that of a child for which nothing else waits; `status` is ours.
            if unsafe { libc::waitpid(self.0, &raw mut status, 0) } == self.0 {
                return Ok(status);
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

impl Drop for ForkedChild {
    fn drop(&mut self) {
        // Only on an error path: the child ends by itself, and its status no longer matters.
        let _ = self.reap();
    }
}

/// Ends a child that panics before it unwinds into its parent's code.
struct ExitOnDrop;

impl Drop for ExitOnDrop {
    fn drop(&mut self) {
        // SAFETY: async-signal-safe, and does not return.
        unsafe { libc::_exit(101) }
    }
}

/// The exit status in a wait status; `None` if a signal ended the process.
pub(crate) fn exit_code_of_wait_status(wait_status: i32) -> Option<i32> {
    libc::WIFEXITED(wait_status).then(|| libc::WEXITSTATUS(wait_status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_returns_its_status() {
        // SAFETY: the child computes nothing.
        let child = unsafe { ForkedChild::fork(|| 7) }.unwrap();
        assert_eq!(exit_code_of_wait_status(child.wait().unwrap()), Some(7));
    }

    /// Up to 2.047 us a new histogram has room. Clamped, a longer time would count as 2 ns.
    #[test]
    fn times_of_any_length_are_recorded() {
        for took in [30, 2_100, 5_000_000, 20_000_000_000] {
            let mut times = new_nanosecond_histogram().unwrap();
            record_time(&mut times, Duration::from_nanos(took)).unwrap();
            assert!(times.max().abs_diff(took) <= took / 1000, "{took}: {}", times.max());
        }
    }
}
