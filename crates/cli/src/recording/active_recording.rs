//! A recording and its writing thread.

use super::bloat_estimator::BloatEstimator;
use crate::background_writer::{BackgroundWriter, SharedWriteFailures};
use anyhow::{Context, Result, anyhow};
use hawkeye_manager::{Machine, Manager};
use hawkeye_recording::{
    Recorder, RecordingError, RecordingMetadata, RecordingRow, RecordingRowsFromManager,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Batches that may wait for the disk. A step makes at most one.
const MOST_WAITING: usize = 64;
/// Time after which an unwritable folder is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// How long an ending daemon waits for the disk. It has changed settings that it must restore.
const PATIENCE: Duration = Duration::from_secs(10);

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

/// If it is dropped before anything was seen, an older file at its place stays.
pub struct ActiveRecording {
    place: RecordingTarget,
    tap: RecordingRowsFromManager,
    bloat: BloatEstimator,
    writer: BackgroundWriter<Vec<RecordingRow>, Result<(), RecordingError>>,
    /// Whether to write the recording even if nothing was seen.
    wanted: Arc<AtomicBool>,
}

impl ActiveRecording {
    pub fn start_recording(place: RecordingTarget, policy: &str) -> Result<Self> {
        let about = recording_metadata_now(policy);
        let (recorder, tries_again) = match &place {
            RecordingTarget::File(path) => (Recorder::begin_file_recording(path, about), false),
            RecordingTarget::Folder { folder, most_bytes } => {
                (Recorder::continue_in_folder(folder, *most_bytes, about), true)
            }
        };
        let mut recorder = recorder.context("can't start the recording")?;
        let wanted = Arc::new(AtomicBool::new(false));
        let writer = BackgroundWriter::start("hawkeye-record", MOST_WAITING, {
            let wanted = Arc::clone(&wanted);
            move |rows: Receiver<Vec<RecordingRow>>, failures: &SharedWriteFailures| {
                write_batches_until_closed(&mut recorder, rows, tries_again, failures)?;
                if recorder.is_empty() && !wanted.load(Ordering::Acquire) {
                    return Ok(());
                }
                recorder.finish()
            }
        });
        Ok(Self {
            place,
            tap: RecordingRowsFromManager::default(),
            bloat: BloatEstimator::default(),
            writer: writer.context("can't start the recording's thread")?,
            wanted,
        })
    }

    /// Takes new rows from the manager; called between steps.
    pub fn write_new_rows<M: Machine>(&mut self, manager: &mut Manager<M>) {
        let path = self.place.path().display();
        self.writer.report_if_error_changed(manager, |failures| match &failures.last_error {
            Some(why) => format!("the recording {path} has a gap: {why}"),
            None => format!("the recording {path} continues"),
        });
        self.bloat.scan_huge_pages_of_new_samples(manager);
        let bloat = |process| self.bloat.estimated_zero_bytes(process);
        let rows = self.tap.take_new_rows(manager, bloat);
        if !rows.is_empty() {
            let lost_rows = rows.len() as u64;
            self.writer.send_batch(rows, lost_rows);
        }
    }

    /// Ends the recording. Call it after changed settings are restored where the target is a file.
    /// That is joined from its parts, which takes longer the longer the recording is.
    pub fn finish(self) -> Result<()> {
        let patience = match self.place {
            RecordingTarget::File(_) => Duration::MAX,
            RecordingTarget::Folder { .. } => PATIENCE,
        };
        self.finish_within(patience)
    }

    fn finish_within(mut self, patience: Duration) -> Result<()> {
        self.wanted.store(true, Ordering::Release);
        let ended = self.writer.close_queue().recv_timeout(patience);
        let ended = ended.map_err(|error| match error {
            RecvTimeoutError::Disconnected => anyhow!("the recording's thread panicked"),
            RecvTimeoutError::Timeout => {
                anyhow!("the disk did not answer within {} s", patience.as_secs())
            }
        });
        let path = self.place.path().display();
        let ended = ended.and_then(|written| Ok(written?));
        ended.with_context(|| format!("the recording {path} is incomplete"))?;
        let lost = self.writer.failures.lock().lost;
        if lost > 0 {
            tracing::warn!("{lost} rows of the recording {path} were lost");
        }
        Ok(())
    }
}

impl Drop for ActiveRecording {
    fn drop(&mut self) {
        // `finish` has waited already.
        if self.wanted.load(Ordering::Acquire) {
            return;
        }
        if let Ok(Err(error)) = self.writer.close_queue().recv_timeout(PATIENCE) {
            let path = self.place.path().display();
            tracing::warn!("the recording {path} is incomplete: {error}");
        }
    }
}

fn recording_metadata_now(policy: &str) -> RecordingMetadata {
    let of_kernel = |file: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/kernel/{file}"));
        text.unwrap_or_default().trim().to_owned()
    };
    RecordingMetadata {
        host: of_kernel("hostname"),
        kernel: of_kernel("osrelease"),
        policy: policy.to_owned(),
        began: SystemTime::now().duration_since(UNIX_EPOCH).ok(),
    }
}

/// Writes until the end or an error. If `tries_again`, goes on a minute after an error.
fn write_batches_until_closed(
    recorder: &mut Recorder,
    waiting: Receiver<Vec<RecordingRow>>,
    tries_again: bool,
    shared: &SharedWriteFailures,
) -> Result<(), RecordingError> {
    let mut not_before = Duration::ZERO;
    for rows in waiting {
        for row in rows {
            let at = row.time_since_start();
            if at < not_before {
                shared.lock().lost += 1;
                continue;
            }
            not_before = Duration::ZERO;
            if let Err(error) = recorder.write_row(row) {
                let lost_rows = 1 + recorder.abandon_open_part();
                let mut failures = shared.lock();
                failures.lost += lost_rows;
                failures.last_error = Some(error.to_string());
                if !tries_again {
                    return Err(error);
                }
                not_before = at + AGAIN_AFTER;
            }
        }
        shared.lock().end_batch(not_before.is_zero());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_disk_that_does_not_answer_is_not_waited_for() {
        let (answer, answered) = channel::<()>();
        let writer = BackgroundWriter::start("a disk", 1, move |_, _: &_| {
            let _ = answered.recv();
            Ok(())
        });
        let recording = ActiveRecording {
            place: RecordingTarget::File("a.parquet".into()),
            tap: RecordingRowsFromManager::default(),
            bloat: BloatEstimator::default(),
            writer: writer.expect("the thread starts"),
            wanted: Arc::default(),
        };
        let error = recording.finish_within(Duration::from_millis(1)).expect_err("the disk hangs");
        assert!(format!("{error:#}").contains("a.parquet is incomplete: the disk did not answer"));
        drop(answer);
    }
}
