//! The files of shared memory that all processes map, and which of them can become huge. Nothing
//! changes.
//!
//! The kernel writes `maps` without walking page tables, and releases the process's `mmap_lock`
//! after each 4 KiB of text. `smaps` holds it for as long as the walk of one mapping takes: 9 ms
//! per GiB were measured. So `maps` of every process is read, and `smaps` only of those that map
//! large shared memory and are small enough for a short walk. For the others, `RssShmem` bounds
//! what is resident.
//!
//! Each read has a limit of bytes and of time. A thread makes it, and is abandoned if the process
//! does not answer. The files are neither opened nor looked up: that could ask a file system of the
//! process's owner.

use crate::error::{LinuxError, Result};
use crate::processes::background_task::ReadLimits;
use crate::processes::memory_maps;
use crate::processes::mounts::MountedFileSystems;
use crate::processes::proc_scanner::{ProcScanner, ScannedProcess};
use crate::processes::process::{self, ProcessHandle};
use crate::processes::shared_mappings::{SharedMapping, SharedMemoryKind, SharedMemoryObstacle};
use crate::sample::population_survey::{PATIENCE, REST_PER_READ, SurveyCoverage};
use hawkeye_policy::{BASE_PAGE_BYTES, HUGE_PAGE_BYTES, ProcessId};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{fstat, major, minor};
use procfs::process::{MMPermissions, MMapPath, MemoryMap};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::time::Instant;

/// Resident memory up to which a process's `smaps` is read. The walk takes about 20 ms then.
const MOST_RESIDENT_BYTES: u64 = 2 << 30;
/// Mappings of such a process at most: `smaps` has 25 lines for each.
const MOST_MAPPINGS: usize = 10_000;
/// Files that are kept. Any user can map millions.
const MOST_FILES: usize = 10_000;

/// A file of shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SharedMemoryFile {
    /// What is mapped, as `/proc/PID/maps` shows it.
    pub what: String,
    /// Its kind.
    #[serde(flatten)]
    pub kind: SharedMemoryKind,
    /// Its device (major, minor).
    pub device: (i32, i32),
    /// Its inode; the segment's id of System V memory.
    pub inode: u64,
    /// Bytes of the file that the process maps that maps most.
    pub mapped_bytes: u64,
    /// Resident memory in the process with most of it, in bytes. The file has at least as much.
    pub resident_bytes: u64,
    /// Whether that is only an upper bound, because the process was too large to walk it.
    pub resident_is_upper_bound: bool,
    /// Part of it in huge pages, in bytes; `None` where no process was small enough to walk it.
    pub huge_bytes: Option<u64>,
    /// Processes that map it.
    pub processes: usize,
    /// The process with most resident memory of it.
    pub largest_pid: u32,
    /// The command name of that process.
    pub largest_command: String,
    /// Mappings of at least 2 MiB.
    pub mappings: usize,
    /// Those of which no part can become huge.
    pub blocked_mappings: usize,
    /// Why: of the process with most resident memory among those that have one.
    #[serde(flatten)]
    pub obstacle: Option<SharedMemoryObstacle>,
}

/// What a survey of shared memory found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SharedMemorySurvey {
    /// How much of the machine it covers.
    #[serde(flatten)]
    pub coverage: SurveyCoverage,
    /// Processes that were too large for `smaps`. Advice and userfaultfd of their mappings are
    /// unknown, and their resident memory is an upper bound.
    #[serde(rename = "processes_read_in_part")]
    pub read_in_part: usize,
    /// Files with little resident memory that were dropped, because there were too many.
    pub files_dropped: usize,
    /// The files, most resident memory first.
    pub files: Vec<SharedMemoryFile>,
}

/// A file on this machine. System V segments have the numbers of their ids, which each IPC
/// namespace counts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileKey {
    device: (i32, i32),
    inode: u64,
    /// Of System V memory only.
    ipc_namespace: Option<u64>,
}

