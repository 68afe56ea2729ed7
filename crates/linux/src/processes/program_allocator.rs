//! What allocates a program's memory, as far as its file and the libraries that it names show it.

use crate::error::Result;
use crate::processes::{memory_maps, process};
use object::Endianness;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};
use object::read::{ReadCache, ReadCacheOps, ReadRef};
use procfs::process::{MMapPath, Process};
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What allocates a program's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramAllocator {
    /// A Java virtual machine, started by its launcher `java`.
    Java {
        /// The version of the JDK, where its `release` file names one: 8, 17.
        version: Option<u32>,
    },
    /// PHP's own memory manager.
    Php,
    /// The Go runtime.
    Go,
    /// jemalloc.
    Jemalloc {
        /// The environment variable that this build reads, for example `_RJEM_MALLOC_CONF`.
        variable: String,
    },
    /// mimalloc.
    Mimalloc {
        /// The environment variable of this version's option for large pages.
        variable: &'static str,
    },
    /// tcmalloc of gperftools.
    Tcmalloc,
    /// The GNU C library.
    Glibc {
        /// Whether it has the tunable `glibc.malloc.hugetlb` (2.35 and later).
        has_hugetlb: bool,
    },
    /// None of these, or a file that can't be read.
    Unknown,
}

/// A program, as found through `PATH`, symbolic links and `#!`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedProgram {
    /// The file that the kernel runs: of a script, its interpreter.
    pub path: PathBuf,
    /// What allocates its memory.
    pub allocator: ProgramAllocator,
}

/// Libraries that are read at most, so that a broken file cannot keep us busy.
const MOST_LIBRARIES: usize = 256;
/// Bytes of a file that are read at most.
const MOST_READ_BYTES: u64 = 128 << 20;
/// Bytes that a read counts as at least, so that their number is bounded, too.
const LEAST_READ_BYTES: u64 = 4096;
/// Bytes of a JDK's `release` file that are read at most.
const MOST_RELEASE_BYTES: u64 = 64 << 10;
/// `#!` of a `#!`: more than the kernel allows.
const MOST_INTERPRETERS: usize = 5;

/// Looks at the program that `command` would start. `variable` returns a variable of its
/// environment. A program that cannot be followed or read may start all the same: its allocator is
/// unknown.
pub fn inspect_program(
    command: &Path,
    variable: impl Fn(&str) -> Option<OsString>,
) -> io::Result<InspectedProgram> {
    let found = find_program_file(command, &variable)?;
    let Ok(path) = follow_interpreters_and_links(&found, &variable) else {
        return Ok(InspectedProgram { path: found, allocator: ProgramAllocator::Unknown });
    };
    let allocator = ElfFacts::read(&path).map_or(ProgramAllocator::Unknown, |program| {
        let libraries = ProgramLibraries::of_program(&path, &program, &variable);
        detect_allocator(&path, &program, RodataSection::read(&path), &libraries)
    });
    Ok(InspectedProgram { path, allocator })
}

/// The file that the kernel runs for a program: of a script, its interpreter.
fn follow_interpreters_and_links(
    program: &Path,
    variable: &impl Fn(&str) -> Option<OsString>,
) -> io::Result<PathBuf> {
    let mut path = program.to_owned();
    for _ in 0..MOST_INTERPRETERS {
        match interpreter_of_script(&path)? {
            Some(interpreter) => path = find_program_file(&interpreter, variable)?,
            None => break,
        }
    }
    fs::canonicalize(path)
}

/// What allocates the memory of a running process: by its file and the libraries that it has
/// mapped.
pub fn allocator_of_process(pid: u32) -> Result<ProgramAllocator> {
    let path = process::read_proc_entry(pid, Process::exe)?;
    let mapped = memory_maps::read_maps(pid, |map| match map.pathname {
        MMapPath::Path(path) => Some(path),
        _ => None,
    })?;
    // The process may see other mounts.
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let seen = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    let libraries = mapped.into_iter().filter_map(|path| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        Some((name, Some(seen(&path))))
    });
    let libraries = ProgramLibraries(libraries.collect());
    let exe = PathBuf::from(format!("/proc/{pid}/exe"));
    let Some(mut program) = ElfFacts::read(&exe) else {
        return Ok(ProgramAllocator::Unknown);
    };
    program.interpreter = program.interpreter.map(|linker| seen(&linker));
    let rodata = RodataSection::read(&exe);
    Ok(detect_allocator(&seen(&path), &program, rodata, &libraries))
}

