//! Finds the processes that hold a lock, from what the kernel shows of their descriptors.
//!
//! Nothing here opens or examines another process's file, which may be on a file system with a
//! server that never answers. Reading links and `fdinfo` does not need that server.

use crate::processes::{mounts, process};
use nix::sys::stat::{fstat, major, minor};
use procfs::process::Process;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// The name of every manager's lock file, in any folder.
pub(super) const LOCK: &str = "manager.lock";

/// A file as the kernel names it in lines about its locks. Each tmpfs numbers its inodes from the
/// start, so two containers can have the same inode in their `/run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LockedFile {
    /// Of its file system (major, minor).
    device: (u64, u64),
    inode: u64,
}

impl LockedFile {
    /// A file that this process has open; `None` where the kernel does not describe it.
    pub(super) fn of_open_file(file: &File) -> Option<Self> {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
        let number = |name: &str| -> Option<u64> {
            info.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
        };
        // `fstat` has another device on btrfs. In a chroot it alone has one.
        let device = mounts::device_of_own_mount(number("mnt_id:")?).or_else(|| {
            let device = fstat(file).ok()?.st_dev;
            Some((major(device), minor(device)))
        });
        Some(Self { device: device?, inode: number("ino:")? })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LockHolder {
    pub(super) pid: u32,
    /// Its real user id.
    pub(super) uid: u32,
    command: String,
}

impl LockHolder {
    fn of_pid(pid: u32) -> Option<Self> {
        let status = process::read_proc_entry(pid, process::read_status).ok()?;
        Some(Self { pid, uid: status.ruid, command: status.name })
    }
}

impl std::fmt::Display for LockHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { pid, uid, command } = self;
        write!(f, "process {pid} ({command}, user {uid}), which is not a manager")
    }
}

/// Processes that hold a lock on a manager's lock file.
pub(super) fn lock_holders_of_file(file: LockedFile) -> Vec<LockHolder> {
    let pids = process::list_pids().unwrap_or_default().into_iter();
    pids.filter(|pid| holds_manager_lock(*pid, |of| of == file))
        .filter_map(LockHolder::of_pid)
        .collect()
}

/// The pid of another manager of root's in this pid namespace, in a container with its own `/run`
/// for example. Excludes this process, its ancestors and the holders of `own` files.
/// Only root's processes match: the real user, the program and the lock's name are checked.
pub(super) fn find_other_manager_pid(own: &[LockedFile]) -> Option<u32> {
    let locks = fs::read_to_string("/proc/locks").ok()?;
    let holders: BTreeSet<u32> = locks.lines().filter_map(parse_pid_of_flock_line).collect();
    let family = pids_of_process_and_ancestors(std::process::id());
    holders
        .into_iter()
        .filter(|pid| !family.contains(pid))
        .find(|pid| is_root_manager_of_our_namespace(*pid, |file| !own.contains(&file)))
}

fn is_root_manager_of_our_namespace(pid: u32, wanted: impl Fn(LockedFile) -> bool) -> bool {
    LockHolder::of_pid(pid).is_some_and(|holder| holder.uid == 0)
        && is_hawkeye_process(pid)
        // Root of an ordinary container has user id 0 here too, and must not keep a manager out.
        && pid_namespace(pid) == pid_namespace(std::process::id())
        && holds_manager_lock(pid, wanted)
}

/// Names the pid namespace of a process; `None` where the kernel has none.
fn pid_namespace(pid: u32) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/pid")).ok()
}

/// The pid in a line of `/proc/locks` such as `1: FLOCK  ADVISORY  WRITE 812 08:01:9978 0 EOF`.
fn parse_pid_of_flock_line(line: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    (words.next() == Some("FLOCK")).then_some(())?;
    words.nth(2)?.parse().ok()
}

fn is_hawkeye_process(pid: u32) -> bool {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("hawkeye")
}

/// Whether a process has a manager's lock file open and holds a lock on it.
fn holds_manager_lock(pid: u32, wanted: impl Fn(LockedFile) -> bool) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd"));
    descriptors.into_iter().flatten().flatten().any(|entry| {
        let names_lock = fs::read_link(entry.path()).is_ok_and(|file| has_manager_lock_name(&file));
        names_lock && {
            let number = entry.file_name();
            let info = format!("/proc/{pid}/fdinfo/{}", number.to_string_lossy());
            let info = fs::read_to_string(info).unwrap_or_default();
            info.lines().filter_map(parse_flocked_file_of_fdinfo).any(&wanted)
        }
    })
}

fn has_manager_lock_name(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(" (deleted)").unwrap_or(&name) == LOCK
}

