//! Writes a recording in a thread of its own, so that a hanging disk can't block the manager.

use super::bloat::BloatEstimates;
use anyhow::{Context, Result, anyhow};
use hawkeye_manager::{Event, Machine, Manager};
use hawkeye_recording::{Recorder, RecordingError, RecordingOrigin, RecordingRow, RowExtractor};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Batches that may wait for the disk; further ones are lost. A step makes at most one.
const MOST_WAITING: usize = 64;
/// Time after which an unwritable folder is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordingTarget {
    /// A file, complete only at the end.
    File(PathBuf),
    /// A folder of parts, of which the newest ones are kept.
    Folder {
        folder: PathBuf,
        /// Bytes to keep at most.
        most_bytes: u64,
    },
}

impl RecordingTarget {
    fn path(&self) -> &PathBuf {
        let (Self::File(path) | Self::Folder { folder: path, .. }) = self;
        path
    }
}

/// A running recording. If it is dropped before anything was seen, an older file at its place
/// stays.
pub struct ActiveRecording {
    place: RecordingTarget,
    tap: RowExtractor,
    bloat: BloatEstimates,
    rows: Option<SyncSender<Vec<RecordingRow>>>,
    thread: Option<JoinHandle<Result<(), RecordingError>>>,
    shared: Arc<Mutex<RecordingThreadState>>,
    /// The last error that the manager reported.
    reported_trouble: Option<String>,
}

#[derive(Debug, Default)]
struct RecordingThreadState {
    lost_rows: u64,
    /// Whether to write the recording even if nothing was seen.
    wanted: bool,
    trouble: Option<String>,
}

fn lock(shared: &Mutex<RecordingThreadState>) -> MutexGuard<'_, RecordingThreadState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ActiveRecording {
    pub fn begin(place: RecordingTarget, policy: &str) -> Result<Self> {
        let about = recording_origin_now(policy);
        let recorder = match &place {
            RecordingTarget::File(path) => Recorder::begin(path, about),
            RecordingTarget::Folder { folder, most_bytes } => {
                Recorder::continue_in_folder(folder, *most_bytes, about)
            }
        };
        let recorder = recorder.context("can't start the recording")?;
        let (rows, waiting) = sync_channel(MOST_WAITING);
        let shared = Arc::new(Mutex::new(RecordingThreadState::default()));
        let tries_again = matches!(place, RecordingTarget::Folder { .. });
        let thread = thread::Builder::new()
            .name("hawkeye-record".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || write_all(recorder, &waiting, tries_again, &shared)
            })
            .context("can't start the recording's thread")?;
        Ok(Self {
            place,
            tap: RowExtractor::default(),
            bloat: BloatEstimates::default(),
            rows: Some(rows),
            thread: Some(thread),
            shared,
            reported_trouble: None,
        })
    }

    /// Takes new rows from the manager; called between steps. Reports to the manager when writing
    /// fails, and when it works again.
    pub fn write_new_rows<M: Machine>(&mut self, manager: &mut Manager<M>) {
        self.report_failures(manager);
        self.bloat.sample_huge_pages(manager);
        let bloat = &self.bloat;
        let rows = self.tap.new_rows(manager, |process| bloat.bytes(process));
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

    fn report_failures<M: Machine>(&mut self, manager: &mut Manager<M>) {
        let trouble = lock(&self.shared).trouble.clone();
        if trouble == self.reported_trouble {
            return;
        }
        let path = self.place.path().display();
        let message = match &trouble {
            Some(why) => format!("the recording {path} has a gap: {why}"),
            None => format!("the recording {path} continues"),
        };
        tracing::warn!("{message}");
        manager.record_event(Event::Trouble { message });
        self.reported_trouble = trouble;
    }

    pub fn finish(mut self) -> Result<()> {
        lock(&self.shared).wanted = true;
        let ended = self.join_thread().unwrap_or(Ok(Ok(())));
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
    fn join_thread(&mut self) -> Option<thread::Result<Result<(), RecordingError>>> {
        self.rows = None;
        self.thread.take().map(JoinHandle::join)
    }
}

impl Drop for ActiveRecording {
    fn drop(&mut self) {
        if let Some(Ok(Err(error))) = self.join_thread() {
            let path = self.place.path().display();
            tracing::warn!("the recording {path} is incomplete: {error}");
        }
    }
}

fn recording_origin_now(policy: &str) -> RecordingOrigin {
    let of_kernel = |file: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{file}"));
        text.unwrap_or_default().trim().to_owned()
    };
    RecordingOrigin {
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
    waiting: &Receiver<Vec<RecordingRow>>,
    tries_again: bool,
    shared: &Mutex<RecordingThreadState>,
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
