//! Writes a recording in a thread of its own: a disk that hangs must not hang the manager.

use super::about_now;
use super::bloat::Bloat;

use anyhow::{Context, Result, anyhow};
use hawkeye_manager::{Event, Machine, Manager};
use hawkeye_recording::{Recorder, RecordingError, Row, Tap};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Batches that wait for the disk at most; more are lost. A step makes one at most.
const MOST_WAITING: usize = 64;
/// A folder that can't be written is tried anew so much later.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Where a recording goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file, at the end.
    File(PathBuf),
    /// A folder of parts, of which the newest are kept.
    Folder {
        /// Which.
        folder: PathBuf,
        /// So much of them, in bytes.
        most_bytes: u64,
    },
}

impl Place {
    fn path(&self) -> &PathBuf {
        let (Self::File(path) | Self::Folder { folder: path, .. }) = self;
        path
    }
}

/// A recording that is being made. One that is dropped before anything was seen leaves what was at its place.
pub struct Recording {
    place: Place,
    tap: Tap,
    bloat: Bloat,
    rows: Option<SyncSender<Vec<Row>>>,
    thread: Option<JoinHandle<Result<(), RecordingError>>>,
    shared: Arc<Mutex<Shared>>,
    /// The trouble that the manager was told of.
    told: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    lost_rows: u64,
    /// It is to be a recording, also where nothing was seen.
    wanted: bool,
    trouble: Option<String>,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recording {
    /// Begins one, of a manager with this policy.
    ///
    /// # Errors
    /// Nothing can be written there.
    pub fn begin(place: Place, policy: &str) -> Result<Self> {
        let about = about_now(policy);
        let recorder = match &place {
            Place::File(path) => Recorder::begin(path, about),
            Place::Folder { folder, most_bytes } => Recorder::in_folder(folder, *most_bytes, about),
        };
        let recorder = recorder.context("nothing can be recorded")?;
        let (rows, waiting) = sync_channel(MOST_WAITING);
        let shared = Arc::new(Mutex::new(Shared::default()));
        let tries_again = matches!(place, Place::Folder { .. });
        let thread = thread::Builder::new()
            .name("hawkeye-record".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || write_all(recorder, &waiting, tries_again, &shared)
            })
            .context("starting the recording's thread")?;
        Ok(Self {
            place,
            tap: Tap::default(),
            bloat: Bloat::default(),
            rows: Some(rows),
            thread: Some(thread),
            shared,
            told: None,
        })
    }

    /// Takes over what is new, and tells the manager when that can't be written or can be again; to be called between steps.
    pub fn take<M: Machine>(&mut self, manager: &mut Manager<M>) {
        self.tell(manager);
        self.bloat.look(manager);
        let bloat = &self.bloat;
        let rows = self.tap.take(manager, |process| bloat.bytes(process));
        if rows.is_empty() {
            return;
        }
        let Some(to_thread) = &self.rows else { return };
        if let Err(TrySendError::Full(rows) | TrySendError::Disconnected(rows)) =
            to_thread.try_send(rows)
        {
            let mut shared = lock(&self.shared);
            shared.lost_rows += rows.len() as u64;
            shared
                .trouble
                .get_or_insert_with(|| "the disk does not keep up".to_owned());
        }
    }

    fn tell<M: Machine>(&mut self, manager: &mut Manager<M>) {
        let trouble = lock(&self.shared).trouble.clone();
        if trouble == self.told {
            return;
        }
        let path = self.place.path().display();
        let message = match &trouble {
            Some(why) => format!("the recording {path} has a gap: {why}"),
            None => format!("the recording {path} goes on"),
        };
        tracing::warn!("{message}");
        manager.note(Event::Trouble { message });
        self.told = trouble;
    }

    /// Ends it.
    ///
    /// # Errors
    /// Something of it could not be written.
    pub fn finish(mut self) -> Result<()> {
        lock(&self.shared).wanted = true;
        let ended = self.end().unwrap_or(Ok(Ok(())));
        let ended = ended.map_err(|_| anyhow!("the recording's thread has failed"))?;
        let path = self.place.path().display();
        ended.with_context(|| format!("the recording {path} is not whole"))?;
        let lost = lock(&self.shared).lost_rows;
        if lost > 0 {
            tracing::warn!("{lost} rows of the recording {path} are lost");
        }
        Ok(())
    }

    /// Waits for the thread; once.
    fn end(&mut self) -> Option<thread::Result<Result<(), RecordingError>>> {
        self.rows = None;
        self.thread.take().map(JoinHandle::join)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(Ok(Err(error))) = self.end() {
            let path = self.place.path().display();
            tracing::warn!("the recording {path} is not whole: {error}");
        }
    }
}

/// Writes until the end, or until it can't; where `tries_again`, then anew after a minute.
fn write_all(
    mut recorder: Recorder,
    waiting: &Receiver<Vec<Row>>,
    tries_again: bool,
    shared: &Mutex<Shared>,
) -> Result<(), RecordingError> {
    let mut not_before = Duration::ZERO;
    for rows in waiting {
        for row in rows {
            let at = row.at();
            if at < not_before {
                lock(shared).lost_rows += 1;
                continue;
            }
            not_before = Duration::ZERO;
            if let Err(error) = recorder.write(row) {
                let lost_rows = 1 + recorder.abandon_part();
                let mut shared = lock(shared);
                shared.lost_rows += lost_rows;
                shared.trouble = Some(error.to_string());
                if !tries_again {
                    return Err(error);
                }
                not_before = at + AGAIN_AFTER;
            }
        }
        if not_before.is_zero() {
            lock(shared).trouble = None;
        }
    }
    if recorder.is_empty() && !lock(shared).wanted {
        return Ok(());
    }
    recorder.finish()
}