/// The file in a line of `fdinfo` such as `lock: 1: FLOCK  ADVISORY  WRITE 812 08:01:9978 0 EOF`.
fn parse_flocked_file_of_fdinfo(line: &str) -> Option<LockedFile> {
    let lock = line.strip_prefix("lock:")?;
    let mut words = lock.split_whitespace().skip(1);
    (words.next() == Some("FLOCK")).then_some(())?;
    let mut parts = words.nth(3)?.split(':');
    let mut hexadecimal = || u64::from_str_radix(parts.next()?, 16).ok();
    let device = (hexadecimal()?, hexadecimal()?);
    Some(LockedFile { device, inode: parts.next()?.parse().ok()? })
}

/// A process, its parent, and all further ancestors.
pub(super) fn pids_of_process_and_ancestors(pid: u32) -> BTreeSet<u32> {
    let parent = |pid: &u32| {
        let parent = process::read_proc_entry(*pid, Process::stat).ok()?.ppid;
        u32::try_from(parent).ok().filter(|parent| *parent != 0)
    };
    std::iter::successors(Some(pid), parent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_lease::thp_settings::testing::TestFolder;
    use crate::processes::process::pids_of_process_and_descendants;
    use hawkeye_test_support::this_test;
    use nix::fcntl::{Flock, FlockArg};
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    /// The pid of a process that `started` has started and that looks like a manager.
    fn wait_for_manager_lock(started: &mut Child) -> Option<u32> {
        // `try_wait` leaves its input open.
        while started.try_wait().ok()?.is_none() {
            let mut pids = pids_of_process_and_descendants(started.id());
            let holds = |pid: &u32| is_hawkeye_process(*pid) && holds_manager_lock(*pid, |_| true);
            if let Some(pid) = pids.find(holds) {
                return Some(pid);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    #[test]
    fn root_of_another_pid_namespace_is_no_other_manager() {
        if !nix::unistd::geteuid().is_root() {
            return this_test!().skip("it needs root");
        }
        let folder = TestFolder::new("lock-holders");
        let program = folder.0.join("hawkeye-flock");
        if fs::copy("/usr/bin/flock", &program).is_err() {
            return this_test!().skip("there is no flock(1)");
        }
        let is_manager = |wrapper: &[&str]| {
            let lock = folder.0.join(LOCK);
            let mut command = Command::new("env");
            // It ends with its input.
            command.args(wrapper).arg(&program).arg(lock).arg("cat").stdin(Stdio::piped());
            let mut started = command.spawn().expect("env starts");
            let pid = wait_for_manager_lock(&mut started);
            let found = pid.map(|pid| is_root_manager_of_our_namespace(pid, |_| true));
            started.wait().expect("it ends");
            found
        };
        let Some(here) = is_manager(&[]) else {
            return this_test!().skip("flock(1) does not work under another name");
        };
        assert!(here);
        let unshare = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
        let Some(in_container) = is_manager(&unshare) else {
            return this_test!().skip("a pid namespace can't be made here");
        };
        assert!(!in_container);
    }

    #[test]
    fn lines_of_the_kernel_are_understood() {
        let line = "1: FLOCK  ADVISORY  WRITE 21372 fe:00:9978002 0 EOF";
        assert_eq!(parse_pid_of_flock_line(line), Some(21372));
        let file = LockedFile { device: (254, 0), inode: 9_978_002 };
        assert_eq!(parse_flocked_file_of_fdinfo(&format!("lock:\t{line}")), Some(file));
        let posix = "2: POSIX  ADVISORY  READ 5 08:01:7 0 EOF";
        assert_eq!(parse_pid_of_flock_line(posix), None);
        assert_eq!(parse_flocked_file_of_fdinfo(&format!("lock:\t{posix}")), None);
        assert_eq!(parse_flocked_file_of_fdinfo("ino:\t7"), None);
    }

    #[test]
    fn a_lock_on_the_same_inode_of_another_device_is_another_lock() {
        let folder = TestFolder::new("lock-devices");
        let file = File::open(folder.file(LOCK, "")).expect("the file can be opened");
        let lock = Flock::lock(file, FlockArg::LockExclusive).expect("the file can be locked");
        let locked = LockedFile::of_open_file(&lock).expect("the kernel describes it");
        let own = std::process::id();
        // A child that another test has just forked has the lock, too.
        assert!(lock_holders_of_file(locked).iter().any(|holder| holder.pid == own));
        let device = (locked.device.0, locked.device.1 + 1);
        assert_eq!(lock_holders_of_file(LockedFile { device, ..locked }), []);
    }

    #[test]
    fn a_process_descends_from_its_parent() {
        let family = pids_of_process_and_ancestors(std::process::id());
        assert!(family.contains(&std::os::unix::process::parent_id()));
        assert!(!family.contains(&0));
    }
}