/// The shared memory that one process maps.
#[derive(Clone, Debug)]
struct MapperReading {
    process: ProcessId,
    mappings: Vec<(FileKey, SharedMapping)>,
    /// Set where only `maps` was read: its resident shared memory, in bytes.
    resident_at_most: Option<u64>,
}

/// Reads the mappings of all processes with anonymous memory until `deadline`. This process is left
/// out silently.
pub fn survey_shared_memory(deadline: Instant) -> Result<SharedMemorySurvey> {
    let scan = ProcScanner::open()?.scan_large_processes(BASE_PAGE_BYTES, deadline)?;
    let scan = scan.ok_or(LinuxError::NotMeasured("the processes can't be listed in time"))?;
    let own = std::process::id();
    let others = scan.large.into_iter().filter(|scanned| scanned.process.pid != own);
    let internal = device_of_internal_files();
    let read = move |pid| read_mapper(pid, internal);
    let limits = ReadLimits { patience: PATIENCE, deadline, rest_per_read: REST_PER_READ };
    Ok(survey_processes(others, read, limits))
}

fn survey_processes(
    processes: impl Iterator<Item = ScannedProcess>,
    read: impl Fn(u32) -> Result<MapperReading> + Clone + Send + 'static,
    limits: ReadLimits,
) -> SharedMemorySurvey {
    let mut found = CollectedFiles::default();
    let processes = processes.map(|scanned| (scanned.process.pid, scanned));
    limits.read_processes(processes, read, |scanned, read| match read {
        Ok(mapper) if mapper.process == scanned.process => {
            found.add_mapper(mapper, &scanned.program.command);
        }
        // It has ended, and another one has its pid.
        Ok(_) => {}
        Err(error) if error.is_process_gone() => {}
        Err(error) => {
            let pid = scanned.process.pid;
            tracing::info!("left out of the survey pid={pid} error={error}");
            found.survey.coverage.left_out += 1;
        }
    });
    found.into_survey()
}

/// The device of shared memory without a file system that a user can mount. hugetlb has others.
fn device_of_internal_files() -> Option<(i32, i32)> {
    let file = memfd_create(c"hawkeye", MFdFlags::MFD_CLOEXEC).ok()?;
    let device = fstat(&file).ok()?.st_dev;
    Some((i32::try_from(major(device)).ok()?, i32::try_from(minor(device)).ok()?))
}

fn read_mapper(pid: u32, internal: Option<(i32, i32)>) -> Result<MapperReading> {
    let handle = ProcessHandle::open(pid)?;
    let mut mappings = 0;
    let maps = memory_maps::read_maps(pid, |map| {
        mappings += 1;
        may_be_large_shared_memory(&map).then_some(map)
    })?;
    let foreign = maps.iter().any(|map| Some(map.dev) != internal);
    let mounts =
        if foreign { MountedFileSystems::of_process(pid) } else { MountedFileSystems::default() };
    let namespace = fs::metadata(format!("/proc/{pid}/ns/ipc")).ok().map(|file| file.ino());
    let large = |map: &MemoryMap| large_shared_mapping(map, &mounts, internal, namespace);
    let mut found: Vec<_> = maps.iter().filter_map(large).collect();
    let mut resident_at_most = None;
    if !found.is_empty() {
        let is_small = process::rss_bytes(pid)? <= MOST_RESIDENT_BYTES && mappings <= MOST_MAPPINGS;
        let status = process::read_proc_entry(pid, process::read_status)?;
        if is_small {
            found = memory_maps::read_smaps(pid, |map| large(&map))?;
        } else {
            found.retain(|(_, mapping)| !has_name_of_device(&mapping.what));
            let bytes = status.rssshmem.unwrap_or(0).saturating_mul(1024);
            resident_at_most = (!found.is_empty()).then_some(bytes);
        }
        if status.thp_enabled == Some(false) {
            for (_, mapping) in &mut found {
                mapping.obstacle = Some(SharedMemoryObstacle::ThpDisabled);
            }
        }
    }
    // So all these files were those of one process.
    if !handle.is_alive() {
        return Err(LinuxError::NoSuchProcess(pid));
    }
    Ok(MapperReading { process: handle.id, mappings: found, resident_at_most })
}

