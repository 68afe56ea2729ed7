//! Writes a recording in a thread of its own, so that a hanging disk can't block the manager.

use super::bloat::Bloat;
use anyhow::{Context, Result, anyhow};
use hawkeye_manager::{Event, Machine, Manager};
use hawkeye_recording::{About, Recorder, RecordingError, Row, Tap};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Batches that may wait for the disk; further ones are lost. A step makes at most one.
const MOST_WAITING: usize = 64;
/// Time after which an unwritable folder is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Destination of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file, complete only at the end.
    File(PathBuf),
    /// A folder of parts, of which the newest ones are kept.
    Folder {
        /// Path of the folder.
        folder: PathBuf,
        /// Bytes to keep at most.
        most_bytes: u64,
    },
}

impl Place {
    fn path(&self) -> &PathBuf {
        let (Self::File(path) | Self::Folder { folder: path, .. }) = self;
        path
    }
}

/// A running recording. If it is dropped before anything was seen, an older file at its place
/// stays.
pub struct Recording {
    place: Place,
    tap: Tap,
    bloat: Bloat,
    rows: Option<SyncSender<Vec<Row>>>,
    thread: Option<JoinHandle<Result<(), RecordingError>>>,
    shared: Arc<Mutex<Shared>>,
    /// The last error that the manager reported.
    told: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    lost_rows: u64,
    /// Whether to write the recording even if nothing was seen.
    wanted: bool,
    trouble: Option<String>,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Recording {
    /// Begins a recording of a manager with this policy.
    pub fn begin(place: Place, policy: &str) -> Result<Self> {
        let about = about_now(policy);
        let recorder = match &place {
            Place::File(path) => Recorder::begin(path, about),
            Place::Folder { folder, most_bytes } => Recorder::in_folder(folder, *most_bytes, about),
        };
        let recorder = recorder.context("can't start the recording")?;
        let (rows, waiting) = sync_channel(MOST_WAITING);
        let shared = Arc::new(Mutex::new(Shared::default()));
        let tries_again = matches!(place, Place::Folder { .. });
        let thread = thread::Builder::new()
            .name("hawkeye-record".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || write_all(recorder, &waiting, tries_again, &shared)
            })
            .context("can't start the recording's thread")?;
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

    /// Takes new rows from the manager; called between steps. Reports to the manager when writing
    /// fails, and when it works again.
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
                .get_or_insert_with(|| "the disk is too slow".to_owned());
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
            None => format!("the recording {path} continues"),
        };
        tracing::warn!("{message}");
        manager.note(Event::Trouble { message });
        self.told = trouble;
    }

    /// Ends the recording.
    pub fn finish(mut self) -> Result<()> {
        lock(&self.shared).wanted = true;
        let ended = self.end().unwrap_or(Ok(Ok(())));
        let ended = ended.map_err(|_| anyhow!("the recording's thread panicked"))?;
        let path = self.place.path().display();
        ended.with_context(|| format!("the recording {path} is incomplete"))?;
        let lost = lock(&self.shared).lost_rows;
        if lost > 0 {
            tracing::warn!("{lost} rows of the recording {path} were lost");
        }
        Ok(())
    }

    /// Waits for the thread; only the first call does.
    fn end(&mut self) -> Option<thread::Result<Result<(), RecordingError>>> {
        self.rows = None;
        self.thread.take().map(JoinHandle::join)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if let Some(Ok(Err(error))) = self.end() {
            let path = self.place.path().display();
            tracing::warn!("the recording {path} is incomplete: {error}");
        }
    }
}

/// The metadata of a recording that begins now.
fn about_now(policy: &str) -> About {
    let of_kernel = |file: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{file}"));
        text.unwrap_or_default().trim().to_owned()
    };
    About {
        host: of_kernel("hostname"),
        kernel: of_kernel("osrelease"),
        policy: policy.to_owned(),
        began: SystemTime::now().duration_since(UNIX_EPOCH).ok(),
    }
}

/// Writes until the end or until an error. If `tries_again`, an error leads to a new try after a
/// minute.
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
