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

use crate::error::{LinuxError, Result};
use crate::takeover::own_files::{self, Distrust};
use record::Unreadable;
use std::fs;
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
    /// It can't be made, or other users can change what is in it.
    pub fn open(dir: PathBuf) -> Result<Self> {
        // Who runs what is nobody else's business.
        own_files::make_folder(&dir, 0o700).map_err(|why| match why {
            Distrust::Io(error) => LinuxError::file("creating", &dir)(error),
            why => LinuxError::UnsafeFolder {
                path: dir.clone(),
                why: why.to_string(),
            },
        })?;
        Ok(Self { dir })
    }

    /// What is known of a program; `None` where that is nothing. A record that can't be used is set
    /// aside, said to be so in the log, and counts as none.
    pub fn load(&self, executable: &Executable) -> Option<Record> {
        let path = self.file(executable);
        match read(&path) {
            // Two names may have one hash; one build's habits are not another's.
            Ok(record) => record.filter(|record| record.executable == *executable),
            Err(why) => {
                let what = format!("what was learned of {} is", executable.path.display());
                own_files::set_aside_aloud(&what, &path, &why);
                None
            }
        }
    }

    /// Keeps a record: on disk when this returns. The oldest ones go where there are too many.
    ///
    /// # Errors
    /// It can't be written.
    pub fn save(&self, record: &Record) -> Result<()> {
        let path = self.file(&record.executable);
        let text = serde_json::to_vec_pretty(record).map_err(std::io::Error::other);
        text.and_then(|text| own_files::replace(&path, &text))
            .map_err(LinuxError::file("writing", &path))?;
        self.forget_oldest();
        Ok(())
    }

    fn file(&self, executable: &Executable) -> PathBuf {
        self.dir.join(format!("{}.json", executable.file_name()))
    }

    /// What can't be removed is left for the next time. Records that were set aside count, too.
    fn forget_oldest(&self) {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut records: Vec<(SystemTime, PathBuf)> = entries
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        records.sort();
        let too_many = records.len().saturating_sub(MOST_RECORDS);
        for (_, path) in records.into_iter().take(too_many) {
            let _ = fs::remove_file(path);
        }
    }
}

fn read(path: &Path) -> Result<Option<Record>, Unreadable> {
    let text = own_files::read(path, LONGEST)?;
    text.map(|text| Record::parse(&text)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::takeover::thp_settings::testing::Folder;

    fn program(name: &str) -> Executable {
        Executable {
            path: Path::new("/usr/bin").join(name),
            build: Build::Note("00ff".into()),
            user: 1000,
            same_mounts: true,
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
    fn another_user_neither_reads_nor_writes_a_record() {
        let folder = Folder::new("learned-users");
        let learned = learned(&folder);
        let of = |user, starts| {
            let executable = Executable {
                user,
                ..program("redis-server")
            };
            let mut record = Record::new(executable);
            record.starts = starts;
            record
        };
        let (victim, stranger) = (of(100, 2), of(1000, 9));
        learned.save(&victim).expect("is written");
        assert_eq!(learned.load(&stranger.executable), None);
        learned.save(&stranger).expect("is written");
        assert_eq!(learned.load(&victim.executable), Some(victim));
    }

    #[test]
    fn files_that_can_not_be_used_are_set_aside_and_written_anew() {
        let folder = Folder::new("learned-damaged");
        let learned = learned(&folder);
        let record = Record::new(program("a"));
        let path = learned.file(&record.executable);
        let long = " ".repeat(LONGEST as usize + 1);
        for text in [
            "",
            "{",
            "{\"version\": 99}",
            "{\"version\": 1}",
            "[1]",
            &long,
        ] {
            fs::write(&path, text).expect("writes");
            assert_eq!(learned.load(&record.executable), None, "{text}");
            assert!(!path.exists(), "it is set aside");
        }
        fs::create_dir(&path).expect("makes");
        assert_eq!(learned.load(&record.executable), None);
        learned.save(&record).expect("is written");
        assert!(learned.load(&record.executable).is_some());
        let aside = fs::read_dir(&learned.dir).expect("is there").count() - 1;
        assert_eq!(aside, 7, "nothing is lost");
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
