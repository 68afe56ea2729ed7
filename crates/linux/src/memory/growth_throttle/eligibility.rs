//! In which cgroups growth may be slowed.

use crate::error::{LinuxError, Result};
use crate::machine_lease::thp_settings::read_setting;
use crate::processes::process::is_real_time_thread;
use hawkeye_policy::SettingsProfile;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Most cgroups, processes and threads that are checked at each look. A larger cgroup is not
/// throttled, because its checks would cost too much.
const MOST_CGROUPS: usize = 64;
const MOST_PROCESSES: usize = 64;
const MOST_THREADS: usize = 1024;

/// Why the growth of a cgroup is not slowed, as a clause.
#[derive(Debug, Error, PartialEq)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ThrottleRefusal {
    #[error("it has no memory.max")]
    NoLimit,
    #[error("its memory.high is {0}, which HawkEye has not set")]
    OperatorLevel(String),
    #[error("it is too full for a level under its limit")]
    TooFull,
    #[error("the kernel would swap its memory: its memory.swap.max is not 0, and swap is in use")]
    MaySwap,
    #[error("systemd-oomd runs, which may take the waiting for a shortage and kill")]
    OomdRuns,
    #[error("it contains the manager itself")]
    OwnCgroup,
    #[error("process {0} in it has real-time thread {1}")]
    RealTime(u32, u32),
    #[error("process {0} in it is excluded, or not managed by any rule")]
    NotSelected(u32),
    #[error("process {0} in it has the profile {1}, not guard")]
    OtherProfile(u32, SettingsProfile),
    #[error("a process in it cannot be seen from here")]
    Invisible,
    #[error("it has too many cgroups, processes or threads to check at each look")]
    TooLarge,
    /// A file could not be read, or a setting not be changed.
    #[error("{0}")]
    Setting(String),
}

impl From<LinuxError> for ThrottleRefusal {
    fn from(error: LinuxError) -> Self {
        Self::Setting(error.to_string())
    }
}

/// The files of the machine on which the decision rests.
#[derive(Debug)]
pub(super) struct HostFiles {
    /// The mount point of the cgroup hierarchy.
    pub(super) root: PathBuf,
    pub(super) swaps: PathBuf,
    /// The socket on which systemd-oomd hears which cgroups to watch.
    pub(super) oomd_socket: PathBuf,
}

impl HostFiles {
    pub(super) fn of_this_machine(root: PathBuf) -> Self {
        let oomd_socket = "/run/systemd/oom/io.systemd.ManagedOOM".into();
        Self { root, swaps: "/proc/swaps".into(), oomd_socket }
    }

    /// Whether the growth of a cgroup may be slowed now. Returns its limit in bytes.
    pub(super) fn check_cgroup(
        &self,
        folder: &Path,
        check_process: &dyn Fn(u32) -> Result<(), ThrottleRefusal>,
    ) -> Result<u64, ThrottleRefusal> {
        let limit = read_bytes(&folder.join("memory.max"))?.ok_or(ThrottleRefusal::NoLimit)?;
        if self.oomd_socket.exists() {
            return Err(ThrottleRefusal::OomdRuns);
        }
        if self.has_swap()? && !self.is_swap_forbidden(folder) {
            return Err(ThrottleRefusal::MaySwap);
        }
        check_members(folder, check_process)?;
        Ok(limit)
    }

    fn has_swap(&self) -> Result<bool> {
        match fs::read_to_string(&self.swaps) {
            // The first line is a heading.
            Ok(text) => Ok(text.lines().count() > 1),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(LinuxError::wrap_io_error("reading", &self.swaps)(error)),
        }
    }

    /// Whether the cgroup, or one above it, may not swap at all.
    fn is_swap_forbidden(&self, folder: &Path) -> bool {
        let within = folder.ancestors().take_while(|group| group.starts_with(&self.root));
        let limits = within.map(|group| read_bytes(&group.join("memory.swap.max")));
        limits.into_iter().any(|limit| matches!(limit, Ok(Some(0))))
    }
}

/// Refuses where an operator or another program has set `memory.high`.
pub(super) fn check_no_operator_level(folder: &Path) -> Result<(), ThrottleRefusal> {
    match read_setting(&folder.join("memory.high"))? {
        none if none == "max" => Ok(()),
        level => Err(ThrottleRefusal::OperatorLevel(level)),
    }
}

/// A number of bytes; `None`: `max`.
pub(super) fn read_bytes(file: &Path) -> Result<Option<u64>> {
    Ok(read_setting(file)?.parse().ok())
}

/// The cgroup slows all of its descendants, too.
fn check_members(
    folder: &Path,
    check_process: &dyn Fn(u32) -> Result<(), ThrottleRefusal>,
) -> Result<(), ThrottleRefusal> {
    let mut folders = vec![folder.to_owned()];
    let (mut processes, mut threads, mut at) = (0, 0, 0);
    while let Some(group) = folders.get(at).cloned() {
        at += 1;
        for pid in processes_of_cgroup(&group)? {
            processes += 1;
            if processes > MOST_PROCESSES {
                return Err(ThrottleRefusal::TooLarge);
            }
            check_threads(pid, &mut threads)?;
            check_process(pid)?;
        }
        // A cgroup that is removed meanwhile has no members.
        for entry in fs::read_dir(&group).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
            if folders.len() > MOST_CGROUPS {
                return Err(ThrottleRefusal::TooLarge);
            }
        }
    }
    Ok(())
}

/// Empty if the cgroup was removed meanwhile, or is threaded: its processes are listed by the
/// cgroup above it, which controls their memory.
fn processes_of_cgroup(folder: &Path) -> Result<Vec<u32>, ThrottleRefusal> {
    let file = folder.join("cgroup.procs");
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP) => String::new(),
            _ => return Err(LinuxError::wrap_io_error("reading", &file)(error).into()),
        },
    };
    // The kernel shows a process of another pid namespace as 0.
    let pids = text.lines().map(|line| line.trim().parse::<u32>().ok().filter(|pid| *pid != 0));
    let pids = pids.collect::<Option<Vec<u32>>>().ok_or(ThrottleRefusal::Invisible)?;
    match pids.contains(&std::process::id()) {
        true => Err(ThrottleRefusal::OwnCgroup),
        false => Ok(pids),
    }
}

/// Refuses for a process with a real-time thread. `checked` counts the threads of all processes.
fn check_threads(pid: u32, checked: &mut usize) -> Result<(), ThrottleRefusal> {
    // It may have ended.
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        *checked += 1;
        if *checked > MOST_THREADS {
            return Err(ThrottleRefusal::TooLarge);
        }
        let thread = task.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        if let Some(thread) = thread.filter(|thread| is_real_time_thread(*thread)) {
            return Err(ThrottleRefusal::RealTime(pid, thread));
        }
    }
    Ok(())
}
