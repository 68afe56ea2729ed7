//! Memory limits of cgroups, version 2 and version 1: use against limit, and pressure.

mod cgroup_files;
pub(crate) mod process_cgroup;

use crate::processes::process::{cpu_time, process_age};
use cgroup_files::{CgroupFiles, CgroupUse, is_delegated};
use hawkeye_policy::{CgroupMemory, MemoryUse, ProcessId};
use nix::sys::resource::{Resource, getrlimit};
use process_cgroup::{ProcessCgroup, leads_out, memory_cgroup_of_pid};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The cgroup hierarchy that controls memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// The unified hierarchy.
    V2,
    /// The `memory` controller's own hierarchy.
    V1,
}

/// The hierarchy with the memory controller on this machine, and its mount point.
pub fn find_memory_hierarchy() -> Option<(CgroupVersion, PathBuf)> {
    let root = Path::new("/sys/fs/cgroup");
    let unified = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    if unified.split_whitespace().any(|name| name == "memory") {
        return Some((CgroupVersion::V2, root.to_path_buf()));
    }
    let legacy = root.join("memory");
    let is_there = legacy.join("memory.usage_in_bytes").exists();
    is_there.then_some((CgroupVersion::V1, legacy))
}

/// The cgroups of managed processes that limit memory.
#[derive(Debug, Default)]
pub struct CgroupLimits {
    hierarchy: Option<(CgroupVersion, PathBuf)>,
    /// The cgroup of each process.
    homes: HashMap<ProcessId, KnownCgroup>,
    /// The cgroups that were read last, by path: hashing text costs less than hashing a path.
    open: HashMap<OsString, CgroupFiles>,
    /// Processes with a cgroup that was not read last, which may have a limit.
    unknown: Vec<ProcessId>,
    most_descriptors: usize,
}

/// Files of cgroups that stay open, at most: the limit of open files divided by this.
pub(crate) const DESCRIPTOR_SHARE: u64 = 16;

/// Time after which a change of a cgroup's limits is noticed, if they did not change before.
const LIMITS_AGE: Duration = Duration::from_secs(5);
/// While the use of a cgroup stays exactly as it was, under half of its limit, its `memory.stat`
/// and its pressure are read again after this time.
const QUIET_AGE: Duration = Duration::from_secs(30);

/// Time after which a move of a process to another cgroup is noticed, or its age where that is
/// less: most processes are moved right after their start.
const HOME_AGE: Duration = Duration::from_secs(5);
/// The same for a process that does not run at all. Its memory may move with it.
const IDLE_HOME_AGE: Duration = Duration::from_secs(60);

/// The most levels of nested cgroups that are read, from the root. Inner ones are left out, so that
/// no nesting hides a process from the limits that an administrator set around it.
const MOST_LEVELS: usize = 32;
/// The most that is read of a subtree that root delegated, in cgroups without a limit. Its user can
/// create thousands of cgroups, and the loop reads all in one stretch.
const MOST_OF_SUBTREE: u32 = 250;
/// Reading a cgroup with a limit costs ten times as much: the kernel adds up its `memory.stat`.
const COST_WITH_LIMIT: u32 = 10;

/// The cgroup of a process as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownCgroup {
    /// It may lead out.
    path: PathBuf,
    /// How long it is assumed.
    until: Duration,
    /// How long it is assumed while the process does not run.
    idle_until: Duration,
    /// CPU time of the process right before; `None`: not known, so it may have run since.
    cpu: Option<Duration>,
}

impl KnownCgroup {
    /// The same, if it is still assumed. `cpu`: CPU time of the process now.
    fn if_still_assumed(
        mut self,
        now: Duration,
        cpu: impl FnOnce() -> Option<Duration>,
    ) -> Option<Self> {
        if now < self.until {
            return Some(self);
        }
        if now >= self.idle_until || self.cpu.is_none() || cpu() != self.cpu {
            return None;
        }
        self.until = now.saturating_add(HOME_AGE).min(self.idle_until);
        Some(self)
    }
}

/// A cgroup that was read.
struct ReadCgroup {
    is_delegated: bool,
    /// Whether it could be read whether its memory is limited.
    is_known: bool,
    /// Its memory, if that is limited.
    memory: Option<CgroupMemory>,
}

