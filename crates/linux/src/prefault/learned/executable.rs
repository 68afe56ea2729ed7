//! Which program it is: the executable's path, which build of it, and whose.

use object::read::{Object, ReadCache};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// An executable, as far as records of it are shared.
///
/// A process in a mount namespace of its own chooses its executable's path and contents. So the path
/// and the build alone would let any user write the record of another user's program. The user can't
/// be chosen, and neither can the manager's own mount namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Executable {
    /// Where it is, as the process sees it.
    pub path: PathBuf,
    /// Which of those that have been there.
    pub build: Build,
    /// The real user of the process, as the manager's user namespace numbers it. A set-user-ID
    /// program counts as its caller's.
    pub user: u32,
    /// Whether the process sees the same mounts as the manager: not one in a container.
    pub same_mounts: bool,
}

/// What tells one build from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Build {
    /// The linker's note, `NT_GNU_BUILD_ID`, in hexadecimal.
    Note(String),
    /// Where there is none: the file itself.
    File {
        /// Its inode.
        inode: u64,
        /// When it was last changed, in seconds since 1970.
        changed_s: i64,
        /// Its size.
        bytes: u64,
    },
}

impl Executable {
    /// What a process runs; `None` for kernel threads and processes that have ended or that others may not look at.
    pub fn of(pid: u32) -> Option<Self> {
        let link = format!("/proc/{pid}/exe");
        let path = std::fs::read_link(&link).ok()?;
        // By the process's own link: right in containers, and after an upgrade, too.
        let file = File::open(&link).ok()?;
        let found = file.metadata().ok()?;
        let build = note(file).map_or(
            Build::File {
                inode: found.ino(),
                changed_s: found.mtime(),
                bytes: found.size(),
            },
            Build::Note,
        );
        let text = path.to_string_lossy();
        let path = text.strip_suffix(" (deleted)").unwrap_or(&text).into();
        Some(Self {
            path,
            build,
            user: real_user(pid)?,
            same_mounts: mounts(pid)? == mounts(std::process::id())?,
        })
    }

    /// Name of its record: the program's, for people, and a number, for all else.
    pub(super) fn file_name(&self) -> String {
        // The same in every run of a build of ours; one of another that counts otherwise finds nothing, which does no harm.
        let mut hasher = DefaultHasher::new();
        (&self.path, self.user, self.same_mounts).hash(&mut hasher);
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let name: String = name.chars().filter(plain).take(40).collect();
        format!("{name}-{:016x}", hasher.finish())
    }
}

fn real_user(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Names a mount namespace.
fn mounts(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()
}

/// No larger file is searched for a note: symbols are read on the way.
const MOST_BYTES: u64 = 256 << 20;

fn note(file: File) -> Option<String> {
    if file.metadata().ok()?.len() > MOST_BYTES {
        return None;
    }
    let cache = ReadCache::new(file);
    let id = object::File::parse(&cache).ok()?.build_id().ok()??.to_vec();
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_know_ourselves() {
        let own = Executable::of(std::process::id()).expect("we are here");
        assert_eq!(Some(own.path.clone()), std::env::current_exe().ok());
        assert_eq!(Executable::of(std::process::id()), Some(own.clone()));
        assert!(own.file_name().starts_with("hawkeye_linux-"), "{own:?}");
        assert_eq!(Executable::of(u32::MAX >> 1), None);
        assert_eq!(own.user, nix::unistd::getuid().as_raw());
        assert!(own.same_mounts);
    }

    #[test]
    fn other_users_and_containers_have_records_of_their_own() {
        let own = Executable::of(std::process::id()).expect("we are here");
        let of_user = Executable {
            user: own.user + 1,
            ..own.clone()
        };
        let in_container = Executable {
            same_mounts: false,
            ..own.clone()
        };
        assert_ne!(own.file_name(), of_user.file_name());
        assert_ne!(own.file_name(), in_container.file_name());
        assert_ne!(of_user.file_name(), in_container.file_name());
    }

    #[test]
    fn names_of_files_are_plain() {
        let odd = Executable {
            path: "/opt/../a b/né/../c;d".into(),
            build: Build::Note(String::new()),
            user: 0,
            same_mounts: true,
        };
        let name = odd.file_name();
        assert!(name.starts_with("cd-") && !name.contains('/'), "{name}");
    }
}
