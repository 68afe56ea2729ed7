//! Identifies a program: path, build and user of its executable.

use crate::processes::process;
use object::Endianness;
use object::elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::{FileHeader, ProgramHeader};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
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
    /// The linker's note, `NT_GNU_BUILD_ID`, in hexadecimal. Up to 64 bytes, in the first 64 KiB of
    /// a 64-bit file.
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
            user: process::read_proc_entry(pid, process::read_status).ok()?.ruid,
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

/// Bytes of a file that are searched for the note. Linkers put it near the start. Its owner may
/// have written any tables, so no range that they name is read.
const HEAD_BYTES: u64 = 64 << 10;
/// Segments of notes that are searched. Linkers write up to three.
const MOST_NOTE_SEGMENTS: usize = 16;
/// A longer note would make the record too long. Linkers write up to 32 bytes.
const LONGEST_ID: usize = 64;

/// The note of a 64-bit ELF file.
fn read_build_id(file: impl Read) -> Option<String> {
    let mut head = Vec::new();
    file.take(HEAD_BYTES).read_to_end(&mut head).ok()?;
    let head = head.as_slice();
    let header = FileHeader64::<Endianness>::parse(head).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, head).ok()?;
    let segments = segments.iter().filter_map(|it| it.notes(endian, head).ok()?);
    let mut notes = segments.take(MOST_NOTE_SEGMENTS).flatten().flatten();
    let id = notes.find(|note| {
        note.name() == ELF_NOTE_GNU
            && note.n_type(endian) == NT_GNU_BUILD_ID
            && note.desc().len() <= LONGEST_ID
    })?;
    Some(id.desc().iter().map(|byte| format!("{byte:02x}")).collect())
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
    use crate::processes::hostile_elf::{CountingReader, elf_with_ranges};
    use object::elf::{PT_NOTE, SHT_NOTE};
    use std::io::{Seek, Write};

    /// Reads the note of a sparse file of 4 MiB that begins with these bytes. Returns the number of
    /// bytes read, too.
    fn read_counted(start: &[u8]) -> (Option<String>, u64) {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(start).expect("it is written");
        file.set_len(4 << 20).expect("it is sparse");
        file.rewind().expect("it is a file");
        let mut reader = CountingReader { inner: file, bytes: 0 };
        (read_build_id(&mut reader), reader.bytes)
    }

    #[test]
    fn few_bytes_are_read_whatever_the_tables_name() {
        // An empty note has 12 bytes.
        let range = |n: u64| 1 << 20..(1 << 20) + 12 * (80_000 + n);
        let ranges: Vec<_> = (0..64).map(range).collect();
        let (id, bytes) = read_counted(&elf_with_ranges(PT_NOTE, SHT_NOTE, &ranges));
        assert_eq!(id, None);
        assert!(bytes <= HEAD_BYTES, "{bytes} bytes were read");
    }

    #[test]
    fn the_note_is_found_and_a_long_one_is_refused() {
        for (length, found) in [(20u32, true), (64, true), (68, false)] {
            // The tables of one range end at 248.
            let range = 248..248 + 16 + u64::from(length);
            let mut file = elf_with_ranges(PT_NOTE, SHT_NOTE, &[range]);
            // Lengths of the name and of the id, and the type.
            file.extend([4, length, NT_GNU_BUILD_ID].iter().flat_map(|it| it.to_le_bytes()));
            file.extend(b"GNU\0");
            file.extend((0..length).map(|_| 0xa5));
            let id = found.then(|| "a5".repeat(length as usize));
            assert_eq!(read_counted(&file).0, id, "{length} bytes");
        }
    }

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
