//! `/proc/PID/maps` and `smaps` of a process that may be hostile: it chooses the names in them.

use procfs::process::{MemoryMaps, Process};
use procfs::{FromBufRead, ProcResult};
use std::io::Read;

/// The mappings of a process. The kernel reads them under a lock of the process.
pub(crate) fn read_maps(process: &Process) -> ProcResult<MemoryMaps> {
    read_maps_file(process, "maps")
}

/// The mappings of a process, with what each holds. It walks the page tables: milliseconds per GiB.
pub(crate) fn read_smaps(process: &Process) -> ProcResult<MemoryMaps> {
    read_maps_file(process, "smaps")
}

fn read_maps_file(process: &Process, name: &str) -> ProcResult<MemoryMaps> {
    let mut text = Vec::new();
    process.open_relative(name)?.read_to_end(&mut text)?;
    parse_maps(&text)
}

/// procfs takes each name that begins with `/SYSV` for a System V segment, and panics where no key
/// of 8 digits follows. It refuses the whole file where a name is not UTF-8.
fn parse_maps(text: &[u8]) -> ProcResult<MemoryMaps> {
    let text = String::from_utf8_lossy(text);
    let mut readable = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        // Only names have slashes. `/.` before it leaves the path the same.
        match line.find('/').filter(|at| is_mistaken_for_system_v(&line[*at..])) {
            Some(at) => readable.extend([&line[..at], "/.", &line[at..]]),
            None => readable.push_str(line),
        }
    }
    MemoryMaps::from_buf_read(readable.as_bytes())
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
        let maps = parse_maps(&lines.collect::<Vec<_>>().concat()).expect("they are mappings");
        maps.into_iter().map(|map| map.pathname).collect()
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
        let own = Process::myself().expect("this process exists");
        let (maps, smaps) = (read_maps(&own).expect("maps"), read_smaps(&own).expect("smaps"));
        assert!(maps.iter().any(|map| map.pathname == MMapPath::Heap));
        assert!(smaps.iter().any(|map| map.extension.map.get("Rss").is_some_and(|rss| *rss > 0)));
    }
}
