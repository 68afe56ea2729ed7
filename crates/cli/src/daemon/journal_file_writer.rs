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
    /// Entries lost before they were queued, which the next batch reports to the file's readers.
    unmarked: u64,
}

impl JournalFileWriter {
    /// Writes what is noted after the first `seen` entries. A file that can't be opened is not an
    /// error, because it may appear later.
    pub fn start(settings: JournalFileSettings, seen: u64) -> io::Result<Self> {
        let mut file = JournalFile::new(&settings.path, settings.most_bytes);
        let write = move |waiting: Receiver<JournalLines>, shared: &SharedWriteFailures| {
            for lines in waiting {
                let written = file.append(&lines);
                let mut failures = shared.lock();
                if let Err(error) = &written {
                    failures.lost += lines.entries;
                    failures.last_error = Some(error.to_string());
                }
                failures.end_batch(written.is_ok());
            }
        };
        Ok(Self {
            settings,
            writer: BackgroundWriter::start("hawkeye-journal", MOST_WAITING, write)?,
            seen,
            unmarked: 0,
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
        let now = manager.machine().now();
        let mut lines = JournalLines::from_entries_after(journal, self.seen, now);
        self.seen = written;
        self.writer.failures.lock().lost += lines.missed;
        lines.missed += self.unmarked;
        let (entries, unmarked) = (lines.entries, lines.entries + lines.missed);
        self.unmarked = if self.writer.send_batch(lines, entries) { 0 } else { unmarked };
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
        if self.unmarked > 0 {
            let mark = JournalLines { missed: self.unmarked, ..JournalLines::default() };
            self.writer.send_batch(mark, 0);
        }
        if self.writer.close_queue().recv_timeout(PATIENCE).is_err() {
            tracing::warn!(
                "the last journal entries may be missing from {}: the disk did not answer within {} s",
                self.settings.path.display(),
                PATIENCE.as_secs()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_manager::{Event, Settings};
    use hawkeye_test_support::builders::{GIB, ScriptedMachine, manager_of};
    use serde_json::Value;
    use std::fs::File;
    use std::io::{BufRead, BufReader};
    use std::process::Command;

    #[test]
    fn what_a_slow_disk_loses_is_marked_in_the_file_and_counted_once() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("journal.jsonl");
        // A disk that does not answer: opening a pipe waits for a reader.
        let made = Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo starts").success());
        let settings = JournalFileSettings { path: path.clone(), most_bytes: 1 << 20 };
        let mut writer = JournalFileWriter::start(settings, 0).expect("the thread starts");
        let mut manager = manager_of(ScriptedMachine::new(GIB), "none", Settings::default());
        let mut write_one = |writer: &mut JournalFileWriter| {
            manager.record_event(Event::Reloaded { refused: None });
            writer.write_new_entries(&mut manager);
        };
        for _ in 0..MOST_WAITING + 20 {
            write_one(&mut writer);
        }
        let status = writer.status();
        assert!(status.lost_entries > 0);
        assert_eq!(status.last_error.as_deref(), Some("the disk is too slow"));
        let pipe = File::open(&path).expect("the pipe can be read");
        let mut lines = BufReader::new(pipe).lines().map(|line| -> Value {
            let line = line.expect("the pipe can be read");
            serde_json::from_str(&line).expect("a line of JSON")
        });
        // The second batch has left the queue, so that there is room for one.
        let mut written: Vec<Value> = lines.by_ref().take(2).collect();
        let lost = writer.status().lost_entries;
        drop(writer);
        written.extend(lines);
        let (marks, events): (Vec<Value>, Vec<Value>) =
            written.into_iter().partition(|it| it["event"] == "lost");
        let marked: u64 = marks.iter().filter_map(|it| it["entries"].as_u64()).sum();
        assert_eq!(marked, lost, "{marks:?}");
        assert_eq!(events.len() as u64 + lost, manager.journal().written_entries);
    }
}
