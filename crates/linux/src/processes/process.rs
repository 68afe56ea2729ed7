//! Processes: who they are, what they hold, and the handle that stays right when pids are reused.

use crate::error::{LinuxError, Result};
use hawkeye_policy::whole::i64_of;
use hawkeye_policy::{ProcessId, Terms};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::sys::uio::pread;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use procfs::process::Process;
use std::collections::BTreeSet;
use std::fs::File;
use std::iter;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A handle on one process (a pidfd): never another process that got the same pid.
#[derive(Debug)]
pub struct ProcessHandle {
    /// Who it is.
    pub id: ProcessId,
    fd: OwnedFd,
}

impl ProcessHandle {
    /// File descriptors that one takes.
    pub const DESCRIPTORS: usize = 1;

    /// Opens a process.
    ///
    /// # Errors
    /// It is gone, a kernel thread, or somebody else's.
    pub fn open(pid: u32) -> Result<Self> {
        let handle = Self::of_child(pid)?;
        // Reading its maps takes the same privilege as everything we do to it.
        match std::fs::File::open(format!("/proc/{pid}/pagemap")) {
            Ok(_) => Ok(handle),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let owner = entry(pid).and_then(|p| p.uid()).unwrap_or(u32::MAX);
                Err(LinuxError::NotPermitted { pid, owner })
            }
            Err(_) => Err(LinuxError::NoSuchProcess(pid)),
        }
    }

    /// Opens a child of ours, which may have ended already.
    ///
    /// # Errors
    /// It is no child of ours, or a kernel thread.
    pub fn of_child(pid: u32) -> Result<Self> {
        const PF_KTHREAD: u32 = 0x0020_0000;
        let fd = pidfd_open(pid)?;
        let stat = stat_of(pid)?;
        if stat.flags & PF_KTHREAD != 0 {
            return Err(LinuxError::KernelThread(pid));
        }
        let start_ticks = stat.starttime;
        Ok(Self {
            id: ProcessId { pid, start_ticks },
            fd,
        })
    }

    /// The pidfd.
    pub fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether it has not ended yet.
    pub fn alive(&self) -> bool {
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        !matches!(poll(&mut fds, PollTimeout::ZERO), Ok(n) if n > 0)
    }
}

/// Another process's memory for reading, by `/proc/PID/mem`: reads reach the address space that the process had when this
/// was opened, or none. A call by pid could reach another process that got the same pid.
///
/// A read never waits for userfaultfd: it fails with `EIO` where a monitor would have to answer (mm/gup.c,
/// `get_user_page_vma_remote` allows no retry; fs/userfaultfd.c, `handle_userfault`). `process_vm_readv` waits.
#[derive(Debug)]
pub struct ProcessMemory(File);

impl ProcessMemory {
    /// Opens it.
    ///
    /// # Errors
    /// The process has ended, or its memory may not be read.
    pub fn open(process: &ProcessHandle) -> Result<Self> {
        let pid = process.id.pid;
        let path = format!("/proc/{pid}/mem");
        let opened = File::open(&path).map_err(LinuxError::file("opening", path));
        // A pid stays with its process until that has ended: only now is it known whose memory was opened.
        if !process.alive() {
            return Err(LinuxError::NoSuchProcess(pid));
        }
        opened.map(Self)
    }

    /// Reads bytes. Memory that nothing has touched is mapped by that, as by a read of the process's own.
    ///
    /// # Errors
    /// `EIO`: nothing is mapped there, or userfaultfd watches it; `ESRCH`: the process has ended or executed another
    /// program since this was opened.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let failed = |errno| LinuxError::Call {
            call: "reading memory of a process",
            errno,
        };
        match pread(&self.0, bytes, i64_of(address)) {
            Ok(0) => Err(failed(Errno::ESRCH)),
            Ok(read) if read == bytes.len() => Ok(()),
            Ok(_) => Err(failed(Errno::EIO)),
            Err(errno) => Err(failed(errno)),
        }
    }
}

