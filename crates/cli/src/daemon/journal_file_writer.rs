//! Writes the journal's file in a thread.

use super::journal_file::{JournalFile, JournalLines};
use super::protocol::JournalFileStatus;
use crate::background_writer::{BackgroundWriter, SharedWriteFailures};
use hawkeye_manager::{Machine, Manager};
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::time::Duration;

/// Batches that may wait for the disk. A step makes at most one, of some kilobytes.
const MOST_WAITING: usize = 256;
/// How long the daemon waits for the disk when it ends.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalFileSettings {
    /// Path of the file; a second one, `FILE.1`, is beside it.
    pub path: PathBuf,
    pub most_bytes: u64,
}

pub struct JournalFileWriter {
    settings: JournalFileSettings,
    writer: BackgroundWriter<JournalLines, ()>,
    /// Entries taken from the manager's journal so far.
    seen: u64,
}

impl JournalFileWriter {
    /// Writes what is noted after the first `seen` entries.
    ///
    /// # Errors
    /// No thread can be started. A file that can't be opened is not an error, because it may appear
    /// later.
    pub fn start(settings: JournalFileSettings, seen: u64) -> io::Result<Self> {
        let mut file = JournalFile::new(&settings.path, settings.most_bytes);
        let write = move |waiting: Receiver<JournalLines>, shared: &SharedWriteFailures| {
            for lines in waiting {
                let written = file.append(&lines);
                let mut failures = shared.lock();
                failures.lost += lines.missed;
                if written.is_err() {
                    failures.lost += lines.entries;
                }
                failures.last_error = written.err().map(|error| error.to_string());
            }
        };
        Ok(Self {
            settings,
            writer: BackgroundWriter::start("hawkeye-journal", MOST_WAITING, write)?,
            seen,
        })
    }

    /// Takes new entries from the manager's journal.
    pub fn write_new_entries<M: Machine>(&mut self, manager: &mut Manager<M>) {
        let path = self.settings.path.display();
        self.writer.report_if_error_changed(manager, |failures| match &failures.last_error {
            Some(why) => format!("the journal can't be written to {path}: {why}"),
            None => {
                let lost = failures.lost;
                format!("the journal is written to {path} again; {lost} entries were lost")
            }
        });
        let journal = manager.journal();
        let written = journal.written_entries;
        if written == self.seen {
            return;
        }
        let lines = JournalLines::from_entries_after(journal, self.seen, manager.machine().now());
        self.seen = written;
        let entries = lines.entries + lines.missed;
        self.writer.send_batch(lines, entries);
    }

    pub fn status(&self) -> JournalFileStatus {
        let failures = self.writer.failures.lock();
        JournalFileStatus {
            path: self.settings.path.clone(),
            lost_entries: failures.lost,
            last_error: failures.last_error.clone(),
        }
    }
}

impl Drop for JournalFileWriter {
    fn drop(&mut self) {
        if self.writer.close_queue().recv_timeout(PATIENCE).is_err() {
            tracing::warn!(
                "the last journal entries may be missing from {}: the disk did not answer within {} s",
                self.settings.path.display(),
                PATIENCE.as_secs()
            );
        }
    }
}
