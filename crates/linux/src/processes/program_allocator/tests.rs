//! Programs, scripts and files that only look like them.

use super::*;
use crate::processes::hostile_elf::{CountingReader, elf_with_ranges};
use object::elf::{PT_INTERP, PT_NOTE, SHT_DYNAMIC, SHT_NOTE};
use proptest::prelude::*;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

fn own_variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("the script is written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is executable");
    path
}

#[test]
fn a_program_of_the_c_library_is_recognised_through_path_links_and_scripts() {
    let sh = inspect_program(Path::new("sh"), own_variable).expect("there is a shell");
    let direct = inspect_program(&sh.path, own_variable).expect("the shell's file");
    assert_eq!(sh, direct);
    let folder = tempfile::tempdir().expect("a folder");
    let inner = script(folder.path(), "inner", "#!/usr/bin/env sh\nexit\n");
    let outer = format!("#! {}\n", inner.display());
    let outer = script(folder.path(), "outer", &outer);
    let found = inspect_program(&outer, own_variable).expect("it is found");
    assert_eq!(found.path, sh.path);
}

#[test]
fn a_missing_program_is_an_error_that_says_so() {
    let path = |name: &str| (name == "PATH").then(|| OsString::from("/nowhere"));
    let error = inspect_program(Path::new("sh"), path).expect_err("there is none");
    assert!(error.to_string().contains("PATH"), "{error}");
    let missing = inspect_program(Path::new("/nowhere/sh"), path);
    assert_eq!(missing.map_err(|error| error.kind()), Err(io::ErrorKind::NotFound));
}

/// env's option may have an argument, which is then taken for the program.
#[test]
fn a_script_that_cannot_be_followed_has_an_unknown_allocator() {
    let folder = tempfile::tempdir().expect("a folder");
    for options in ["-u HAWKEYE_IS_NO_PROGRAM", "-C /"] {
        let text = format!("#!/usr/bin/env -S {options} sh\n");
        let script = script(folder.path(), "script", &text);
        let found = inspect_program(&script, own_variable).expect("it may start");
        assert_eq!(found.allocator, ProgramAllocator::Unknown, "{options}");
    }
}

#[test]
fn a_program_is_found_in_a_folder_whose_name_is_no_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().join(OsStr::from_bytes(b"\xff"));
    fs::create_dir(&folder).expect("the folder can be created");
    script(&folder, "in-path", "#!/bin/sh\n");
    let path = |name: &str| (name == "PATH").then(|| folder.clone().into_os_string());
    assert!(inspect_program(Path::new("in-path"), path).is_ok());
}

#[test]
fn a_pipe_in_the_place_of_a_program_is_no_program_and_is_not_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let found = inspect_program(&pipe, own_variable).expect("a file of any kind is found");
    assert_eq!(found.allocator, ProgramAllocator::Unknown);
    assert!(ElfFacts::read(&pipe).is_none());
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_not_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let path = pipe.clone();
    // This open returns as soon as the pipe is opened for reading.
    let writer = std::thread::spawn(move || OpenOptions::new().write(true).open(path));
    for _ in 0..100 {
        assert!(open_regular_file(&pipe).is_err());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(!writer.is_finished(), "the pipe was opened");
    File::open(&pipe).expect("the pipe is opened for reading");
    assert!(writer.join().expect("the thread ends").is_ok());
}

#[test]
fn a_preloaded_allocator_replaces_the_c_librarys() {
    let folder = tempfile::tempdir().expect("a folder");
    // Its name is all that counts where the library cannot be read.
    let preload = folder.path().join("libtcmalloc.so.4");
    let variable = |name: &str| match name {
        "LD_PRELOAD" => Some(preload.clone().into_os_string()),
        _ => own_variable(name),
    };
    let found = inspect_program(Path::new("sh"), variable).expect("there is a shell");
    assert_eq!(found.allocator, ProgramAllocator::Tcmalloc);
}

#[test]
fn a_running_process_is_recognised_by_what_it_has_mapped() {
    let own = allocator_of_process(std::process::id()).expect("this process exists");
    let exe = Path::new("/proc/self/exe");
    let file = inspect_program(exe, own_variable).expect("its file").allocator;
    assert_eq!(own, file);
    assert!(allocator_of_process(u32::MAX >> 1).is_err());
}

