//! `/proc/PID/maps` and `smaps` of a process that may be hostile: it chooses the names in them.

use crate::error::{LinuxError, Result};
use procfs::process::{MemoryMap, MemoryMaps};
use procfs::{FromBufRead, ProcResult};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};

/// Bytes of a file that are read at most. The 65,530 mappings that a kernel allows by default take
/// about 48 MiB of `smaps`. Long names of mapped files could take gigabytes.
const MOST_BYTES: u64 = 64 << 20;

/// What `keep` keeps of the mappings of a process. The kernel reads them under a lock of the
/// process.
///
/// # Errors
/// `TooLong`, or `NoSuchProcess` if it has ended or belongs to another user.
pub(crate) fn read_maps<T>(pid: u32, keep: impl FnMut(MemoryMap) -> Option<T>) -> Result<Vec<T>> {
    read_maps_file(pid, "maps", MOST_BYTES, keep)
}

/// As [`read_maps`], with what each mapping holds. It walks the page tables: milliseconds per GiB.
pub(crate) fn read_smaps<T>(pid: u32, keep: impl FnMut(MemoryMap) -> Option<T>) -> Result<Vec<T>> {
    read_maps_file(pid, "smaps", MOST_BYTES, keep)
}

/// A figure of a mapping of `smaps`, in bytes; 0 where this kernel does not show it.
pub(crate) fn field_bytes(map: &MemoryMap, name: &str) -> u64 {
    map.extension.map.get(name).copied().unwrap_or(0)
}

/// Whether a mapping of `smaps` has memory, or had it before that was swapped out.
pub(crate) fn has_memory(map: &MemoryMap) -> bool {
    field_bytes(map, "Rss") + field_bytes(map, "Swap") > 0
}

fn read_maps_file<T>(
    pid: u32,
    name: &str,
    most_bytes: u64,
    keep: impl FnMut(MemoryMap) -> Option<T>,
) -> Result<Vec<T>> {
    let path = format!("/proc/{pid}/{name}");
    let file = File::open(&path).map_err(|_| LinuxError::NoSuchProcess(pid))?;
    let mut text = BufReader::new(file.take(most_bytes + 1));
    let kept = parse_maps(&mut text, keep);
    if text.get_ref().limit() == 0 {
        return Err(LinuxError::TooLong { path: path.into(), most_bytes });
    }
    kept.map_err(|_| LinuxError::NoSuchProcess(pid))
}

/// Parses one mapping after the other: procfs keeps about 2 KB of each one in `smaps`.
fn parse_maps<T>(
    mut text: impl BufRead,
    mut keep: impl FnMut(MemoryMap) -> Option<T>,
) -> ProcResult<Vec<T>> {
    let (mut kept, mut mapping, mut line) = (Vec::new(), String::new(), Vec::new());
    loop {
        line.clear();
        let at_end = text.read_until(b'\n', &mut line)? == 0;
        // The lines of a mapping's fields in `smaps` start with a capital letter.
        if at_end || !line[0].is_ascii_uppercase() {
            let read = MemoryMaps::from_buf_read(mapping.as_bytes())?;
            kept.extend(read.into_iter().filter_map(&mut keep));
            mapping.clear();
        }
        if at_end {
            return Ok(kept);
        }
        push_readable_line(&mut mapping, &String::from_utf8_lossy(&line));
    }
}

/// procfs takes each name that begins with `/SYSV` for a System V segment, and panics where no key
/// of 8 digits follows. It refuses the whole file where a name is not UTF-8.
fn push_readable_line(text: &mut String, line: &str) {
    // Only names have slashes. `/.` before it leaves the path the same.
    match line.find('/').filter(|at| is_mistaken_for_system_v(&line[*at..])) {
        Some(at) => text.extend([&line[..at], "/.", &line[at..]]),
        None => text.push_str(line),
    }
}

fn is_mistaken_for_system_v(name: &str) -> bool {
    let has_key = |rest: &str| rest.get(..8).is_some_and(|k| u32::from_str_radix(k, 16).is_ok());
    name.strip_prefix("/SYSV").is_some_and(|rest| !has_key(rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::process::MMapPath;

    fn names(names: &[&[u8]]) -> Vec<MMapPath> {
        let lines = names.iter().map(|name| {
            let fields = b"7f0000000000-7f0000001000 r--p 00000000 fd:01 7          ".as_slice();
            [fields, name, b"\nRss:   4 kB\nVmFlags: rd mr mw me\n"].concat()
        });
        let text = lines.collect::<Vec<_>>().concat();
        parse_maps(&*text, |map| Some(map.pathname)).expect("they are mappings")
    }

    #[test]
    fn a_file_may_have_the_name_of_a_system_v_segment() {
        let path = |path: &str| MMapPath::Path(path.into());
        let found = names(&[
            b"/SYSV0052e2c1 (deleted)",
            b"/SYSVx",
            b"/SYSV",
            b"/SYSVnotakey1",
            "/SYSV123456é8".as_bytes(),
            b"/tmp/SYSVx",
        ]);
        assert_eq!(found[0], MMapPath::Vsys(0x52_e2c1));
        assert_eq!(found[1], path("/./SYSVx"));
        assert_eq!(found[2], path("/./SYSV"));
        assert_eq!(found[3], path("/./SYSVnotakey1"));
        assert_eq!(found[4], path("/./SYSV123456é8"));
        assert_eq!(found[5], path("/tmp/SYSVx"));
    }

    #[test]
    fn a_name_may_be_no_text() {
        let found = names(&[b"/tmp/\xff\xfe", b"[heap]"]);
        assert_eq!(found, [MMapPath::Path("/tmp/\u{fffd}\u{fffd}".into()), MMapPath::Heap]);
    }

    #[test]
    fn the_mappings_of_this_process_are_read() {
        let own = std::process::id();
        let names = read_maps(own, |map| Some(map.pathname)).expect("maps");
        assert!(names.contains(&MMapPath::Heap));
        let with_memory = read_smaps(own, |map| has_memory(&map).then_some(map.pathname));
        assert!(with_memory.expect("smaps").contains(&MMapPath::Heap));
    }

    #[test]
    fn no_more_is_read_than_a_limit() {
        let own = std::process::id();
        for name in ["maps", "smaps"] {
            let read = |most_bytes| read_maps_file(own, name, most_bytes, |_| Some(()));
            assert!(read(MOST_BYTES).is_ok(), "{name}");
            // The last of these bytes cut a line.
            let error = read(1000).expect_err("it is longer").to_string();
            let expected = format!("/proc/{own}/{name} is longer than 1000 bytes");
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