/// The file of a command: as `execvp` finds it.
fn find_program_file(
    command: &Path,
    variable: &impl Fn(&str) -> Option<OsString>,
) -> io::Result<PathBuf> {
    if command.as_os_str().as_encoded_bytes().contains(&b'/') {
        return fs::metadata(command).map(|_| command.to_owned());
    }
    let folders = variable("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let files = std::env::split_paths(&folders).map(|folder| folder.join(command));
    let is_executable = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    let found = { files }.find(is_executable);
    found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "it is not in PATH"))
}

/// Opens a file for reading. A pipe or a device in its place is an error: another user may own the
/// folder, and reading them could wait for ever. They are not opened at all, because that alone can
/// act: it starts a watchdog, and the end of it rewinds a tape.
fn open_regular_file(path: &Path) -> io::Result<File> {
    let open = |path: &Path, flags| OpenOptions::new().read(true).custom_flags(flags).open(path);
    let found = open(path, libc::O_PATH)?;
    if !found.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    // The file that was checked, whatever is at its path now.
    let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
    open(Path::new(&itself), libc::O_NONBLOCK)
}

/// The interpreter after `#!`. Of `/usr/bin/env NAME` it is the name.
fn interpreter_of_script(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut head = Vec::new();
    open_regular_file(path)?.take(256).read_to_end(&mut head)?;
    let Some(rest) = head.strip_prefix(b"#!") else {
        return Ok(None);
    };
    let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_whitespace();
    let first = words.next().map(PathBuf::from);
    let is_env = first.as_ref().is_some_and(|it| it.ends_with("env"));
    let named = words.find(|word| !word.starts_with('-') && !word.contains('='));
    Ok(match (is_env, named) {
        (true, Some(name)) => Some(name.into()),
        _ => first,
    })
}

fn detect_allocator(
    path: &Path,
    program: &ElfFacts,
    rodata: RodataSection,
    libraries: &ProgramLibraries,
) -> ProgramAllocator {
    if program.go {
        return ProgramAllocator::Go;
    }
    let is_launcher = path.file_name().is_some_and(|name| name == "java");
    if is_launcher && libraries.has_library_with_prefix("libjli.so") {
        return ProgramAllocator::Java { version: jdk_version_of_launcher(path) };
    }
    if rodata.contains(b"USE_ZEND_ALLOC_HUGE_PAGES\0") {
        return ProgramAllocator::Php;
    }
    // An allocator beside the C library replaces the C library's.
    let jemalloc = rodata.jemalloc_variable().or_else(|| {
        let read = RodataSection::read(libraries.find_path_by_prefix("libjemalloc.so")?)
            .jemalloc_variable();
        Some(read.unwrap_or_else(|| "MALLOC_CONF".to_owned()))
    });
    if let Some(variable) = jemalloc {
        return ProgramAllocator::Jemalloc { variable };
    }
    let mimalloc = rodata.mimalloc_variable().or_else(|| {
        RodataSection::read(libraries.find_path_by_prefix("libmimalloc")?).mimalloc_variable()
    });
    if let Some(variable) = mimalloc {
        return ProgramAllocator::Mimalloc { variable };
    }
    if libraries.has_library_with_prefix("libtcmalloc") {
        return ProgramAllocator::Tcmalloc;
    }
    if libraries.has_library_with_prefix("libc.so.6") {
        let linker = program.interpreter.as_deref().and_then(|linker| {
            let mut bytes = Vec::new();
            let file = open_regular_file(linker).ok()?;
            file.take(MOST_READ_BYTES).read_to_end(&mut bytes).ok()?;
            Some(RodataSection(bytes))
        });
        return ProgramAllocator::Glibc {
            has_hugetlb: linker.is_some_and(|linker| linker.contains(b"glibc.malloc.hugetlb")),
        };
    }
    ProgramAllocator::Unknown
}

