//! Work on a process that may have to wait for its locks, done by a thread that the loop asks from time to time.

use crate::error::{LinuxError, Result};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long the loop does something else before it asks again.
pub(super) const ASK_AGAIN: Duration = Duration::from_millis(5);

/// Work under way.
#[derive(Debug)]
pub(super) struct Task<T> {
    answer: Receiver<T>,
    /// When the loop began to ask.
    asked: Option<Instant>,
}

impl<T: Send + 'static> Task<T> {
    /// Begins it.
    pub(super) fn begin(work: impl FnOnce() -> T + Send + 'static) -> Self {
        let (sender, answer) = sync_channel(1);
        thread::spawn(move || {
            // Whoever wanted it may be gone by then.
            let _ = sender.send(work());
        });
        Self {
            answer,
            asked: None,
        }
    }

    /// What came of it; `None` while it goes on.
    ///
    /// # Errors
    /// The loop has asked for as long as `patience`: the next time may be better. `pid` says whom it is about.
    pub(super) fn poll(&mut self, pid: u32, patience: Duration) -> Result<Option<T>> {
        match self.answer.try_recv() {
            Ok(done) => Ok(Some(done)),
            Err(TryRecvError::Disconnected) => Err(LinuxError::NoSuchProcess(pid)),
            Err(TryRecvError::Empty) => {
                let asked = *self.asked.get_or_insert_with(Instant::now);
                if asked.elapsed() < patience {
                    return Ok(None);
                }
                self.asked = None;
                Err(LinuxError::NotAnswering(pid))
            }
        }
    }
}
