//! What was learned of programs, stored by executable for their next start (the outlook of
//! Wienand's thesis, 7.2.3).
//!
//! ```text
//!  a process starts --> executable_identity --load_profile--> profile_recorder --> warm start,
//!                       (path, build, user)                     |      ^           page sizes
//!  learned/NAME-HASH.json <-- profile_saver <--- at its end ----'      `-- samples of the process
//! ```
//!
//! Each program has one small file, in a separate folder that may be emptied at any time. To forget
//! a program, delete its file. Read [`ProgramProfile`] first, which is the file's content, then
//! `profile_recorder`.

mod executable_identity;
mod profile_recorder;
mod profile_saver;
mod program_profile;

pub use executable_identity::{BuildIdentity, ExecutableIdentity};
pub use program_profile::ProgramProfile;

pub(crate) use profile_recorder::ProfileRecorder;

use crate::error::{LinuxError, Result};
use crate::machine_lease::own_files;
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

/// At most this many programs are kept; those started longest ago are forgotten first.
const MAX_RECORDS: usize = 256;
/// Upper bound of a record's size, in bytes.
const MAX_RECORD_BYTES: u64 = 64 << 10;

/// The folder of records: `learned` in `HAWKEYE_STATE_DIR` if that is set, else
/// `/var/lib/hawkeye/learned`. It must outlast a restart of the machine.
pub fn profile_dir() -> PathBuf {
    std::env::var_os("HAWKEYE_STATE_DIR")
        .map_or_else(|| "/var/lib/hawkeye".into(), PathBuf::from)
        .join("learned")
}

/// A folder of records.
#[derive(Clone, Debug)]
pub struct ProfileStore {
    dir: PathBuf,
}

impl ProfileStore {
    /// Opens a folder, and creates it if it is missing. Fails if other users can change what is in
    /// it.
    pub fn open(dir: PathBuf) -> Result<Self> {
        // Other users may not see which user runs which program.
        own_files::create_trusted_folder(&dir, 0o700)?;
        Ok(Self { dir })
    }

    /// The record of a program, if there is one. A record that cannot be used is set aside and
    /// logged, and counts as none.
    pub fn load_profile(&self, executable: &ExecutableIdentity) -> Option<ProgramProfile> {
        let path = self.profile_path(executable);
        let what = format!("the learned record of {} is", executable.path.display());
        let parse = ProgramProfile::parse;
        let record = own_files::read_or_set_aside(&what, &path, MAX_RECORD_BYTES, parse);
        // Two paths may have one hash, and one build's record does not apply to another.
        record.filter(|record| record.executable == *executable)
    }

    /// Stores a record; it is on disk when this returns. Deletes the oldest ones if there are too
    /// many.
    pub fn save_profile(&self, record: &ProgramProfile) -> Result<()> {
        let path = self.profile_path(&record.executable);
        let text = serde_json::to_vec_pretty(record).map_err(std::io::Error::other);
        text.and_then(|text| own_files::replace_file_atomically(&path, &text))
            .map_err(LinuxError::wrap_io_error("writing", &path))?;
        self.delete_oldest_profiles();
        Ok(())
    }

    fn profile_path(&self, executable: &ExecutableIdentity) -> PathBuf {
        self.dir.join(format!("{}.json", executable.profile_file_stem()))
    }

    /// A file that cannot be removed stays until the next call. Counts records set aside too.
    fn delete_oldest_profiles(&self) {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut records: Vec<(SystemTime, PathBuf)> = entries
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .collect();
        records.sort();
        let too_many = records.len().saturating_sub(MAX_RECORDS);
        for (_, path) in records.into_iter().take(too_many) {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_lease::thp_settings::testing::TestFolder;

    fn program(name: &str) -> ExecutableIdentity {
        ExecutableIdentity::for_test(&format!("/usr/bin/{name}"))
    }

    fn learned(name: &str) -> (TestFolder, ProfileStore) {
        let folder = TestFolder::new(name);
        let learned =
            ProfileStore::open(folder.0.join("learned")).expect("the folder can be created");
        (folder, learned)
    }

    fn count(learned: &ProfileStore) -> usize {
        let files = fs::read_dir(&learned.dir);
        files.expect("the folder exists").count()
    }

    #[test]
    fn a_saved_record_is_found_by_its_build() {
        let (_folder, learned) = learned("learned");
        let mut record = ProgramProfile::new(program("redis-server"));
        record.pages.insert(65_536, 3);
        record.overhead_percent = Some(12.5);
        assert_eq!(learned.load_profile(&record.executable), None);
        learned.save_profile(&record).expect("the record can be written");
        assert_eq!(learned.load_profile(&record.executable), Some(record));
        let mut upgraded = program("redis-server");
        upgraded.build = BuildIdentity::Note("0100".into());
        assert_eq!(learned.load_profile(&upgraded), None);
        assert_eq!(learned.load_profile(&program("other")), None);
    }

    #[test]
    fn other_users_and_containers_neither_read_nor_write_a_record() {
        let (_folder, learned) = learned("learned-users");
        let of = |user, same_mounts, starts| {
            let mut record = ProgramProfile::new(program("redis-server"));
            record.starts = starts;
            (record.executable.user, record.executable.same_mounts) = (user, same_mounts);
            record
        };
        let records = [of(100, true, 2), of(1000, true, 9), of(100, false, 5)];
        for record in &records {
            assert_eq!(learned.load_profile(&record.executable), None);
            learned.save_profile(record).expect("the record can be written");
        }
        for record in records {
            assert_eq!(learned.load_profile(&record.executable), Some(record));
        }
    }

    #[test]
    fn files_that_can_not_be_used_are_set_aside_and_written_anew() {
        let (_folder, learned) = learned("learned-damaged");
        let record = ProgramProfile::new(program("a"));
        let path = learned.profile_path(&record.executable);
        let long = " ".repeat(MAX_RECORD_BYTES as usize + 1);
        let (newer, older) = ("{\"version\": 99}", "{\"version\": 1}");
        for text in ["", "{", newer, older, "[1]", &long] {
            fs::write(&path, text).expect("the file can be written");
            assert_eq!(learned.load_profile(&record.executable), None, "{text}");
            assert!(!path.exists(), "the file is set aside");
        }
        fs::create_dir(&path).expect("the folder can be created");
        assert_eq!(learned.load_profile(&record.executable), None);
        learned.save_profile(&record).expect("the record can be written");
        assert!(learned.load_profile(&record.executable).is_some());
        assert_eq!(count(&learned), 7 + 1, "no file is lost");
    }

    #[test]
    fn their_number_is_bounded() {
        let (_folder, learned) = learned("learned-many");
        for n in 0..MAX_RECORDS + 3 {
            let record = ProgramProfile::new(program(&n.to_string()));
            learned.save_profile(&record).expect("the record can be written");
        }
        assert_eq!(count(&learned), MAX_RECORDS);
        let last = program(&(MAX_RECORDS + 2).to_string());
        assert!(learned.load_profile(&last).is_some(), "the newest record stays");
    }
}