impl CgroupLimits {
    /// The cgroups of this machine.
    pub fn of_this_machine() -> Self {
        let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
        Self {
            hierarchy: find_memory_hierarchy(),
            most_descriptors: usize::try_from(most / DESCRIPTOR_SHARE).unwrap_or(usize::MAX),
            ..Self::default()
        }
    }

    /// The limited cgroups above one of `processes`, each read once, on the 32 outermost levels.
    /// Of a subtree that root delegated to another user, at most 25 are read, those of the first
    /// processes. Processes with other cgroups are those of
    /// [`Self::processes_with_unknown_limits`]. A cgroup is left out if it vanishes or its process
    /// ends meanwhile. `now` is the time on any monotonic clock.
    pub fn read_limited_cgroups(
        &mut self,
        now: Duration,
        processes: &[ProcessId],
    ) -> Vec<CgroupMemory> {
        let Some((version, root)) = self.hierarchy.clone() else {
            return Vec::new();
        };
        let home = |pid| memory_cgroup_of_pid(version, pid);
        let cpu = |pid| cpu_time(pid).ok();
        self.update_cgroups_of_processes(now, processes, process_age, cpu, home);
        let before = RefCell::new(std::mem::take(&mut self.open));
        let mut open = HashMap::new();
        let mut descriptors_left = self.most_descriptors;
        let read = |path: &Path| -> io::Result<Option<CgroupMemory>> {
            let open_files = || CgroupFiles::open(version, &cgroup_folder(&root, path), now);
            let known = before.borrow_mut().remove(path.as_os_str());
            let (files, found) = read_or_open(known, open_files, now)?;
            let memory = found.map(|CgroupUse { usage, is_quiet }| CgroupMemory {
                name: path.display().to_string(),
                usage,
                pressure_percent: files.pressure_percent(is_quiet),
                members: Vec::new(),
            });
            if let Some(left) = descriptors_left.checked_sub(files.descriptors()) {
                descriptors_left = left;
                open.insert(path.into(), files);
            }
            Ok(memory)
        };
        let is_delegated = |path: &Path| {
            let known = before.borrow().get(path.as_os_str()).map(|files| files.is_delegated);
            known.unwrap_or_else(|| is_delegated(&cgroup_folder(&root, path)).unwrap_or(false))
        };
        let groups = self.read_cgroups_within_bounds(processes, is_delegated, read);
        self.open = open;
        // Where the cgroup of a process is gone, the process was moved to another one.
        for process in &self.unknown {
            if let Some(known) = self.homes.get_mut(process).filter(|it| !leads_out(&it.path)) {
                (known.until, known.cpu) = (now, None);
            }
        }
        groups
    }

    fn read_cgroups_within_bounds(
        &mut self,
        processes: &[ProcessId],
        is_delegated: impl Fn(&Path) -> bool,
        mut read: impl FnMut(&Path) -> io::Result<Option<CgroupMemory>>,
    ) -> Vec<CgroupMemory> {
        let mut seen: HashMap<OsString, ReadCgroup> = HashMap::new();
        // By the subtree's root. Users can't create that, and can't evade it by further owners.
        let mut costs: HashMap<PathBuf, u32> = HashMap::new();
        self.unknown.clear();
        for process in processes {
            let home = self.homes.get(process).map(|home| &*home.path);
            let Some(home) = home.filter(|home| !leads_out(home)) else {
                self.unknown.push(*process);
                continue;
            };
            let mut path = PathBuf::new();
            let mut subtree = None;
            let mut is_known = home.components().count() <= MOST_LEVELS;
            for part in home.components().take(MOST_LEVELS) {
                // A name that is no text can't be shown. What is outside of it counts.
                if part.as_os_str().to_str().is_none() {
                    is_known = false;
                    break;
                }
                path.push(part);
                let known = seen.get(path.as_os_str()).map(|group| group.is_delegated);
                if subtree.is_none() && known.unwrap_or_else(|| is_delegated(&path)) {
                    subtree = Some(path.clone());
                }
                if known.is_none() {
                    let cost = subtree.clone().map(|root| costs.entry(root).or_default());
                    if cost.as_ref().is_some_and(|cost| **cost >= MOST_OF_SUBTREE) {
                        is_known = false;
                        break;
                    }
                    let found = read(&path);
                    if let Err(error) = &found {
                        let path = path.display();
                        tracing::debug!("memory limits of cgroup {path} are not known: {error}");
                    }
                    if let Some(cost) = cost {
                        *cost += if matches!(found, Ok(None)) { 1 } else { COST_WITH_LIMIT };
                    }
                    let group = ReadCgroup {
                        is_delegated: subtree.is_some(),
                        is_known: found.is_ok(),
                        memory: found.ok().flatten(),
                    };
                    seen.insert(path.clone().into(), group);
                }
                if let Some(group) = seen.get_mut(path.as_os_str()) {
                    is_known &= group.is_known;
                    if let Some(memory) = &mut group.memory {
                        memory.members.push(*process);
                    }
                }
            }
            if !is_known {
                self.unknown.push(*process);
            }
        }
        let mut groups: Vec<_> = seen.into_values().filter_map(|group| group.memory).collect();
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        groups
    }