/// `smaps` shows which mappings are of devices. `maps` shows only their names, such as those on a
/// container's `/dev`, which is a tmpfs.
fn has_name_of_device(name: &str) -> bool {
    let is_memory = name.starts_with("/dev/shm/") || name.starts_with("/dev/zero");
    name.starts_with("/dev/") && !is_memory
}

/// Files on disks are none: shared memory has no disk's device number.
fn may_be_large_shared_memory(map: &MemoryMap) -> bool {
    let (start, end) = map.address;
    let is_shared = map.perms.contains(MMPermissions::SHARED);
    is_shared && map.dev.0 == 0 && end.saturating_sub(start) >= HUGE_PAGE_BYTES
}

/// `None`: no shared memory, from the hugetlb pool, or smaller than a huge page. `internal` is the
/// device of internal files, where it is known: `maps` does not show what is hugetlb.
fn large_shared_mapping(
    map: &MemoryMap,
    mounts: &MountedFileSystems,
    internal: Option<(i32, i32)>,
    ipc_namespace: Option<u64>,
) -> Option<(FileKey, SharedMapping)> {
    let mapping =
        may_be_large_shared_memory(map).then(|| SharedMapping::from_smaps(map, mounts))??;
    let is_candidate = match mapping.kind {
        SharedMemoryKind::Internal => internal.is_none_or(|device| device == map.dev),
        SharedMemoryKind::TmpfsFile => true,
        SharedMemoryKind::HugeTlb => false,
    };
    let is_system_v = matches!(map.pathname, MMapPath::Vsys(_));
    let ipc_namespace = ipc_namespace.filter(|_| is_system_v);
    let key = FileKey { device: map.dev, inode: map.inode, ipc_namespace };
    is_candidate.then_some((key, mapping))
}

#[derive(Default)]
struct CollectedFiles {
    files: HashMap<FileKey, SharedMemoryFile>,
    survey: SharedMemorySurvey,
}

impl CollectedFiles {
    fn add_mapper(&mut self, mapper: MapperReading, command: &str) {
        self.survey.coverage.read += 1;
        self.survey.read_in_part += usize::from(mapper.resident_at_most.is_some());
        for (key, file) in files_of_mapper(mapper, command) {
            match self.files.get_mut(&key) {
                Some(known) => known.add_mappers_of(file),
                None => _ = self.files.insert(key, file),
            }
        }
        if self.files.len() > 2 * MOST_FILES {
            self.drop_files_with_least_memory();
        }
    }

    fn drop_files_with_least_memory(&mut self) {
        let mut files: Vec<_> = self.files.drain().collect();
        files.sort_by_key(|(_, file)| Reverse(file.resident_bytes));
        self.survey.files_dropped += files.len().saturating_sub(MOST_FILES);
        files.truncate(MOST_FILES);
        self.files.extend(files);
    }

    fn into_survey(mut self) -> SharedMemorySurvey {
        self.drop_files_with_least_memory();
        let mut files: Vec<_> = self.files.into_values().collect();
        files.sort_by_key(|file| {
            (Reverse(file.resident_bytes), Reverse(file.mapped_bytes), file.device, file.inode)
        });
        SharedMemorySurvey { files, ..self.survey }
    }
}

impl SharedMemoryFile {
    /// Adds the processes that map the same file.
    fn add_mappers_of(&mut self, mut other: Self) {
        let size = |file: &Self| (file.resident_bytes, file.mapped_bytes);
        if size(&other) > size(self) {
            std::mem::swap(self, &mut other);
        }
        self.mapped_bytes = self.mapped_bytes.max(other.mapped_bytes);
        self.huge_bytes = self.huge_bytes.max(other.huge_bytes);
        self.processes += other.processes;
        self.mappings += other.mappings;
        self.blocked_mappings += other.blocked_mappings;
        self.obstacle = self.obstacle.or(other.obstacle);
    }
}

