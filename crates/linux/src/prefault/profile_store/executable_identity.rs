//! Identifies a program: path, build and user of its executable.

use crate::processes::process;
use object::read::{Object, ReadCache};
use procfs::process::Process;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The identity of an executable under which records are shared.
///
/// A process in a mount namespace of its own chooses its executable's path and contents. So path
/// and build alone would let any user write the record of another user's program. A process can
/// choose neither its user nor the manager's mount namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExecutableIdentity {
    /// Path of the executable, as the process sees it.
    pub path: PathBuf,
    /// Build of the executable at that path.
    pub build: BuildIdentity,
    /// The real user id of the process, in the manager's user namespace. A set-user-ID program
    /// counts as its caller's.
    pub user: u32,
    /// Whether the process sees the same mounts as the manager, which one in a container does not.
    pub same_mounts: bool,
}

/// What distinguishes one build from another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildIdentity {
    /// The linker's note, `NT_GNU_BUILD_ID`, in hexadecimal.
    Note(String),
    /// The file itself, where there is no note.
    File {
        /// Its inode.
        inode: u64,
        /// When it was last changed, in seconds since 1970.
        changed_s: i64,
        /// Its size.
        bytes: u64,
    },
}

impl ExecutableIdentity {
    /// The executable of a process. `None` for kernel threads, processes that have ended, and
    /// processes that this one may not inspect.
    pub fn of_process(pid: u32) -> Option<Self> {
        let link = format!("/proc/{pid}/exe");
        let path = std::fs::read_link(&link).ok()?;
        // The process's own link is right in containers, and after an upgrade too.
        let file = File::open(&link).ok()?;
        let found = file.metadata().ok()?;
        let by_file = BuildIdentity::File {
            inode: found.ino(),
            changed_s: found.mtime(),
            bytes: found.size(),
        };
        let build = read_build_id(file).map_or(by_file, BuildIdentity::Note);
        let text = path.to_string_lossy();
        let path = text.strip_suffix(" (deleted)").unwrap_or(&text).into();
        Some(Self {
            path,
            build,
            user: process::read_proc_entry(pid, Process::status).ok()?.ruid,
            same_mounts: mount_namespace_of_pid(pid)?
                == mount_namespace_of_pid(std::process::id())?,
        })
    }

    /// File name of its record: the program's name for readers, and a hash that makes it unique.
    pub(super) fn profile_file_stem(&self) -> String {
        // The hash is the same in every run of one build of HawkEye. A build that hashes otherwise
        // finds no record, which does no harm.
        let mut hasher = DefaultHasher::new();
        (&self.path, self.user, self.same_mounts).hash(&mut hasher);
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let name: String = name.chars().filter(plain).take(40).collect();
        format!("{name}-{:016x}", hasher.finish())
    }
}

/// Names a mount namespace.
fn mount_namespace_of_pid(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()
}

/// A larger file is not searched for a note, because the search reads the symbols.
const MOST_BYTES: u64 = 256 << 20;

fn read_build_id(file: File) -> Option<String> {
    if file.metadata().ok()?.len() > MOST_BYTES {
        return None;
    }
    let cache = ReadCache::new(file);
    let id = object::File::parse(&cache).ok()?.build_id().ok()??.to_vec();
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
impl ExecutableIdentity {
    /// A program of root's in this machine's own mounts.
    pub(super) fn for_test(path: &str) -> Self {
        Self {
            path: path.into(),
            build: BuildIdentity::Note("00ff".into()),
            user: 0,
            same_mounts: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_executable_is_identified() {
        let own = ExecutableIdentity::of_process(std::process::id()).expect("this process exists");
        assert_eq!(Some(own.path.clone()), std::env::current_exe().ok());
        assert_eq!(ExecutableIdentity::of_process(std::process::id()), Some(own.clone()));
        assert!(own.profile_file_stem().starts_with("hawkeye_linux-"), "{own:?}");
        assert_eq!(ExecutableIdentity::of_process(u32::MAX >> 1), None);
        assert_eq!(own.user, nix::unistd::getuid().as_raw());
        assert!(own.same_mounts);
    }

    #[test]
    fn names_of_files_are_plain() {
        let name = ExecutableIdentity::for_test("/opt/../a b/né/../c;d").profile_file_stem();
        assert!(name.starts_with("cd-") && !name.contains('/'), "{name}");
    }
}
