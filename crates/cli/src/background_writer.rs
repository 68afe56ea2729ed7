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
    /// Batches that are queued or being written.
    waiting: usize,
}

impl WriteFailures {
    /// The thread is done with a batch. The last error is over once no batch waits: on a slow disk
    /// there is room for one batch again and again, and none for the next.
    pub fn end_batch(&mut self, is_writable: bool) {
        self.waiting -= 1;
        if is_writable && self.waiting == 0 {
            self.last_error = None;
        }
    }
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
    /// At most `most_waiting` batches wait for the disk. `write` ends when there are no more, and
    /// calls [`WriteFailures::end_batch`] after each.
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

    /// Hands a batch over; returns whether there was room. Its entries are lost if too many
    /// batches wait.
    pub fn send_batch(&self, batch: T, entries: u64) -> bool {
        let Some(batches) = &self.batches else { return false };
        // Locked until the batch is counted: the thread subtracts it as soon as it is written.
        let mut failures = self.failures.lock();
        let is_sent = batches.try_send(batch).is_ok();
        if is_sent {
            failures.waiting += 1;
        } else {
            failures.lost += entries;
            failures.last_error.get_or_insert_with(|| "the disk is too slow".to_owned());
        }
        is_sent
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_full_queue_is_an_error_until_all_that_waited_is_written() {
        let (begun, writing) = channel();
        let (go_on, may_go_on) = channel::<()>();
        let write = move |batches: Receiver<u32>, failures: &SharedWriteFailures| {
            for batch in batches {
                begun.send(batch).expect("the test waits for it");
                may_go_on.recv().expect("the test goes on");
                failures.lock().end_batch(true);
            }
        };
        let mut writer = BackgroundWriter::start("a disk", 1, write).expect("the thread starts");
        let state = |writer: &BackgroundWriter<u32, ()>| {
            let failures = writer.failures.lock();
            (failures.lost, failures.last_error.is_some())
        };
        assert!(writer.send_batch(1, 10));
        assert_eq!(writing.recv(), Ok(1));
        assert!(writer.send_batch(2, 20), "the queue has room for one");
        assert!(!writer.send_batch(3, 30));
        assert_eq!(state(&writer), (30, true));
        go_on.send(()).expect("the thread waits for it");
        assert_eq!(writing.recv(), Ok(2));
        assert_eq!(state(&writer), (30, true), "a batch waited");
        go_on.send(()).expect("the thread waits for it");
        writer.close_queue().recv().expect("the thread ends");
        assert_eq!(state(&writer), (30, false));
    }
}
