//! Writes the journal's file in a thread of its own, so that a hanging disk can't block the
//! manager.

use super::journal_file::{JournalFile, JournalLines};
use super::protocol::JournalStatus;
use hawkeye_manager::{Event, Machine, Manager};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use std::{io, thread};

/// Batches that may wait for the disk; further ones are lost. A step makes at most one, of some
/// kilobytes.
const MOST_WAITING: usize = 256;
/// How long the daemon waits for the disk when it ends.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSettings {
    /// Path of the file; a second one, `FILE.1`, is beside it.
    pub path: PathBuf,
    pub most_bytes: u64,
}

/// The manager's side of the thread that writes.
pub struct JournalWriter {
    settings: JournalSettings,
    lines: Option<SyncSender<JournalLines>>,
    ended: Receiver<()>,
    shared: Arc<Mutex<JournalWriterState>>,
    /// Entries taken from the manager's journal so far.
    seen: u64,
    /// The last error that the manager reported.
    reported_trouble: Option<String>,
}

#[derive(Default)]
struct JournalWriterState {
    lost_entries: u64,
    trouble: Option<String>,
}

impl JournalWriter {
    /// Writes what is noted after the first `seen` entries.
    ///
    /// # Errors
    /// No thread can be started. A file that can't be opened is not an error, because it may appear
    /// later.
    pub fn start(settings: JournalSettings, seen: u64) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(MOST_WAITING);
        let (end, ended) = sync_channel(1);
        let shared = Arc::new(Mutex::new(JournalWriterState::default()));
        thread::Builder::new()
            .name("hawkeye-journal".into())
            .spawn({
                let shared = Arc::clone(&shared);
                let file = JournalFile::new(&settings.path, settings.most_bytes);
                move || {
                    write_all(file, &waiting, &shared);
                    let _ = end.send(());
                }
            })?;
        Ok(Self {
            settings,
            lines: Some(lines),
            ended,
            shared,
            seen,
            reported_trouble: None,
        })
    }

    /// Takes new entries from the manager's journal. Reports to the manager when writing fails, and
    /// when it works again.
    pub fn write_new_entries<M: Machine>(&mut self, manager: &mut Manager<M>) {
        self.report_failures(manager);
        let journal = manager.journal();
        let written = journal.written_entries;
        if written == self.seen {
            return;
        }
        let lines = JournalLines::lines_after(journal, self.seen, manager.machine().now());
        self.seen = written;
        let Some(to_thread) = &self.lines else { return };
        if let Err(TrySendError::Full(lines) | TrySendError::Disconnected(lines)) =
            to_thread.try_send(lines)
        {
            let mut shared = lock(&self.shared);
            shared.lost_entries += lines.entries + lines.missed;
            shared.trouble = Some("the disk is too slow".to_owned());
        }
    }

    fn report_failures<M: Machine>(&mut self, manager: &mut Manager<M>) {
        let (trouble, lost) = {
            let shared = lock(&self.shared);
            (shared.trouble.clone(), shared.lost_entries)
        };
        if trouble == self.reported_trouble {
            return;
        }
        let path = self.settings.path.display();
        let message = match &trouble {
            Some(why) => format!("the journal can't be written to {path}: {why}"),
            None => format!("the journal is written to {path} again; {lost} entries were lost"),
        };
        tracing::warn!("{message}");
        manager.record_event(Event::Trouble { message });
        self.reported_trouble = trouble;
    }

    pub fn status(&self) -> JournalStatus {
        let shared = lock(&self.shared);
        JournalStatus {
            path: self.settings.path.clone(),
            lost_entries: shared.lost_entries,
            trouble: shared.trouble.clone(),
        }
    }
}

impl Drop for JournalWriter {
    fn drop(&mut self) {
        self.lines = None;
        if self.ended.recv_timeout(PATIENCE).is_err() {
            tracing::warn!(
                "the last journal entries may be missing from {}: the disk did not answer within {} s",
                self.settings.path.display(),
                PATIENCE.as_secs()
            );
        }
    }
}

fn write_all(
    mut file: JournalFile,
    waiting: &Receiver<JournalLines>,
    shared: &Mutex<JournalWriterState>,
) {
    for lines in waiting {
        let written = file.append(&lines);
        let mut shared = lock(shared);
        shared.lost_entries += lines.missed;
        shared.trouble = match written {
            Ok(()) => None,
            Err(error) => {
                shared.lost_entries += lines.entries;
                Some(error.to_string())
            }
        };
    }
}

fn lock(shared: &Mutex<JournalWriterState>) -> std::sync::MutexGuard<'_, JournalWriterState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
