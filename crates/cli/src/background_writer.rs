//! Hands batches to a thread that writes them, so that a hanging disk can't block the manager.

use hawkeye_manager::{Event, Machine, Manager};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{io, thread};

/// What the thread and the manager's side share.
#[derive(Debug, Default)]
pub struct WriteFailures {
    /// Number of entries that were not written.
    pub lost: u64,
    /// The error because of which nothing can be written at the moment.
    pub last_error: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub struct SharedWriteFailures(Arc<Mutex<WriteFailures>>);

impl SharedWriteFailures {
    pub fn lock(&self) -> MutexGuard<'_, WriteFailures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The manager's side of the thread.
pub struct BackgroundWriter<T, R> {
    pub failures: SharedWriteFailures,
    batches: Option<SyncSender<T>>,
    result: Receiver<R>,
    reported_error: Option<String>,
}

impl<T: Send + 'static, R: Send + 'static> BackgroundWriter<T, R> {
    /// At most `most_waiting` batches wait for the disk. `write` ends when there are no more.
    pub fn start(
        name: &str,
        most_waiting: usize,
        write: impl FnOnce(Receiver<T>, &SharedWriteFailures) -> R + Send + 'static,
    ) -> io::Result<Self> {
        let failures = SharedWriteFailures::default();
        let (batches, waiting) = sync_channel(most_waiting);
        let (ended, result) = sync_channel(1);
        let shared = failures.clone();
        let thread = thread::Builder::new().name(name.into());
        thread.spawn(move || drop(ended.send(write(waiting, &shared))))?;
        Ok(Self { failures, batches: Some(batches), result, reported_error: None })
    }

    /// Hands a batch over. Its entries are lost if too many batches wait.
    pub fn send_batch(&self, batch: T, entries: u64) {
        let Some(batches) = &self.batches else { return };
        if batches.try_send(batch).is_err() {
            let mut failures = self.failures.lock();
            failures.lost += entries;
            failures.last_error.get_or_insert_with(|| "the disk is too slow".to_owned());
        }
    }

    /// Reports to the log and to the manager when writing fails, and when it works again.
    pub fn report_if_error_changed<M: Machine>(
        &mut self,
        manager: &mut Manager<M>,
        message: impl FnOnce(&WriteFailures) -> String,
    ) {
        let failures = self.failures.lock();
        if failures.last_error == self.reported_error {
            return;
        }
        self.reported_error.clone_from(&failures.last_error);
        let message = message(&failures);
        drop(failures);
        tracing::warn!("{message}");
        manager.record_event(Event::Trouble { message });
    }

    /// Sends no more batches. The thread's result arrives once.
    pub fn close_queue(&mut self) -> &Receiver<R> {
        self.batches = None;
        &self.result
    }
}