    /// Use against limit of the cgroup at `path`; `None` if it has no limit or is gone.
    pub fn memory_use_of_cgroup(&self, path: &Path) -> io::Result<Option<MemoryUse>> {
        let open =
            self.open.get(path.as_os_str()).and_then(|files| files.read_use().ok().flatten());
        let found = match &self.hierarchy {
            Some((version, root)) if open.is_none() => {
                let folder = cgroup_folder(root, path);
                let opened = none_if_gone(CgroupFiles::open(*version, &folder, Duration::ZERO))?;
                opened.map_or(Ok(None), |files| files.read_use())?
            }
            _ => open,
        };
        Ok(found.map(|found| found.usage))
    }

    /// The cgroup of a process; `None` if the process has ended, or its cgroup is not visible here.
    pub fn cgroup_of_pid(&self, pid: u32) -> Option<PathBuf> {
        memory_cgroup_of_pid(self.hierarchy.as_ref()?.0, pid).filter(|home| !leads_out(home))
    }

    /// Whether this machine has memory cgroups.
    pub(crate) fn are_there(&self) -> bool {
        self.hierarchy.is_some()
    }

    /// Processes with cgroups that the last [`Self::read_limited_cgroups`] did not read: they are
    /// not visible here, beyond its bounds, or could not be read.
    pub fn processes_with_unknown_limits(&self) -> &[ProcessId] {
        &self.unknown
    }

    /// The cgroup of a process by which the last [`Self::read_limited_cgroups`] went.
    pub(crate) fn last_cgroup_of_process(&self, process: ProcessId) -> Option<ProcessCgroup> {
        let (version, _) = self.hierarchy.as_ref()?;
        Some(ProcessCgroup::new(*version, self.homes.get(&process)?.path.clone()))
    }

    /// Bytes that this process may still allocate within the limits of its cgroups; `None` if there
    /// is no limit, and 0 where a limit is not known.
    pub fn own_remaining_memory_bytes(&self) -> Option<u64> {
        let (version, _) = self.hierarchy.as_ref()?;
        self.remaining_memory_bytes_below(memory_cgroup_of_pid(*version, std::process::id()))
    }

    /// The same for the cgroup `home`; `None`: it is not known.
    fn remaining_memory_bytes_below(&self, home: Option<PathBuf>) -> Option<u64> {
        let Some(home) = home.filter(|home| !leads_out(home)) else { return Some(0) };
        let usages = home.ancestors().map(|it| self.memory_use_of_cgroup(it));
        let room = |usage: MemoryUse| usage.total_bytes.saturating_sub(usage.used_bytes);
        let rooms = usages.filter_map(|usage| usage.map_or(Some(0), |usage| usage.map(room)));
        rooms.min()
    }

