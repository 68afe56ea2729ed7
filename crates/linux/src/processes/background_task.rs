//! Work on a process that may have to wait for its locks. A thread does it, and is abandoned where
//! that takes too long.

use crate::error::{LinuxError, Result};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two polls, in which the loop does other work.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The reason for a task without a result.
const NO_THREAD: &str = "a thread that reads a process could not be started, or has failed";

#[derive(Debug)]
pub(crate) struct BackgroundTask<T> {
    answer: Receiver<T>,
    /// Time of the loop's first poll.
    requested_at: Option<Instant>,
}

impl<T: Send + 'static> BackgroundTask<T> {
    pub(crate) fn spawn(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let (sender, answer) = sync_channel(1);
        // Where no thread can be started, the channel is closed.
        let _ = thread::Builder::new().name("hawkeye-reader".into()).spawn(move || {
            // The receiver may be gone by then.
            let _ = sender.send(work());
        });
        Self { answer, requested_at: None }
    }

    /// The result, if there is one before `deadline`. `pid` is the process in the error.
    pub(crate) fn wait_until(self, pid: u32, deadline: Instant) -> Result<T> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.answer.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => LinuxError::NotAnswering(pid),
            RecvTimeoutError::Disconnected => LinuxError::NotMeasured(NO_THREAD),
        })
    }

    /// The result; `None` while the work is under way. Fails from `patience` after the first poll
    /// on, until there is a result. `pid` is the process in the error.
    pub(crate) fn poll(&mut self, pid: u32, patience: Duration) -> Result<Option<T>> {
        match self.answer.try_recv() {
            Ok(done) => Ok(Some(done)),
            Err(TryRecvError::Disconnected) => Err(LinuxError::NotMeasured(NO_THREAD)),
            Err(TryRecvError::Empty) => {
                let asked = *self.requested_at.get_or_insert_with(Instant::now);
                if asked.elapsed() < patience {
                    return Ok(None);
                }
                Err(LinuxError::NotAnswering(pid))
            }
        }
    }
}

/// How long some processes are read, one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadLimits {
    /// A process that does not answer within this time is given up.
    pub(crate) patience: Duration,
    /// No process is read from then on.
    pub(crate) deadline: Instant,
    /// After each read it rests for this many times as long.
    pub(crate) rest_per_read: u32,
}

impl ReadLimits {
    /// Reads the processes with these pids, each in a thread of its own. `visit` gets what was
    /// read. Of a process that is not reached in time, it gets `NotAnswering`.
    pub(crate) fn read_processes<P, T: Send + 'static>(
        self,
        processes: impl Iterator<Item = (u32, P)>,
        read: impl Fn(u32) -> Result<T> + Clone + Send + 'static,
        mut visit: impl FnMut(P, Result<T>),
    ) {
        for (pid, process) in processes {
            let begun = Instant::now();
            if begun >= self.deadline {
                visit(process, Err(LinuxError::NotAnswering(pid)));
                continue;
            }
            let read = read.clone();
            let until = self.deadline.min(begun + self.patience);
            let answer = BackgroundTask::spawn(move || read(pid)).wait_until(pid, until);
            visit(process, answer.and_then(|read| read));
            let rest = begun.elapsed() * self.rest_per_read;
            thread::sleep(rest.min(self.deadline.saturating_duration_since(Instant::now())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_work_fails_each_poll_until_there_is_a_result() {
        let (finish, finished) = sync_channel(1);
        let mut task = BackgroundTask::spawn(move || finished.recv().is_ok());
        let mut poll = || task.poll(7, Duration::from_millis(1));
        while poll().is_ok_and(|done| done.is_none()) {}
        // Two parts of the loop may poll in turn. Neither starts the time of the other anew.
        assert!(matches!(poll(), Err(LinuxError::NotAnswering(7))));
        finish.send(()).expect("the work goes on");
        while matches!(poll(), Err(LinuxError::NotAnswering(_))) {}
    }
}