/// The files that one process maps. Parts of a file that it maps twice count once.
fn files_of_mapper(mapper: MapperReading, command: &str) -> HashMap<FileKey, SharedMemoryFile> {
    let mut mappings: HashMap<FileKey, Vec<SharedMapping>> = HashMap::new();
    for (key, mapping) in mapper.mappings {
        mappings.entry(key).or_default().push(mapping);
    }
    let file = |mappings: Vec<SharedMapping>| {
        let largest = mappings.iter().max_by_key(|mapping| mapping.mapped_bytes())?;
        let in_file =
            |m: &SharedMapping| m.file_offset..m.file_offset.saturating_add(m.mapped_bytes());
        let mapped_bytes = bytes_of_union(mappings.iter().map(in_file).collect());
        let sum = |bytes: fn(&SharedMapping) -> u64| {
            mappings.iter().fold(0, |sum: u64, m| sum.saturating_add(bytes(m))).min(mapped_bytes)
        };
        let blocked = || mappings.iter().filter(|mapping| mapping.obstacle.is_some());
        let resident_bytes = mapper.resident_at_most.map(|bytes| bytes.min(mapped_bytes));
        Some(SharedMemoryFile {
            what: largest.what.clone(),
            kind: largest.kind,
            device: largest.device,
            inode: largest.inode,
            mapped_bytes,
            resident_bytes: resident_bytes.unwrap_or_else(|| sum(|m| m.resident_bytes)),
            resident_is_upper_bound: resident_bytes.is_some(),
            huge_bytes: resident_bytes.is_none().then(|| sum(|m| m.huge_bytes)),
            processes: 1,
            largest_pid: mapper.process.pid,
            largest_command: command.to_owned(),
            mappings: mappings.len(),
            blocked_mappings: blocked().count(),
            obstacle: blocked().max_by_key(|m| m.mapped_bytes()).and_then(|m| m.obstacle),
        })
    };
    mappings.into_iter().filter_map(|(key, all)| Some((key, file(all)?))).collect()
}