    /// Finds the cgroup of each process, unless it was found a moment ago. By pid, `cpu` is the CPU
    /// time of a process, and `home` its cgroup.
    fn update_cgroups_of_processes(
        &mut self,
        now: Duration,
        processes: &[ProcessId],
        age: impl Fn(ProcessId) -> Duration,
        cpu: impl Fn(u32) -> Option<Duration>,
        home: impl Fn(u32) -> Option<PathBuf>,
    ) {
        let mut before = std::mem::take(&mut self.homes);
        for process in processes {
            let cpu = || cpu(process.pid);
            let known = before.remove(process).and_then(|known| known.if_still_assumed(now, cpu));
            let find = || {
                let cpu = cpu();
                let (path, age) = (home(process.pid)?, age(*process));
                let [until, idle_until] = [HOME_AGE, IDLE_HOME_AGE].map(|most| now + most.min(age));
                Some(KnownCgroup { path, until, idle_until, cpu })
            };
            if let Some(found) = known.or_else(find) {
                self.homes.insert(*process, found);
            }
        }
    }
}

/// Reads a cgroup by the files that are open, or opens it again where its limits may have changed,
/// or where another cgroup may have taken its place.
fn read_or_open(
    mut known: Option<CgroupFiles>,
    open: impl FnOnce() -> io::Result<CgroupFiles>,
    now: Duration,
) -> io::Result<(CgroupFiles, Option<CgroupUse>)> {
    let found = known.as_ref().and_then(|files| files.read_use().ok().flatten());
    if let Some(files) = known.as_mut().filter(|files| files.until <= now) {
        let is_quiet = found.is_some_and(|found| found.is_quiet);
        if is_quiet && now < files.quiet_until && files.has_limits_still()? {
            files.until = now.saturating_add(LIMITS_AGE).min(files.quiet_until);
        }
    }
    let is_valid = known.as_ref().is_some_and(|files| now < files.until);
    match known {
        Some(files) if is_valid && (found.is_some() || !files.has_limit()) => Ok((files, found)),
        known => {
            let mut files = open()?;
            if known.is_some_and(|known| known.has_same_limits(&files)) {
                files.until = now.saturating_add(LIMITS_AGE);
                files.quiet_until = now.saturating_add(QUIET_AGE);
            }
            let found = files.read_use()?;
            Ok((files, found))
        }
    }
}

/// The part of a cgroup's path that is read. Its user chooses how deep it is nested, and the kernel
/// walks the whole path for each level.
pub(crate) fn outermost_levels(cgroup: &Path) -> PathBuf {
    cgroup.components().take(MOST_LEVELS).collect()
}

/// The folder of a cgroup in the hierarchy at `root`.
pub(crate) fn cgroup_folder(root: &Path, cgroup: &Path) -> PathBuf {
    root.join(cgroup.strip_prefix("/").unwrap_or(cgroup))
}

/// Bytes that the cgroup of a process still allows to be paged out; `None` if nothing limits them.
/// Version 1 limits memory and swap together, and paging out does not change their sum.
pub(crate) fn remaining_cgroup_swap_bytes(pid: u32) -> Option<u64> {
    match find_memory_hierarchy()? {
        (CgroupVersion::V2, root) => {
            least_remaining_swap_of_ancestors(&root, &memory_cgroup_of_pid(CgroupVersion::V2, pid)?)
        }
        (CgroupVersion::V1, _) => None,
    }
}

/// The least value of a cgroup and its ancestors, of the outermost levels.
fn least_remaining_swap_of_ancestors(root: &Path, home: &Path) -> Option<u64> {
    let left = |group: &Path| {
        let folder = cgroup_folder(root, group);
        let number = |file| read_number_from_file(&folder, file).ok().flatten();
        let used = number("memory.swap.current").unwrap_or(0);
        Some(number("memory.swap.max")?.saturating_sub(used))
    };
    outermost_levels(home).ancestors().filter_map(left).min()
}

/// The number in a file of a cgroup; `None` if it holds none (`max`), or is gone.
fn read_number_from_file(folder: &Path, file: &str) -> io::Result<Option<u64>> {
    let text = none_if_gone(fs::read_to_string(folder.join(file)))?;
    Ok(text.and_then(|text| text.trim().parse().ok()))
}

/// What was read; `None` if there is no such file, or if its cgroup is gone.
fn none_if_gone<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    let is_gone = |error: &io::Error| {
        error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ENODEV)
    };
    match read {
        Err(error) if is_gone(&error) => Ok(None),
        read => read.map(Some),
    }
}

#[cfg(test)]
mod tests;