fn pidfd_open(pid: u32) -> Result<OwnedFd> {
    // SAFETY: a plain system call without pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid_t(pid), 0) };
    if fd >= 0 {
        // SAFETY: the call just made this descriptor, nobody else knows it.
        return Ok(unsafe { OwnedFd::from_raw_fd(descriptor(fd)) });
    }
    match Errno::last() {
        // EINVAL: a thread that leads no process.
        Errno::ESRCH | Errno::EINVAL | Errno::ENOENT => Err(LinuxError::NoSuchProcess(pid)),
        errno => Err(LinuxError::Call {
            call: "pidfd_open",
            errno,
        }),
    }
}

fn stat_of(pid: u32) -> Result<procfs::process::Stat> {
    entry(pid)
        .and_then(|process| process.stat())
        .map_err(|_| LinuxError::NoSuchProcess(pid))
}

/// Page faults that did not wait for a disk, since the process began.
pub fn minor_faults(pid: u32) -> Result<u64> {
    Ok(stat_of(pid)?.minflt)
}

/// Resident anonymous memory in bytes, from `/proc/PID/status`.
pub fn anonymous_bytes(pid: u32) -> Result<u64> {
    let status = entry(pid).and_then(|process| process.status());
    let status = status.map_err(|_| LinuxError::NoSuchProcess(pid))?;
    Ok(status.rssanon.unwrap_or(0) * 1024)
}

/// Resident memory in bytes, from `/proc/PID/statm`.
pub fn rss_bytes(pid: u32) -> Result<u64> {
    entry(pid)
        .and_then(|process| process.statm())
        .map(|statm| statm.resident * procfs::page_size())
        .map_err(|_| LinuxError::NoSuchProcess(pid))
}

/// What a process has used, its ended threads included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Used {
    /// CPU time in user mode, in seconds, to a clock tick.
    pub user_s: f64,
    /// CPU time in the kernel, in seconds, to a clock tick.
    pub system_s: f64,
    /// Page faults that needed no disk.
    pub minor_faults: u64,
}

/// What a process has used so far.
///
/// # Errors
/// It is gone.
pub fn used(pid: u32) -> Result<Used> {
    let stat = entry(pid).and_then(|process| process.stat());
    let stat = stat.map_err(|_| LinuxError::NoSuchProcess(pid))?;
    let tick = procfs::ticks_per_second() as f64;
    Ok(Used {
        user_s: stat.utime as f64 / tick,
        system_s: stat.stime as f64 / tick,
        minor_faults: stat.minflt,
    })
}

/// CPU time that all threads of a process have used, those that ended included. Exact to the moment,
/// where `/proc/PID/stat` counts in clock ticks.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let gone = |_| LinuxError::NoSuchProcess(pid);
    let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(pid_t(pid))).map_err(gone)?;
    clock.now().map(Duration::from).map_err(gone)
}

/// Memory of this process under huge pages, in bytes.
///
/// # Errors
/// It can't be read.
pub fn own_huge_bytes() -> Result<u64> {
    let path = "/proc/self/smaps_rollup";
    let text = std::fs::read_to_string(path).map_err(LinuxError::file("reading", path))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("AnonHugePages:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kib.unwrap_or(0) << 10)
}

/// CPU time that this process has used so far.
pub fn own_cpu() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else {
        return Duration::ZERO;
    };
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// CPU time that the calling thread has used so far.
pub fn thread_cpu() -> Duration {
    let time = ClockId::CLOCK_THREAD_CPUTIME_ID.now();
    // Fails only for clocks that don't exist.
    time.map_or(Duration::ZERO, Duration::from)
}

/// How long ago a process began; `Duration::MAX` where that can't be told.
pub fn age(process: ProcessId) -> Duration {
    let ticks = procfs::ticks_per_second().max(1) as f64;
    let started = Duration::try_from_secs_f64(process.start_ticks as f64 / ticks);
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME);
    match (started, now) {
        (Ok(started), Ok(now)) => Duration::from(now).saturating_sub(started),
        _ => Duration::MAX,
    }
}