/// The version in `release` of the JDK that a launcher belongs to.
fn jdk_version_of_launcher(launcher: &Path) -> Option<u32> {
    let home = launcher.parent()?.parent()?;
    // In JDK 8 the launcher may be in jre/bin.
    let homes = [Some(home), home.parent()];
    let mut releases = homes.into_iter().flatten().map(|home| home.join("release"));
    let release = releases.find_map(|path| {
        let file = open_regular_file(&path).ok()?;
        io::read_to_string(file.take(MOST_RELEASE_BYTES)).ok()
    })?;
    let line = release.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    let version = line.trim_matches('"');
    // 1.8.0_402 is version 8.
    let version = version.strip_prefix("1.").unwrap_or(version);
    version.split(['.', '-', '+', '_']).next()?.parse().ok()
}

/// The libraries that a program loads: file names with the paths at which they were found.
struct ProgramLibraries(Vec<(String, Option<PathBuf>)>);

impl ProgramLibraries {
    fn of_program(
        program_path: &Path,
        program: &ElfFacts,
        variable: &impl Fn(&str) -> Option<OsString>,
    ) -> Self {
        let preload = variable("LD_PRELOAD").unwrap_or_default();
        let preload = preload.to_string_lossy();
        let preload = preload.split([':', ' ']).filter(|name| !name.is_empty());
        let mut known = BTreeSet::new();
        let mut found = Vec::new();
        let folders = library_folders(program_path, program, variable);
        let mut to_read: VecDeque<String> = preload.map(str::to_owned).collect();
        to_read.extend(program.needed.iter().cloned());
        while let Some(name) = to_read.pop_front() {
            if found.len() >= MOST_LIBRARIES || !known.insert(name.clone()) {
                continue;
            }
            let path = match name.contains('/') {
                true => Some(PathBuf::from(&name)),
                false => folders.iter().map(|it| it.join(&name)).find(|it| it.exists()),
            };
            let read = path.as_deref().and_then(ElfFacts::read);
            to_read.extend(read.into_iter().flat_map(|library| library.needed));
            let file_name = name.rsplit('/').next().unwrap_or_default();
            found.push((file_name.to_owned(), path));
        }
        Self(found)
    }

    fn has_library_with_prefix(&self, start: &str) -> bool {
        self.0.iter().any(|(name, _)| name.starts_with(start))
    }

    fn find_path_by_prefix(&self, start: &str) -> Option<&Path> {
        let mut named = self.0.iter().filter(|(name, _)| name.starts_with(start));
        named.find_map(|(_, path)| path.as_deref())
    }
}

/// Where libraries are looked for: a few folders too many do no harm.
fn library_folders(
    path: &Path,
    program: &ElfFacts,
    variable: &impl Fn(&str) -> Option<OsString>,
) -> Vec<PathBuf> {
    let origin = path.parent().unwrap_or(Path::new("/"));
    let origin = origin.to_string_lossy();
    let of_program = program.run_path.iter().flat_map(|path| path.split(':'));
    let of_program = of_program.map(|folder| {
        let folder = folder.replace("$ORIGIN", &origin);
        PathBuf::from(folder.replace("${ORIGIN}", &origin))
    });
    let of_user = variable("LD_LIBRARY_PATH").unwrap_or_default();
    let of_user: Vec<PathBuf> = std::env::split_paths(&of_user).collect();
    let arch = std::env::consts::ARCH;
    let of_arch = [format!("/lib/{arch}-linux-gnu"), format!("/usr/lib/{arch}-linux-gnu")];
    let usual = ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"].map(PathBuf::from);
    of_program.chain(of_user).chain(of_arch.map(PathBuf::from)).chain(usual).collect()
}

/// A file of which a limited number of bytes is read. Its tables may name any ranges, and a sparse
/// file may have any size. `ReadCache` keeps all that was read.
struct BoundedReads<R: ReadCacheOps> {
    cache: ReadCache<R>,
    left_bytes: Cell<u64>,
}

impl<R: ReadCacheOps> BoundedReads<R> {
    fn new(file: R, most_bytes: u64) -> Self {
        Self { cache: ReadCache::new(file), left_bytes: Cell::new(most_bytes) }
    }