fn bytes_of_union(mut ranges: Vec<Range<u64>>) -> u64 {
    ranges.sort_by_key(|range| range.start);
    let (mut bytes, mut counted_to) = (0, 0);
    for range in ranges {
        bytes += range.end.saturating_sub(range.start.max(counted_to));
        counted_to = counted_to.max(range.end);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use hawkeye_test_support::event_constructors::process_with_pid;
    use procfs::FromBufRead;
    use procfs::process::MemoryMaps;
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    const H: u64 = HUGE_PAGE_BYTES;
    const INTERNAL: Option<(i32, i32)> = Some((0, 1));

    /// A line of `maps`: `regions` huge pages, at `misaligned_by` bytes above the right address.
    fn line(regions: u64, misaligned_by: u64, offset: u64, device: &str, name: &str) -> String {
        let start = 64 * H + misaligned_by + offset;
        let end = start + regions * H;
        format!("{start:x}-{end:x} rw-s {offset:08x} {device} 7 {name}\n")
    }

    /// As `smaps` shows it.
    fn with_resident(line: String, regions: u64, flags: &str) -> String {
        format!("{line}Rss: {} kB\nShmemPmdMapped: 2048 kB\nVmFlags: {flags}\n", regions * 2048)
    }

    fn mapper_of(pid: u32, namespace: u64, text: &str) -> MapperReading {
        let maps = MemoryMaps::from_buf_read(text.as_bytes()).expect("the text is valid");
        let mounts = MountedFileSystems::parse(b"36 35 0:27 / /x rw - tmpfs x rw\n");
        let large = |map| large_shared_mapping(map, &mounts, INTERNAL, Some(namespace));
        MapperReading {
            process: process_with_pid(pid),
            mappings: maps.iter().filter_map(large).collect(),
            resident_at_most: None,
        }
    }

    fn survey_of(mappers: impl IntoIterator<Item = MapperReading>) -> SharedMemorySurvey {
        let mut found = CollectedFiles::default();
        for mapper in mappers {
            let command = format!("program-{}", mapper.process.pid);
            found.add_mapper(mapper, &command);
        }
        found.into_survey()
    }

    #[test]
    fn a_file_of_several_processes_is_listed_once_with_the_one_that_has_most_resident() {
        let text = |misaligned_by, resident| {
            let line = line(16, misaligned_by, 0, "00:01", "/memfd:guest (deleted)");
            with_resident(line, resident, "rd wr sh ms")
        };
        let mappers = [(5, 0, 2), (6, 0x3000, 9), (7, 0x1000, 3)];
        let found = survey_of(mappers.map(|(pid, by, rss)| mapper_of(pid, 1, &text(by, rss))));
        assert_eq!(found.coverage.read, 3);
        let [file] = &found.files[..] else { panic!("{found:?}") };
        assert_eq!((file.resident_bytes, file.mapped_bytes), (9 * H, 16 * H));
        assert_eq!((file.largest_pid, &*file.largest_command), (6, "program-6"));
        assert_eq!((file.processes, file.mappings, file.blocked_mappings), (3, 3, 2));
        assert_eq!(file.obstacle, Some(SharedMemoryObstacle::Misaligned { by_bytes: 0x3000 }));
        assert_eq!(file.huge_bytes, Some(H));
    }

    #[test]
    fn only_large_shared_memory_is_a_candidate() {
        let text = [
            line(4, 0, 0, "00:1b", "/dev/shm/segment"),
            line(4, 0, 0, "00:01", "/dev/zero (deleted)"),
            // The hugetlb pool, by its device; a file with the name of a memfd on another device.
            line(4, 0, 0, "00:0f", "/memfd:huge (deleted)"),
            line(4, 0, 0, "00:0f", "/anon_hugepage (deleted)"),
            // A disk, a small file, private memory, a device.
            line(4, 0, 0, "fd:00", "/memfd:x"),
            line(1, 0, 0, "00:01", "/memfd:x").replace("8200000", "8100000"),
            line(4, 0, 0, "00:01", "/memfd:x").replace("rw-s", "rw-p"),
            with_resident(line(4, 0, 0, "00:1b", "/dev/dri/card0"), 4, "rd wr sh io pf"),
        ];
        let found = survey_of([mapper_of(5, 1, &text.concat())]);
        let names: Vec<&str> = found.files.iter().map(|file| &*file.what).collect();
        assert_eq!(names, ["/dev/zero (deleted)", "/dev/shm/segment"]);
        assert_eq!(found.files[0].blocked_mappings, 0);
    }

    #[test]
    fn segments_with_one_id_in_two_namespaces_are_two_files() {
        let segment = line(4, 0, 0, "00:01", "/SYSV00000000 (deleted)");
        // It has the segment's number, too.
        let memfd = line(4, 0, 0, "00:01", "/memfd:x (deleted)");
        let mapper = |pid, namespace| mapper_of(pid, namespace, &(segment.clone() + &memfd));
        let found = survey_of([mapper(5, 1), mapper(6, 2), mapper(7, 2)]);
        let mut processes: Vec<usize> = found.files.iter().map(|file| file.processes).collect();
        processes.sort_unstable();
        assert_eq!(processes, [1, 2, 3]);
    }

    #[test]
    fn parts_that_a_process_maps_twice_count_once() {
        let part = |regions, offset| {
            let line = line(regions, 0, offset, "00:01", "/memfd:ring (deleted)");
            with_resident(line, regions, "rd wr sh ms")
        };
        let text = [part(8, 0), part(8, 0), part(4, 6 * H), part(2, 20 * H)].concat();
        let found = survey_of([mapper_of(5, 1, &text)]);
        let file = &found.files[0];
        assert_eq!((file.mapped_bytes, file.resident_bytes), (12 * H, 12 * H));
        assert_eq!((file.processes, file.mappings), (1, 4));
    }

    #[test]
    fn the_memory_of_a_large_process_is_an_upper_bound() {
        let text = line(16, 0x1000, 0, "00:01", "/memfd:guest (deleted)");
        let with_bound = |pid, bytes| {
            let resident_at_most = Some(bytes);
            survey_of([MapperReading { resident_at_most, ..mapper_of(pid, 1, &text) }])
        };
        for (bound, expected) in [(3 * H, 3 * H), (u64::MAX, 16 * H)] {
            let found = with_bound(5, bound);
            let file = &found.files[0];
            assert_eq!((found.read_in_part, file.resident_bytes), (1, expected));
            assert!(file.resident_is_upper_bound && file.blocked_mappings == 1);
            assert_eq!(file.huge_bytes, None);
        }
        // What a small process shows of the same file is kept.
        let small = with_resident(text.clone(), 2, "rd wr sh ms");
        let large = MapperReading { resident_at_most: Some(u64::MAX), ..mapper_of(5, 1, &text) };
        for mappers in [[mapper_of(6, 1, &small), large.clone()], [large, mapper_of(6, 1, &small)]]
        {
            let found = survey_of(mappers);
            assert_eq!((found.files[0].largest_pid, found.files[0].huge_bytes), (5, Some(H)));
        }
    }

    #[test]
    fn names_of_devices_are_known() {
        assert!(has_name_of_device("/dev/nvidia0"));
        for name in ["/dev/shm/x", "/dev/zero (deleted)", "/memfd:x (deleted)", "/srv/dev/x"] {
            assert!(!has_name_of_device(name), "{name}");
        }
    }

    #[test]
    fn files_with_the_least_memory_are_dropped_where_there_are_too_many() {
        let resident = with_resident(line(4, 0, 0, "00:01", "/memfd:x"), 1, "rd wr sh ms");
        let mut mapper = mapper_of(5, 1, &resident);
        let (key, mapping) = mapper.mappings[0].clone();
        let empty = SharedMapping { resident_bytes: 0, ..mapping };
        let many = (100..100 + 2 * MOST_FILES as u64)
            .map(|inode| (FileKey { inode, ..key }, empty.clone()));
        mapper.mappings.extend(many);
        let found = survey_of([mapper]);
        assert_eq!((found.files.len(), found.files_dropped), (MOST_FILES, MOST_FILES + 1));
        assert_eq!(found.files[0].resident_bytes, H);
    }

    #[test]
    fn a_process_that_does_not_answer_delays_no_other_for_long() {
        let (free, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let text = line(4, 0, 0, "00:01", "/memfd:x (deleted)");
        let read = move |pid| match pid {
            2 => {
                let _ = held.lock().map(|held| held.recv());
                Err(LinuxError::NoSuchProcess(pid))
            }
            // Another process has its pid meanwhile.
            3 => Ok(mapper_of(9, 1, &text)),
            4 => Err(LinuxError::NoSuchProcess(pid)),
            5 => Err(LinuxError::NotPermitted { pid, owner: 0 }),
            _ => Ok(mapper_of(pid, 1, &text)),
        };
        let processes = || {
            (1..8).map(|pid| ScannedProcess {
                process: process_with_pid(pid),
                anonymous_bytes: 1,
                own_bytes: 1,
                family: 1,
                cpu: Duration::ZERO,
                program: Default::default(),
            })
        };
        let mut limits = ReadLimits {
            patience: Duration::from_secs(2),
            deadline: Instant::now() + Duration::from_secs(600),
            rest_per_read: 0,
        };
        let found = survey_processes(processes(), read.clone(), limits);
        assert_eq!(found.coverage, SurveyCoverage { read: 3, left_out: 2 });
        assert_eq!(found.files[0].processes, 3);
        drop(free);
        limits.deadline = Instant::now();
        let late = survey_processes(processes(), read, limits);
        assert_eq!(late.coverage, SurveyCoverage { read: 0, left_out: 7 });
    }

    #[test]
    fn this_process_is_read_and_its_memfd_is_on_the_internal_device() {
        let internal = device_of_internal_files();
        assert!(internal.is_some());
        let own = read_mapper(std::process::id(), internal).expect("this process can be read");
        assert_eq!(own.process.pid, std::process::id());
    }
}
