//! Writes a recording in a thread of its own: a disk that hangs must not hang the manager.

use super::about_now;
use super::bloat::Bloat;
use super::tap::Tap;
use anyhow::{Context, Result, anyhow};
use hawkeye_manager::{Machine, Manager};
use hawkeye_recording::{Recorder, RecordingError, Row};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};

/// Batches that wait for the disk at most; more are lost. A step makes one at most.
const MOST_WAITING: usize = 64;

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

/// A recording that is being made.
pub struct Recording {
    place: Place,
    tap: Tap,
    bloat: Bloat,
    rows: Option<SyncSender<Vec<Row>>>,
    thread: JoinHandle<Result<(), RecordingError>>,
    lost_rows: u64,
    told: bool,
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
        let thread = thread::Builder::new()
            .name("hawkeye-record".into())
            .spawn(move || write_all(recorder, &waiting))
            .context("starting the recording's thread")?;
        Ok(Self {
            place,
            tap: Tap::default(),
            bloat: Bloat::default(),
            rows: Some(rows),
            thread,
            lost_rows: 0,
            told: false,
        })
    }

    /// Takes over what is new; to be called between steps. Where that can't be written, it says so once and goes on.
    pub fn take<M: Machine>(&mut self, manager: &mut Manager<M>) {
        self.bloat.look(manager);
        let bloat = &self.bloat;
        let rows = self.tap.take(manager, |process| bloat.bytes(process));
        if rows.is_empty() {
            return;
        }
        let Some(to_thread) = &self.rows else { return };
        match to_thread.try_send(rows) {
            Ok(()) => {}
            Err(TrySendError::Full(rows)) => self.lost_rows += rows.len() as u64,
            // It has ended, and says why at the end.
            Err(TrySendError::Disconnected(rows)) => {
                self.lost_rows += rows.len() as u64;
                if !self.told {
                    self.told = true;
                    let path = self.place.path().display();
                    tracing::warn!("{path} can't be written any more: the recording ends here");
                }
            }
        }
    }

    /// Ends it.
    ///
    /// # Errors
    /// Something of it could not be written.
    pub fn finish(mut self) -> Result<()> {
        self.rows = None;
        let ended = self.thread.join();
        let ended = ended.map_err(|_| anyhow!("the recording's thread has failed"))?;
        let path = self.place.path().display();
        ended.with_context(|| format!("the recording {path} is not whole"))?;
        if self.lost_rows > 0 {
            tracing::warn!("{} rows are lost: the disk did not keep up", self.lost_rows);
        }
        Ok(())
    }
}

fn write_all(mut recorder: Recorder, waiting: &Receiver<Vec<Row>>) -> Result<(), RecordingError> {
    for rows in waiting {
        for row in rows {
            recorder.write(row)?;
        }
    }
    recorder.finish()
}