    fn count_read(&self, bytes: u64) -> Result<(), ()> {
        let left = self.left_bytes.get().checked_sub(bytes.max(LEAST_READ_BYTES)).ok_or(())?;
        self.left_bytes.set(left);
        Ok(())
    }
}

impl<'a, R: ReadCacheOps> ReadRef<'a> for &'a BoundedReads<R> {
    fn len(self) -> Result<u64, ()> {
        self.cache.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.count_read(size)?;
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        // `ReadCache` reads no more than this.
        self.count_read(LEAST_READ_BYTES)?;
        self.cache.read_bytes_at_until(range, delimiter)
    }
}

/// What the header of an ELF file of 64 bits says.
#[derive(Debug)]
struct ElfFacts {
    interpreter: Option<PathBuf>,
    needed: Vec<String>,
    run_path: Vec<String>,
    go: bool,
}

impl ElfFacts {
    /// `None` for a file that is not such a file, or is damaged.
    fn read(path: &Path) -> Option<Self> {
        Self::parse(&BoundedReads::new(open_regular_file(path).ok()?, MOST_READ_BYTES))
    }

    fn parse(data: &BoundedReads<impl ReadCacheOps>) -> Option<Self> {
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, data).ok()?;
        let interpreter = segments
            .iter()
            .find_map(|segment| segment.interpreter(endian, data).ok()?)
            .map(|path| PathBuf::from(String::from_utf8_lossy(path).into_owned()));
        let sections = header.sections(endian, data).ok()?;
        let dynamic = sections.dynamic(endian, data).ok().flatten();
        let dynamic = dynamic.and_then(|(entries, strings)| {
            Some((entries, sections.strings(endian, data, strings).ok()?))
        });
        let texts = |tags: &[u32]| -> Vec<String> {
            let Some((entries, strings)) = dynamic else {
                return Vec::new();
            };
            let is_wanted = |tag| tags.contains(&tag);
            let wanted = entries.iter().filter(|it| it.tag32(endian).is_some_and(is_wanted));
            let offsets = wanted.filter_map(|entry| u32::try_from(entry.d_val(endian)).ok());
            let texts = offsets.filter_map(|offset| strings.get(offset).ok());
            texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect()
        };
        Some(Self {
            interpreter,
            needed: texts(&[DT_NEEDED]),
            run_path: texts(&[DT_RUNPATH, DT_RPATH]),
            go: sections.section_by_name(endian, b".go.buildinfo").is_some(),
        })
    }
}

/// The section `.rodata` of an ELF file. Empty if it cannot be read.
struct RodataSection(Vec<u8>);

impl RodataSection {
    fn read(path: &Path) -> Self {
        Self(Self::read_rodata(path).unwrap_or_default())
    }

    fn read_rodata(path: &Path) -> Option<Vec<u8>> {
        let data = &BoundedReads::new(open_regular_file(path).ok()?, MOST_READ_BYTES);
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, data).ok()?;
        let (_, section) = sections.section_by_name(endian, b".rodata")?;
        Some(section.data(endian, data).ok()?.to_owned())
    }

    fn contains(&self, part: &[u8]) -> bool {
        self.0.windows(part.len()).any(|window| window == part)
    }

    fn strings(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == 0)
    }

    fn has_string(&self, string: &str) -> bool {
        self.strings().any(|found| found == string.as_bytes())
    }

    /// The variable from which jemalloc reads its options. Builds differ by a prefix.
    fn jemalloc_variable(&self) -> Option<String> {
        let is_plain = |byte: &u8| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_');
        let is_name = |text: &&[u8]| text.ends_with(b"MALLOC_CONF") && text.iter().all(is_plain);
        let name = self.strings().find(is_name)?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    /// mimalloc names its options in lower case; 1.x and 2.x differ.
    fn mimalloc_variable(&self) -> Option<&'static str> {
        if !self.contains(b"mimalloc") {
            None
        } else if self.has_string("allow_large_os_pages") {
            Some("MIMALLOC_ALLOW_LARGE_OS_PAGES")
        } else if self.has_string("large_os_pages") {
            Some("MIMALLOC_LARGE_OS_PAGES")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests;