#[test]
fn variables_are_read_from_constants() {
    let jemalloc = |text: &str| RodataSection(text.into()).jemalloc_variable();
    let found = jemalloc("abc\0_RJEM_MALLOC_CONF\0the variable MALLOC_CONF\0");
    assert_eq!(found.as_deref(), Some("_RJEM_MALLOC_CONF"));
    assert_eq!(jemalloc("the variable MALLOC_CONF\0"), None);
    let mimalloc = |text: &str| RodataSection(text.into()).mimalloc_variable();
    let large = mimalloc("mimalloc: error\0allow_large_os_pages\0");
    assert_eq!(large, Some("MIMALLOC_ALLOW_LARGE_OS_PAGES"));
    assert_eq!(mimalloc("allow_large_os_pages\0"), None);
}

#[test]
fn few_bytes_are_read_whatever_the_tables_name() {
    let most = 1 << 20;
    let count_read = |file: File, most| {
        let mut counting = CountingReader { inner: file, bytes: 0 };
        let found = ElfFacts::parse(&BoundedReads::new(&mut counting, most));
        (found, counting.bytes)
    };
    // No zero ends these names of interpreters, so that one after the other is read.
    let ranges: Vec<_> = (0..64).map(|n| 8192..700_000 + n).collect();
    let mut unending = elf_with_ranges(PT_INTERP, SHT_NOTE, &ranges);
    unending.resize(1 << 20, 0xff);
    let sparse = 4096..128 << 20;
    let huge = elf_with_ranges(PT_NOTE, SHT_DYNAMIC, &[sparse]);
    for (start, bytes) in [(unending, 1 << 20), (huge, 128 << 20)] {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&start).expect("it is written");
        file.set_len(bytes).expect("it is sparse");
        let (_, read) = count_read(file, most);
        assert!(read <= most, "{read} bytes were read");
    }
    let own = File::open("/proc/self/exe").expect("our own file");
    assert!(count_read(own, MOST_READ_BYTES).0.is_some());
}

#[test]
fn a_release_file_is_read_only_where_it_is_short_and_regular() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(folder.path().join("jre/bin")).expect("a folder");
    let launcher = folder.path().join("jre/bin/java");
    let version = "JAVA_VERSION=\"17\"\n";
    fs::write(folder.path().join("release"), "JAVA_VERSION=\"8\"\n").expect("it is written");
    let release = folder.path().join("jre/release");
    let replace = |put: &dyn Fn(&Path)| {
        put(&release);
        let found = jdk_version_of_launcher(&launcher);
        fs::remove_file(&release).expect("it was there");
        found
    };
    let link = |path: &Path| symlink("/dev/null", path).expect("a link");
    assert_eq!(replace(&link), Some(8));
    let pipe_at = folder.path().join("pipe");
    let pipe = |path: &Path| {
        nix::unistd::mkfifo(&pipe_at, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        symlink(&pipe_at, path).expect("a link");
        // A reader that waits gets another version. Without one, the thread waits.
        let pipe_at = pipe_at.clone();
        std::thread::spawn(move || {
            let pipe = OpenOptions::new().write(true).open(pipe_at);
            pipe.and_then(|mut pipe| pipe.write_all(version.as_bytes()))
        });
    };
    assert_eq!(replace(&pipe), Some(8));
    let long = |path: &Path| {
        let before = "\n".repeat(64 << 10);
        fs::write(path, before + version).expect("it is written");
    };
    assert_eq!(replace(&long), None);
    let short = |path: &Path| fs::write(path, version).expect("it is written");
    assert_eq!(replace(&short), Some(17));
}

#[test]
fn the_version_of_a_jdk_is_read_from_its_release_file() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("bin")).expect("a folder");
    let launcher = folder.path().join("bin/java");
    assert_eq!(jdk_version_of_launcher(&launcher), None);
    for (text, version) in [("1.8.0_402", 8), ("17.0.15", 17), ("24", 24)] {
        let release = format!("IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"{text}\"\n");
        fs::write(folder.path().join("release"), release).expect("it is written");
        assert_eq!(jdk_version_of_launcher(&launcher), Some(version));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// A damaged file is unknown, and nothing panics.
    #[test]
    fn damaged_files_are_read_without_harm(
        changes in proptest::collection::vec((0usize..4096, any::<u8>()), 0..40),
        length in 0usize..60_000,
    ) {
        let mut bytes = fs::read("/proc/self/exe").expect("our own file");
        bytes.truncate(length);
        for (at, byte) in changes {
            if let Some(old) = bytes.get_mut(at) {
                *old = byte;
            }
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("program");
        fs::write(&path, bytes).expect("it is written");
        if let Some(program) = ElfFacts::read(&path) {
            let libraries = ProgramLibraries::of_program(&path, &program, &own_variable);
            let rodata = RodataSection::read(&path);
            let _: ProgramAllocator = detect_allocator(&path, &program, rodata, &libraries);
        }
    }
}
