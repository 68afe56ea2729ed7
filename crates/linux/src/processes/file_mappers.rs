//! Which processes map a file, found by device and inode in `/proc/PID/maps` of all processes.
//!
//! A process that this one may not read is left out: its pages show in `/proc/PID/pagemap` of the
//! other mappers, where they are not mapped exclusively.
//!
//! The file is neither opened nor looked up. Each read has a limit of bytes and of time. A thread
//! makes it, and is abandoned if the process does not answer.

use crate::error::Result;
use crate::processes::background_task::ReadLimits;
use crate::processes::{memory_maps, process};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A process that does not answer within this time is left out.
const PATIENCE: Duration = Duration::from_secs(1);

/// A file that is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct MappedFile {
    /// Its device (major, minor), as `/proc/PID/maps` shows it.
    pub device: (i32, i32),
    /// Its inode.
    pub inode: u64,
}

/// The processes that map some files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileMappers {
    mappers: BTreeMap<MappedFile, BTreeSet<u32>>,
    /// Processes that did not answer, were not reached in time, or have too many mappings. Any of
    /// them may map any file.
    pub unread: Vec<u32>,
}

impl FileMappers {
    /// The pids of the processes that were seen to map a file.
    pub fn of_file(&self, file: MappedFile) -> impl Iterator<Item = u32> {
        self.mappers.get(&file).into_iter().flatten().copied()
    }

    /// Whether this process alone maps a file. `false` also where that is not known.
    pub fn is_only_mapper(&self, pid: u32, file: MappedFile) -> bool {
        self.unread.is_empty() && self.of_file(file).eq([pid])
    }
}

/// Finds the processes that map some of these files, until `deadline`.
pub fn find_file_mappers(files: &BTreeSet<MappedFile>, deadline: Instant) -> Result<FileMappers> {
    let wanted = files.clone();
    let read = move |pid| read_mapped_files(pid, &wanted);
    let limits = ReadLimits { patience: PATIENCE, deadline, rest_per_read: 0 };
    Ok(find_mappers_among(process::list_pids()?, read, limits))
}

/// Those of some files that a process maps. None of one that has ended or may not be read.
fn read_mapped_files(pid: u32, wanted: &BTreeSet<MappedFile>) -> Result<BTreeSet<MappedFile>> {
    let file_of_map = |map: procfs::process::MemoryMap| {
        let file = MappedFile { device: map.dev, inode: map.inode };
        wanted.contains(&file).then_some(file)
    };
    match memory_maps::read_maps(pid, file_of_map) {
        Err(error) if error.is_process_gone() => Ok(BTreeSet::new()),
        read => read.map(|files| files.into_iter().collect()),
    }
}

fn find_mappers_among(
    pids: Vec<u32>,
    read: impl Fn(u32) -> Result<BTreeSet<MappedFile>> + Clone + Send + 'static,
    limits: ReadLimits,
) -> FileMappers {
    let mut found = FileMappers::default();
    let pids = pids.into_iter().map(|pid| (pid, pid));
    limits.read_processes(pids, read, |pid, read| match read {
        Ok(files) => {
            for file in files {
                found.mappers.entry(file).or_default().insert(pid);
            }
        }
        Err(error) => {
            tracing::info!("its mappings can't be read pid={pid} error={error}");
            found.unread.push(pid);
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::LinuxError;
    use procfs::process::{MMapPath, MemoryMap};

    const FILE: MappedFile = MappedFile { device: (0, 27), inode: 77 };
    const LONG: Duration = Duration::from_secs(600);

    fn found_by(
        read: impl Fn(u32) -> Result<BTreeSet<MappedFile>> + Clone + Send + 'static,
        deadline: Instant,
    ) -> FileMappers {
        let limits = ReadLimits { patience: LONG, deadline, rest_per_read: 0 };
        find_mappers_among(vec![7, 8, 9], read, limits)
    }

    #[test]
    fn a_process_is_the_only_mapper_if_no_other_one_may_be() {
        let later = Instant::now() + LONG;
        let files = |maps: bool| if maps { BTreeSet::from([FILE]) } else { BTreeSet::new() };
        let alone = found_by(move |pid| Ok(files(pid == 8)), later);
        assert!(alone.is_only_mapper(8, FILE) && !alone.is_only_mapper(7, FILE));
        let two = found_by(move |pid| Ok(files(pid != 7)), later);
        assert!(!two.is_only_mapper(8, FILE));
        assert_eq!(two.of_file(FILE).collect::<Vec<_>>(), [8, 9]);
        let unknown = found_by(
            move |pid| match pid {
                9 => Err(LinuxError::NotMeasured("a test")),
                _ => Ok(files(pid == 8)),
            },
            later,
        );
        assert!(!unknown.is_only_mapper(8, FILE));
        assert_eq!(unknown.unread, [9]);
    }

    #[test]
    fn processes_that_are_not_reached_or_do_not_answer_are_known() {
        let none = |_| Ok(BTreeSet::new());
        assert_eq!(found_by(none, Instant::now()).unread, [7, 8, 9]);
        let silent = |pid| {
            if pid == 8 {
                std::thread::sleep(LONG);
            }
            Ok(BTreeSet::new())
        };
        let (patience, deadline) = (Duration::from_millis(300), Instant::now() + LONG);
        let limits = ReadLimits { patience, deadline, rest_per_read: 0 };
        let found = find_mappers_among(vec![7, 8, 9], silent, limits);
        assert_eq!(found.unread, [8]);
    }

    #[test]
    fn this_process_maps_its_program() {
        let program = std::env::current_exe().expect("the program has a path");
        let file = |map: MemoryMap| {
            let file = MappedFile { device: map.dev, inode: map.inode };
            (map.pathname == MMapPath::Path(program.clone())).then_some(file)
        };
        let own = memory_maps::read_maps(std::process::id(), file).expect("maps")[0];
        let found = find_file_mappers(&BTreeSet::from([own]), Instant::now() + LONG);
        let found = found.expect("the processes can be listed");
        assert!(found.of_file(own).any(|pid| pid == std::process::id()));
    }
}