/// A thread of the process that is scheduled ahead of ordinary ones (`SCHED_FIFO`, `SCHED_RR`, `SCHED_DEADLINE`), if it has one.
pub fn real_time_thread(pid: u32) -> Option<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let threads = tasks
        .flatten()
        .filter_map(|task| task.file_name().to_str()?.parse().ok());
    let mut real_time = threads.filter(|tid: &u32| {
        // SAFETY: a plain system call without pointers.
        let policy = unsafe { libc::sched_getscheduler(pid_t(*tid)) };
        let policy = policy & !libc::SCHED_RESET_ON_FORK;
        matches!(
            policy,
            libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE
        )
    });
    real_time.next()
}

/// Whether a process that was found by itself may be managed on these terms: one with real-time threads only where a rule
/// includes it. A promotion holds the process's `mmap_lock`, and a real-time thread that faults meanwhile misses its time.
///
/// # Errors
/// It has real-time threads, and no rule includes it.
pub fn may_be_managed(pid: u32, terms: &Terms) -> Result<()> {
    match real_time_thread(pid) {
        Some(thread) if terms.rule.is_none() => Err(LinuxError::RealTime { pid, thread }),
        _ => Ok(()),
    }
}

/// Effective user; `None` if the process is gone. Whether that user may look into it: [`crate::processes::access`].
pub fn owner(pid: u32) -> Option<u32> {
    entry(pid).and_then(|p| p.uid()).ok()
}

/// The processes that descend from `root`, itself included, as far as they are still connected:
/// an orphan belongs to somebody else.
pub fn family(root: u32) -> impl Iterator<Item = u32> + Send {
    let mut found = BTreeSet::new();
    let mut waiting = vec![(root, None)];
    iter::from_fn(move || {
        while let Some((pid, parent)) = waiting.pop() {
            let Ok(process) = entry(pid) else {
                continue;
            };
            // One that has ended may have left its pid to a stranger.
            let is_child_of = |parent: i32| process.stat().is_ok_and(|stat| stat.ppid == parent);
            if parent.is_some_and(|parent| !is_child_of(parent)) || !found.insert(pid) {
                continue;
            }
            // A process that ends while we look simply has no more children.
            let tasks = process.tasks().into_iter().flatten().flatten();
            let children = tasks.filter_map(|task| task.children().ok()).flatten();
            waiting.extend(children.map(|child| (child, Some(pid_t(pid)))));
            return Some(pid);
        }
        None
    })
}

/// The entry of a process in `/proc`.
///
/// # Errors
/// There is no such process.
pub(crate) fn entry(pid: u32) -> procfs::ProcResult<Process> {
    Process::new(pid_t(pid))
}

/// A number of a process or thread as the kernel's calls take it. There are no higher ones.
pub(crate) fn pid_t(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A descriptor that a system call has made.
#[expect(
    clippy::cast_possible_truncation,
    reason = "descriptors are of 32 bits"
)]
pub(crate) const fn descriptor(result: i64) -> i32 {
    result as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn one_real_time_thread_is_enough_to_need_a_rule() {
        let own = std::process::id();
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let lowest = libc::sched_param { sched_priority: 1 };
            // SAFETY: a plain system call on this thread, which only reads `lowest`.
            let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const lowest) };
            let _ = tell.send((set == 0, nix::unistd::gettid().as_raw() as u32));
            let _ = ended.recv();
        });
        let (is_real_time, thread_id) = told.recv().expect("starts");
        let with_rule = Terms {
            rule: Some(0),
            ..Terms::default()
        };
        let found = may_be_managed(own, &Terms::default());
        let allowed = may_be_managed(own, &with_rule);
        drop(end);
        thread.join().expect("ends");
        assert!(allowed.is_ok());
        // It takes CAP_SYS_NICE.
        if is_real_time {
            let said = found.expect_err("it needs a rule").to_string();
            assert!(said.contains(&format!("thread {thread_id}")), "{said}");
        }
    }
}
