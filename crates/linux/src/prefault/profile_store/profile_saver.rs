//! Saves records in a thread of its own, because each waits for the disk, which may hang.

use super::{ExecutableIdentity, MAX_RECORDS, ProgramProfile};
use crate::error::Result;
use crate::mutex::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct ProfileSaver {
    shared: Arc<SharedQueue>,
}

#[derive(Debug, Default)]
struct SharedQueue {
    queue: Mutex<ProfileQueue>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ProfileQueue {
    /// One record of each program, which stays here until it is saved.
    records: VecDeque<ProgramProfile>,
    /// Records were lost since the queue was empty.
    has_lost: bool,
    is_closed: bool,
}

impl ProfileSaver {
    pub(super) fn start(save: impl Fn(&ProgramProfile) -> Result<()> + Send + 'static) -> Self {
        let shared = Arc::<SharedQueue>::default();
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("hawkeye-save".into());
        if let Err(error) = thread.spawn(move || of_thread.save_until_closed(save)) {
            tracing::warn!("programs are not learned: a thread could not be started: {error}");
            lock(&shared.queue).is_closed = true;
        }
        Self { shared }
    }

    /// Queues a record. It replaces an earlier one of its program.
    pub(super) fn queue_record(&self, record: ProgramProfile) {
        let queue = &mut *lock(&self.shared.queue);
        let mut records = queue.records.iter_mut();
        if let Some(earlier) = records.find(|it| it.executable == record.executable) {
            *earlier = record;
        } else if queue.records.len() < MAX_RECORDS && !queue.is_closed {
            queue.records.push_back(record);
            self.shared.changed.notify_all();
        } else if !std::mem::replace(&mut queue.has_lost, true) {
            tracing::warn!("records of programs are lost: the disk is too slow");
        }
    }

    /// The record of a program, if it is not saved yet.
    pub(super) fn queued_record(&self, executable: &ExecutableIdentity) -> Option<ProgramProfile> {
        let queue = lock(&self.shared.queue);
        queue.records.iter().find(|record| record.executable == *executable).cloned()
    }

    /// Waits until all records are saved, but not longer than `most`. Returns the number of records
    /// that are not.
    pub(super) fn wait_until_saved(&self, most: Duration) -> usize {
        let queue = lock(&self.shared.queue);
        let unsaved = |queue: &mut ProfileQueue| !queue.records.is_empty();
        let waited = self.shared.changed.wait_timeout_while(queue, most, unsaved);
        waited.unwrap_or_else(PoisonError::into_inner).0.records.len()
    }
}

impl SharedQueue {
    fn save_until_closed(&self, save: impl Fn(&ProgramProfile) -> Result<()>) {
        let mut queue = lock(&self.queue);
        loop {
            let Some(record) = queue.records.front().cloned() else {
                if queue.is_closed {
                    return;
                }
                queue.has_lost = false;
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(queue);
            if let Err(error) = save(&record) {
                tracing::warn!("a learned record could not be saved: {error}");
            }
            queue = lock(&self.queue);
            // A newer one that has replaced it is saved after the others.
            let newer = queue.records.pop_front().filter(|front| *front != record);
            queue.records.extend(newer);
            self.changed.notify_all();
        }
    }
}

impl Drop for ProfileSaver {
    fn drop(&mut self) {
        lock(&self.shared.queue).is_closed = true;
        self.shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{self, Receiver, Sender};

    const LONG: Duration = Duration::from_secs(60);

    fn record(name: &str, starts: u32) -> ProgramProfile {
        let mut record = ProgramProfile::new(ExecutableIdentity::for_test(name));
        record.starts = starts;
        record
    }

    /// A disk that saves a record whenever the test lets it. It then sends name and starts.
    fn saver_on_stuck_disk() -> (ProfileSaver, Sender<()>, Receiver<(String, u32)>) {
        let ((let_go, held), (done, saved)) = (mpsc::channel(), mpsc::channel());
        let saver = ProfileSaver::start(move |record| {
            let _ = held.recv();
            let name = record.executable.path.display().to_string();
            let _ = done.send((name, record.starts));
            Ok(())
        });
        (saver, let_go, saved)
    }

    #[test]
    fn a_disk_that_hangs_holds_one_record_of_each_program_up_to_a_limit() {
        let (saver, let_go, saved) = saver_on_stuck_disk();
        for starts in 1..=500 {
            saver.queue_record(record("a", starts));
        }
        for n in 0..2 * MAX_RECORDS {
            saver.queue_record(record(&n.to_string(), 1));
        }
        assert_eq!(saver.wait_until_saved(Duration::ZERO), MAX_RECORDS);
        let queued = |name| saver.queued_record(&ExecutableIdentity::for_test(name));
        assert_eq!(queued("a"), Some(record("a", 500)), "a start finds the latest record");
        assert_eq!(queued("never queued"), None);
        drop(let_go);
        assert_eq!(saver.wait_until_saved(LONG), 0);
        assert_eq!(queued("a"), None);
        let saved: Vec<_> = saved.try_iter().collect();
        let of_a: Vec<_> = saved.iter().filter(|(name, _)| name == "a").collect();
        assert_eq!(of_a.last().map(|it| it.1), Some(500), "the latest is saved last");
        // The thread may have begun with an earlier one.
        assert!(of_a.len() <= 2 && saved.len() - of_a.len() == MAX_RECORDS - 1, "{saved:?}");
    }

    #[test]
    fn what_is_queued_is_saved_after_the_manager_is_gone() {
        let (saver, let_go, saved) = saver_on_stuck_disk();
        saver.queue_record(record("a", 1));
        drop((saver, let_go));
        assert_eq!(saved.recv_timeout(LONG), Ok(("a".to_owned(), 1)));
        assert!(saved.recv_timeout(LONG).is_err(), "the thread ends");
    }
}
