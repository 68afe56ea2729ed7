//! Work on a process that may have to wait for its locks. A thread does it, and the loop polls it.

use crate::error::{LinuxError, Result};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two polls, in which the loop does other work.
pub(in crate::sample) const POLL_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(in crate::sample) struct BackgroundTask<T> {
    answer: Receiver<T>,
    /// Time of the loop's first poll.
    requested_at: Option<Instant>,
}

impl<T: Send + 'static> BackgroundTask<T> {
    pub(in crate::sample) fn spawn(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let (sender, answer) = sync_channel(1);
        thread::spawn(move || {
            // The receiver may be gone by then.
            let _ = sender.send(work());
        });
        Self { answer, requested_at: None }
    }

    /// The result; `None` while the work is under way. Fails from `patience` after the first poll
    /// on, until there is a result. `pid` is the process in the error.
    pub(in crate::sample) fn poll(&mut self, pid: u32, patience: Duration) -> Result<Option<T>> {
        match self.answer.try_recv() {
            Ok(done) => Ok(Some(done)),
            Err(TryRecvError::Disconnected) => Err(LinuxError::NoSuchProcess(pid)),
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
