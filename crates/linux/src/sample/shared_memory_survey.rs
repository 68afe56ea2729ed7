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
mod tests;
