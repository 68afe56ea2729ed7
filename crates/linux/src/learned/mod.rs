//! What was learned of programs, kept by their executables for their next start (the outlook of Wienand's thesis, 7.2.3).
//!
//! One small file a program, in a folder of its own that may be emptied at any time: whoever deletes a file has it
//! forgotten.

mod executable;
mod notebook;
mod record;

pub use executable::{Build, Executable};
pub use record::Record;

pub(crate) use notebook::Notebook;

use crate::error::LinuxError;
use record::Unreadable;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// More programs than this are not kept: those that were started longest ago are forgotten.
const MOST_RECORDS: usize = 256;
/// No record is as long as this, in bytes.
const LONGEST: u64 = 64 << 10;

/// Where what was learned is kept: `learned` in `HAWKEYE_STATE_DIR`, if that is set, else `/var/lib/hawkeye/learned`, for it is
/// to outlast a restart of the machine.
pub fn learned_dir() -> PathBuf {
    std::env::var_os("HAWKEYE_STATE_DIR")
        .map_or_else(|| "/var/lib/hawkeye".into(), PathBuf::from)
        .join("learned")
}

/// A folder of records.
#[derive(Debug)]
pub struct Learned {
    dir: PathBuf,
}

impl Learned {
    /// Opens a folder, and makes it if it is missing.
    ///
    /// # Errors
    /// It can't be made.
    pub fn open(dir: PathBuf) -> Result<Self, LinuxError> {
        // Who runs what is nobody else's business.
        let mut private = fs::DirBuilder::new();
        private.recursive(true).mode(0o700);
        private
            .create(&dir)
            .map_err(LinuxError::file("creating", &dir))?;
        Ok(Self { dir })
    }

    /// What is known of a program; `None` where that is nothing. A record that can't be understood is said to be so once, here, and
    /// counts as none.
    pub fn load(&self, executable: &Executable) -> Option<Record> {
        let path = self.file(executable);
        match read(&path) {
            // Two names may have one hash; one build's habits are not another's.
            Ok(record) => record.filter(|record| record.executable == *executable),
            Err(why) => {
                tracing::warn!(
                    "what was learned of {} is not used: {} {why}",
                    executable.path.display(),
                    path.display()
                );
                None
            }
        }
    }

    /// Keeps a record: on disk when this returns. The oldest ones go where there are too many.
    ///
    /// # Errors
    /// It can't be written.
    pub fn save(&self, record: &Record) -> Result<(), LinuxError> {
        let path = self.file(&record.executable);
        let new = path.with_extension("new");
        let write = || -> io::Result<()> {
            let mut private = OpenOptions::new();
            private.write(true).create(true).truncate(true).mode(0o600);
            let mut out = private.open(&new)?;
            serde_json::to_writer_pretty(&out, record)?;
            out.flush()?;
            out.sync_all()?;
            fs::rename(&new, &path)
        };
        write().map_err(LinuxError::file("writing", &path))?;
        self.forget_oldest();
        Ok(())
    }

    fn file(&self, executable: &Executable) -> PathBuf {
        self.dir.join(format!("{}.json", executable.file_name()))
    }

    /// Whatever can't be removed is left for the next time.
    fn forget_oldest(&self) {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut records: Vec<(SystemTime, PathBuf)> = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|e| e == "json"))
            .filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
            .collect();
        records.sort();
        let too_many = records.len().saturating_sub(MOST_RECORDS);
        for (_, path) in records.into_iter().take(too_many) {
            let _ = fs::remove_file(path);
        }
    }
}

fn read(path: &Path) -> Result<Option<Record>, Unreadable> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
        Ok(found) if found.len() > LONGEST => return Err(Unreadable::TooLong),
        Ok(_) => {}
    }
    Record::parse(&fs::read(path)?).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thp_settings::testing::Folder;

    fn program(name: &str) -> Executable {
        Executable {
            path: Path::new("/usr/bin").join(name),
            build: Build::Note("00ff".into()),
        }
    }

    fn learned(folder: &Folder) -> Learned {
        Learned::open(folder.0.join("learned")).expect("is made")
    }

    #[test]
    fn what_is_saved_is_known_again_by_its_build() {
        let folder = Folder::new("learned");
        let learned = learned(&folder);
        let record = Record::new(program("redis-server"));
        assert_eq!(learned.load(&program("redis-server")), None);
        learned.save(&record).expect("is written");
        assert_eq!(learned.load(&program("redis-server")), Some(record));
        let upgraded = Executable {
            build: Build::Note("0100".into()),
            ..program("redis-server")
        };
        assert_eq!(learned.load(&upgraded), None);
        assert_eq!(learned.load(&program("other")), None);
    }

    #[test]
    fn damaged_and_newer_files_count_as_none_and_are_written_anew() {
        let folder = Folder::new("learned-damaged");
        let learned = learned(&folder);
        let record = Record::new(program("a"));
        for text in ["", "{", "{\"version\": 99}", "[1]"] {
            fs::write(learned.file(&record.executable), text).expect("writes");
            assert_eq!(learned.load(&record.executable), None, "{text}");
        }
        learned.save(&record).expect("is written");
        assert!(learned.load(&record.executable).is_some());
    }

    #[test]
    fn their_number_is_bounded() {
        let folder = Folder::new("learned-many");
        let learned = learned(&folder);
        for n in 0..MOST_RECORDS + 3 {
            let record = Record::new(program(&n.to_string()));
            learned.save(&record).expect("is written");
        }
        let left = fs::read_dir(&learned.dir).expect("is there").count();
        assert_eq!(left, MOST_RECORDS);
        let last = program(&(MOST_RECORDS + 2).to_string());
        assert!(learned.load(&last).is_some(), "the newest stay");
    }
}
