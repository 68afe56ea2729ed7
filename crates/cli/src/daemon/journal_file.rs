//! The journal on disk: JSON lines in a file with one rotated predecessor.

use hawkeye_linux::machine_lease::own_files::{is_trusted_uid, path_with_suffix};
use hawkeye_manager::{Journal, JournalEntry};
use serde::Serialize;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Entries in the form of the file.
#[derive(Debug, Default)]
pub struct JournalLines {
    /// JSON, one entry per line.
    pub text: Vec<u8>,
    pub entries: u64,
    /// Number of entries that left the journal before they could be written.
    pub missed: u64,
}

/// An entry with the time of day, so that it can be compared with other logs.
#[derive(Serialize)]
struct TimedLine<T> {
    time_unix_s: f64,
    #[serde(flatten)]
    what: T,
}

#[derive(Serialize)]
#[serde(tag = "event", rename = "lost")]
struct LostEntries {
    entries: u64,
}

fn push_json_line<T: Serialize>(text: &mut Vec<u8>, time: SystemTime, what: T) -> io::Result<()> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    let line = TimedLine { time_unix_s: since.unwrap_or_default().as_secs_f64(), what };
    serde_json::to_writer(&mut *text, &line)?;
    text.push(b'\n');
    Ok(())
}

impl JournalLines {
    /// The entries after the first `seen` ever written; `now` is the manager's time.
    pub fn from_entries_after(journal: &Journal, seen: u64, now: Duration) -> Self {
        let clock = SystemTime::now();
        let mut lines = Self::default();
        let time = |entry: &JournalEntry| {
            clock.checked_sub(now.saturating_sub(entry.at)).unwrap_or(SystemTime::UNIX_EPOCH)
        };
        for entry in journal.entries_after_count(seen) {
            match push_json_line(&mut lines.text, time(entry), entry) {
                Ok(()) => lines.entries += 1,
                // No entry has such content; one that had would be missing.
                Err(error) => tracing::debug!("journal entry not writable as JSON: {error}"),
            }
        }
        let all = journal.written_entries.saturating_sub(seen);
        lines.missed = all.saturating_sub(lines.entries);
        lines
    }
}

/// A file of lines. At its size limit it is renamed to `FILE.1`, which it replaces.
#[derive(Debug)]
pub struct JournalFile {
    path: PathBuf,
    most_bytes: u64,
    open: Option<OpenJournalFile>,
    /// Entries lost since the last one that was written.
    lost: u64,
}

#[derive(Debug)]
struct OpenJournalFile {
    file: File,
    /// Device and inode.
    id: (u64, u64),
    /// `None` for files without a length, such as pipes, which are not rotated.
    bytes: Option<u64>,
}

impl JournalFile {
    pub fn new(path: &Path, most_bytes: u64) -> Self {
        Self { path: path.to_owned(), most_bytes, open: None, lost: 0 }
    }

    /// Appends lines. If entries were lost before, a line that says so comes first.
    ///
    /// # Errors
    /// They could not be written. None of them is in the file, and they count as lost.
    pub fn append(&mut self, lines: &JournalLines) -> io::Result<()> {
        let mut text = Vec::new();
        let entries = self.lost + lines.missed;
        // Holds if anything below fails.
        self.lost = entries + lines.entries;
        if entries > 0 {
            push_json_line(&mut text, SystemTime::now(), LostEntries { entries })?;
        }
        text.extend_from_slice(&lines.text);
        self.append_or_roll_back(&text)?;
        self.lost = 0;
        Ok(())
    }

    fn append_or_roll_back(&mut self, text: &[u8]) -> io::Result<()> {
        let most_bytes = self.most_bytes;
        let mut open = self.get_or_open_file()?;
        let full = |bytes| bytes > 0 && bytes + text.len() as u64 > most_bytes;
        if open.bytes.is_some_and(full) {
            fs::rename(&self.path, path_with_suffix(&self.path, ".1"))?;
            open = self.get_or_open_file()?;
        }
        let Err(error) = open.file.write_all(text) else {
            open.bytes = open.bytes.map(|bytes| bytes + text.len() as u64);
            return Ok(());
        };
        // Half a line would corrupt the next one.
        if let Some(bytes) = open.bytes {
            let _ = open.file.set_len(bytes);
        }
        self.open = None;
        Err(error)
    }

    /// The open file at the path. It is opened again if another program has moved or removed it.
    fn get_or_open_file(&mut self) -> io::Result<&mut OpenJournalFile> {
        let there = fs::metadata(&self.path).map(|found| (found.dev(), found.ino()));
        let same = |open: &OpenJournalFile| there.as_ref().is_ok_and(|id| *id == open.id);
        let still_open = self.open.take().filter(same);
        let open_again = || OpenJournalFile::open_if_trusted(&self.path);
        Ok(self.open.insert(still_open.map_or_else(open_again, Ok)?))
    }
}

impl OpenJournalFile {
    fn open_if_trusted(path: &Path) -> io::Result<Self> {
        // Through a link that another user owns, root would write into any file.
        if let Ok(link) = fs::symlink_metadata(path) {
            require_trusted_owner(&link)?;
        }
        // The journal shows where programs have their memory, so only root may read it. Another
        // user can't open a new file, but could read an existing file that it owns.
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let found = file.metadata()?;
        require_trusted_owner(&found)?;
        Ok(Self {
            id: (found.dev(), found.ino()),
            bytes: found.is_file().then_some(found.len()),
            file,
        })
    }
}

fn require_trusted_owner(found: &Metadata) -> io::Result<()> {
    let owner = found.uid();
    if is_trusted_uid(owner) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "it belongs to user {owner}; root must own it, because the journal shows where programs have their memory"
        ),
    ))
}

#[cfg(test)]
mod tests;
