//! Processes: their identity and memory, and a handle that stays valid when pids are reused.

use crate::error::{LinuxError, Result};
use hawkeye_policy::saturating_cast::nanos_of_duration;
use hawkeye_policy::{ProcessId, ProcessSettings};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};
use procfs::process::{MemoryMap, Process, Stat, StatM, Status};
use procfs::{FromBufRead, FromRead, ProcResult};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::iter;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A handle on one process (a pidfd). It never refers to another process with the same pid.
#[derive(Debug)]
pub struct ProcessHandle {
    /// The process.
    pub id: ProcessId,
    fd: OwnedFd,
}

impl ProcessHandle {
    /// File descriptors that one handle takes.
    pub const DESCRIPTORS: usize = 1;

    /// Opens a process. Kernel threads are refused.
    pub fn open(pid: u32) -> Result<Self> {
        let handle = Self::open_child(pid)?;
        // This requires the same privilege as all later operations on it (`PTRACE_MODE_READ`).
        // Unlike the opening of its maps, it does not wait for an exec that is under way, which the
        // process can hold up (`exec_update_lock`).
        match std::fs::read_link(format!("/proc/{pid}/exe")) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                let owner = open_proc_entry(pid).and_then(|p| p.uid()).unwrap_or(u32::MAX);
                Err(LinuxError::NotPermitted { pid, owner })
            }
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => {
                Err(LinuxError::NoSuchProcess(pid))
            }
            // Also a name that is too long to be returned.
            _ => Ok(handle),
        }
    }

    /// Opens a child process of this one, which may have ended already.
    pub fn open_child(pid: u32) -> Result<Self> {
        const PF_KTHREAD: u32 = 0x0020_0000;
        let fd = pidfd_open(pid)?;
        let stat = read_proc_entry(pid, Process::stat)?;
        if stat.flags & PF_KTHREAD != 0 {
            return Err(LinuxError::KernelThread(pid));
        }
        let start_ticks = stat.starttime;
        Ok(Self { id: ProcessId { pid, start_ticks }, fd })
    }

    /// The pidfd.
    pub fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether the process has not ended yet.
    pub fn is_alive(&self) -> bool {
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        !matches!(poll(&mut fds, PollTimeout::ZERO), Ok(n) if n > 0)
    }
}

/// Whether each process has not ended yet, by one system call for all where that works. It fails
/// where the limit of open files was lowered.
pub(crate) fn which_are_alive<'a>(
    handles: impl IntoIterator<Item = &'a ProcessHandle>,
) -> Vec<bool> {
    let handles: Vec<&ProcessHandle> = handles.into_iter().collect();
    let poll_fd = |handle: &&'a ProcessHandle| PollFd::new(handle.fd(), PollFlags::POLLIN);
    let mut fds: Vec<PollFd<'a>> = handles.iter().map(poll_fd).collect();
    match poll(&mut fds, PollTimeout::ZERO) {
        Ok(_) => fds.iter().map(|fd| !fd.any().unwrap_or(false)).collect(),
        Err(_) => handles.into_iter().map(ProcessHandle::is_alive).collect(),
    }
}

fn pidfd_open(pid: u32) -> Result<OwnedFd> {
    // SAFETY: a plain system call without pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, saturating_pid_t(pid), 0) };
    match Errno::result(fd) {
        // SAFETY: the call just made this descriptor, and nothing else knows it.
        Ok(fd) => Ok(unsafe { OwnedFd::from_raw_fd(raw_fd_from_result(fd)) }),
        // EINVAL: the id of a thread that is not a thread group leader.
        Err(Errno::ESRCH | Errno::EINVAL | Errno::ENOENT) => Err(LinuxError::NoSuchProcess(pid)),
        Err(errno) => Err(LinuxError::wrap_errno("pidfd_open")(errno)),
    }
}

/// Reads from a process's entry in `/proc`. Fails if it has ended or belongs to another user.
pub(crate) fn read_proc_entry<T>(
    pid: u32,
    file: impl FnOnce(&Process) -> ProcResult<T>,
) -> Result<T> {
    let read = open_proc_entry(pid).and_then(|process| file(&process));
    read.map_err(|_| LinuxError::NoSuchProcess(pid))
}

/// Reads `/proc/PID/status`, also where the name in it is no text: a process chooses its name, and
/// the kernel cuts it at 15 bytes. [`Process::status`] refuses such a file.
pub(crate) fn read_status(process: &Process) -> ProcResult<Status> {
    let mut text = Vec::new();
    process.open_relative("status")?.read_to_end(&mut text)?;
    Status::from_buf_read(String::from_utf8_lossy(&text).as_bytes())
}

/// Resident anonymous memory in bytes, from `/proc/PID/status`.
pub fn anonymous_rss_bytes(pid: u32) -> Result<u64> {
    Ok(read_proc_entry(pid, read_status)?.rssanon.unwrap_or(0) * 1024)
}

/// Resident memory in bytes, from `/proc/PID/statm`.
pub fn rss_bytes(pid: u32) -> Result<u64> {
    let gone = LinuxError::NoSuchProcess(pid);
    // Seven numbers of at most 20 digits. All managed processes are read every second, so this
    // opens one file, and not the process's folder as well.
    let mut bytes = [0u8; 160];
    let file = File::open(format!("/proc/{pid}/statm"));
    let Ok(length) = file.and_then(|mut file| file.read(&mut bytes)) else { return Err(gone) };
    let statm = StatM::from_read(&bytes[..length]).map_err(|_| gone)?;
    Ok(statm.resident * procfs::page_size())
}

/// Resources that a process has used, including its ended threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuTimeAndFaults {
    /// CPU time in user mode, in seconds, with the resolution of a clock tick.
    pub user_s: f64,
    /// CPU time in the kernel, in seconds, with the resolution of a clock tick.
    pub system_s: f64,
    /// Page faults without disk access.
    pub minor_faults: u64,
}

impl CpuTimeAndFaults {
    fn from_stat(stat: &Stat) -> Self {
        let tick = procfs::ticks_per_second() as f64;
        Self {
            user_s: stat.utime as f64 / tick,
            system_s: stat.stime as f64 / tick,
            minor_faults: stat.minflt,
        }
    }
}

/// Resources that the process with this pid has used so far.
pub fn cpu_time_and_faults(pid: u32) -> Result<CpuTimeAndFaults> {
    Ok(CpuTimeAndFaults::from_stat(&read_proc_entry(pid, Process::stat)?))
}

/// Resources that a process has used so far. It is an error if another process has its pid now.
pub fn cpu_time_and_faults_of_process(process: ProcessId) -> Result<CpuTimeAndFaults> {
    let stat = read_proc_entry(process.pid, Process::stat)?;
    if stat.starttime != process.start_ticks {
        return Err(LinuxError::NoSuchProcess(process.pid));
    }
    Ok(CpuTimeAndFaults::from_stat(&stat))
}

/// No pid is larger (include/linux/threads.h, `PID_MAX_LIMIT`).
const LARGEST_PID: u32 = 1 << 22;

/// CPU time used by all threads of a process, including ended ones. `/proc/PID/stat` counts whole
/// clock ticks. This counts parts of them, but of a thread that is running only up to its last
/// scheduler tick (kernel/sched/cputime.c, `thread_group_cputime`), which may be 4 ms ago.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let gone = LinuxError::NoSuchProcess(pid);
    if pid == 0 || pid > LARGEST_PID {
        return Err(gone);
    }
    // What clock_getcpuclockid(3) computes, without its call that looks for the process
    // (include/linux/posix-timers.h, `make_process_cpuclock` with `CPUCLOCK_SCHED`).
    let clock = ClockId::from_raw((!saturating_pid_t(pid) << 3) | 2);
    clock.now().map(Duration::from).map_err(|_| gone)
}

/// Memory of this process in huge pages, in bytes.
pub fn own_huge_bytes() -> Result<u64> {
    let own = Process::myself().and_then(|own| own.smaps_rollup());
    let failed = LinuxError::wrap_io_error("reading", "/proc/self/smaps_rollup");
    let own = own.map_err(std::io::Error::other).map_err(failed)?;
    let huge = |map: &MemoryMap| map.extension.map.get("AnonHugePages").copied();
    Ok(own.memory_map_rollup.iter().find_map(huge).unwrap_or(0))
}

/// CPU time used by this process so far.
pub fn own_cpu_time() -> Duration {
    read_cpu_clock(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// CPU time that this process has used for clients, in nanoseconds.
static SERVING_NS: AtomicU64 = AtomicU64::new(0);

/// Runs work for a client, of which there may be any amount. Its CPU time is not in
/// [`managing_cpu_time`].
pub fn run_for_client<T>(work: impl FnOnce() -> T) -> T {
    let (result, used) = with_cpu_time(work);
    SERVING_NS.fetch_add(nanos_of_duration(used), Ordering::Relaxed);
    result
}

/// CPU time used by this process so far, without that of [`run_for_client`]. Otherwise clients
/// could use up the manager's budget.
pub fn managing_cpu_time() -> Duration {
    // In this order, as both grow meanwhile.
    let serving = Duration::from_nanos(SERVING_NS.load(Ordering::Relaxed));
    own_cpu_time().saturating_sub(serving)
}

/// CPU time used by the calling thread so far.
pub fn calling_thread_cpu_time() -> Duration {
    read_cpu_clock(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time used by another thread so far; zero once it has ended.
pub fn thread_cpu_time(thread: &JoinHandle<()>) -> Duration {
    let mut clock = 0;
    // SAFETY: its handle shows that the thread was neither joined nor detached, and `clock` is
    // only written to.
    let failed = unsafe { libc::pthread_getcpuclockid(thread.as_pthread_t(), &raw mut clock) };
    if failed == 0 { read_cpu_clock(ClockId::from_raw(clock)) } else { Duration::ZERO }
}

/// The result of some work, and the CPU time that the calling thread used for it.
pub fn with_cpu_time<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let before = calling_thread_cpu_time();
    let result = work();
    (result, calling_thread_cpu_time().saturating_sub(before))
}

fn read_cpu_clock(clock: ClockId) -> Duration {
    // It fails only for clocks that do not exist, as that of a thread that has just ended.
    clock.now().map_or(Duration::ZERO, Duration::from)
}

/// Time since a process began; `Duration::MAX` where that is unknown.
pub fn process_age(process: ProcessId) -> Duration {
    let ticks = procfs::ticks_per_second().max(1) as f64;
    let started = Duration::try_from_secs_f64(process.start_ticks as f64 / ticks);
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME);
    match (started, now) {
        (Ok(started), Ok(now)) => Duration::from(now).saturating_sub(started),
        _ => Duration::MAX,
    }
}

/// A real-time thread of the process (`SCHED_FIFO`, `SCHED_RR`, `SCHED_DEADLINE`), if one of its
/// first `most` threads is one.
pub fn find_real_time_thread(pid: u32, most: usize) -> Option<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let tasks = tasks.flatten().take(most);
    let threads = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    let mut real_time = threads.filter(|tid: &u32| {
        // SAFETY: a plain system call without pointers.
        let policy = unsafe { libc::sched_getscheduler(saturating_pid_t(*tid)) };
        let policy = policy & !libc::SCHED_RESET_ON_FORK;
        matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE)
    });
    real_time.next()
}

/// Checks that huge pages are not disabled for a process.
pub fn check_thp_not_disabled(pid: u32) -> Result<()> {
    match read_proc_entry(pid, read_status)?.thp_enabled {
        Some(false) => Err(LinuxError::ThpDisabled(pid)),
        _ => Ok(()),
    }
}

/// Whether a process found by a scan may be managed under these rules. One with real-time threads
/// needs a rule that includes it. A promotion holds the process's `mmap_lock`, and a real-time
/// thread that faults meanwhile misses its deadline.
pub fn check_rule_for_real_time(pid: u32, terms: &ProcessSettings) -> Result<()> {
    match find_real_time_thread(pid, usize::MAX) {
        Some(thread) if terms.rule.is_none() => Err(LinuxError::RealTime { pid, thread }),
        _ => Ok(()),
    }
}

/// Effective user of a process; `None` if it has ended.
/// [`crate::processes::client_credentials`] decides whether that user may inspect it.
pub fn effective_uid(pid: u32) -> Option<u32> {
    open_proc_entry(pid).and_then(|p| p.uid()).ok()
}

/// The pids of all processes of this pid namespace.
pub(crate) fn list_pids() -> Result<Vec<u32>> {
    let failed = LinuxError::wrap_io_error("reading", "/proc");
    let entries = std::fs::read_dir("/proc").map_err(failed)?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// `root` and the processes that descend from it, as far as they are still connected. An orphan
/// belongs to another parent.
pub fn pids_of_process_and_descendants(root: u32) -> impl Iterator<Item = u32> + Send {
    search_process_and_descendants(root).flatten()
}

/// As [`pids_of_process_and_descendants`], in short steps: one process, or the children of one
/// thread. A step that finds no process gives `None`.
pub(crate) fn search_process_and_descendants(
    root: u32,
) -> impl Iterator<Item = Option<u32>> + Send {
    let mut found = BTreeSet::new();
    let mut waiting = vec![(root, None)];
    // The parent of the children that are read now, and its threads that are left.
    let mut parent_threads: Option<(i32, procfs::process::TasksIter)> = None;
    iter::from_fn(move || {
        if let Some((parent, threads)) = &mut parent_threads {
            if let Some(thread) = threads.next() {
                // A thread that ends meanwhile has no more children.
                let children = thread.and_then(|thread| thread.children()).unwrap_or_default();
                waiting.extend(children.into_iter().map(|child| (child, Some(*parent))));
                return Some(None);
            }
            parent_threads = None;
        }
        let (pid, parent) = waiting.pop()?;
        let Ok(process) = open_proc_entry(pid) else {
            return Some(None);
        };
        // If the child has ended, an unrelated process may have its pid.
        let is_child_of = |parent: i32| process.stat().is_ok_and(|stat| stat.ppid == parent);
        if parent.is_some_and(|parent| !is_child_of(parent)) || !found.insert(pid) {
            return Some(None);
        }
        parent_threads = process.tasks().ok().map(|threads| (saturating_pid_t(pid), threads));
        Some(Some(pid))
    })
}

/// The entry of a process in `/proc`; an error if there is no such process.
pub(crate) fn open_proc_entry(pid: u32) -> ProcResult<Process> {
    Process::new(saturating_pid_t(pid))
}

/// The id of a process or thread, as the kernel's calls take it. Larger ids do not exist.
pub(crate) fn saturating_pid_t(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// A file descriptor, from the result of a system call.
#[expect(clippy::cast_possible_truncation, reason = "descriptors are of 32 bits")]
pub(crate) const fn raw_fd_from_result(result: i64) -> i32 {
    result as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::process_attributes::read_process_attributes;
    use crate::processes::user_names::UserNames;
    use std::os::unix::fs::symlink;
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::sync::mpsc;
    use std::time::Instant;

    #[test]
    fn the_ended_ones_of_many_processes_are_found() {
        let start = || Command::new("sleep").arg("600").spawn().expect("the program starts");
        let mut children = [start(), start(), start()];
        let handles = children.each_ref().map(|it| ProcessHandle::open_child(it.id()));
        let handles = handles.map(|handle| handle.expect("it is a child"));
        assert_eq!(which_are_alive(&handles), [true; 3]);
        children[1].kill().and_then(|()| children[1].wait()).expect("it ends");
        assert_eq!(which_are_alive(&handles), [true, false, true]);
        for child in [0, 2] {
            children[child].kill().and_then(|()| children[child].wait()).expect("it ends");
        }
        assert_eq!(which_are_alive(&handles), [false; 3]);
    }

    #[test]
    fn a_number_that_is_no_pid_has_no_cpu_time() {
        assert!(cpu_time(std::process::id()).is_ok_and(|cpu| !cpu.is_zero()));
        for pid in [0, LARGEST_PID, LARGEST_PID + 1, 1 << 28, u32::MAX] {
            assert!(cpu_time(pid).is_err(), "{pid}");
        }
    }

    #[test]
    fn cpu_time_of_clients_does_not_count_as_managing() {
        const WORK: Duration = Duration::from_millis(100);
        run_for_client(|| {
            let begun = calling_thread_cpu_time();
            while calling_thread_cpu_time() < begun + WORK {}
        });
        // In this order the difference is no less than what was served.
        let managing = managing_cpu_time();
        let all = own_cpu_time();
        assert!(all.saturating_sub(managing) >= WORK, "{managing:?} of {all:?}");
    }

    #[test]
    fn cpu_time_of_another_thread_is_no_more_than_it_uses() {
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {}
            let _ = tell.send(calling_thread_cpu_time());
        });
        let mut seen = Duration::ZERO;
        while seen.is_zero() {
            seen = thread_cpu_time(&thread);
        }
        drop(end);
        let used = told.recv().expect("the thread reports its time");
        assert!(seen <= used, "{seen:?} of {used:?}");
        thread.join().expect("the thread ends");
    }

    /// The kernel cuts a name at 15 bytes: here in the middle of the eighth letter.
    #[test]
    fn a_process_whose_name_is_no_text_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let folders = std::env::var_os("PATH").expect("there is a PATH");
        let mut files = std::env::split_paths(&folders).map(|folder| folder.join("sleep"));
        let sleep = files.find(|file| file.exists()).expect("there is a program");
        let program = folder.path().join("программа");
        symlink(sleep, &program).expect("a link");
        let started = Command::new(&program).arg0("sleep").arg("600").spawn();
        let mut child = started.expect("the program starts");
        let pid = child.id();
        // The child has our name at first: the kernel lets this thread go on before it renames it.
        let name_of = |task: &str| std::fs::read(format!("/proc/{task}/comm")).ok();
        let deadline = Instant::now() + Duration::from_secs(60);
        while name_of(&pid.to_string()) == name_of("thread-self") && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let status = read_proc_entry(pid, read_status);
        let identity = read_process_attributes(pid, &UserNames::default());
        let (bytes, thp) = (anonymous_rss_bytes(pid), check_thp_not_disabled(pid));
        child.kill().expect("the process can be killed");
        child.wait().expect("the process ends");
        assert!(status.expect("it is read").name.starts_with("програм"));
        assert!(identity.expect("it is read").command.starts_with("програм"));
        assert!(bytes.is_ok());
        assert!(!matches!(thp, Err(LinuxError::NoSuchProcess(_))), "{thp:?}");
    }

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
        let (is_real_time, thread_id) = told.recv().expect("the thread starts");
        let with_rule = ProcessSettings { rule: Some(0), ..ProcessSettings::default() };
        let found = check_rule_for_real_time(own, &ProcessSettings::default());
        let allowed = check_rule_for_real_time(own, &with_rule);
        // The first thread is the one that began the process.
        let among_first = find_real_time_thread(own, 1);
        drop(end);
        thread.join().expect("the thread ends");
        assert!(allowed.is_ok());
        assert_eq!(among_first, None);
        // It requires CAP_SYS_NICE.
        if is_real_time {
            let said = found.expect_err("a real-time process needs a rule").to_string();
            assert!(said.contains(&format!("thread {thread_id}")), "{said}");
        }
    }

    #[test]
    fn a_search_for_children_takes_a_step_for_each_thread() {
        const THREADS: usize = 4;
        let met = std::sync::Barrier::new(THREADS + 1);
        let found = std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| met.wait());
            }
            let found: Vec<_> = search_process_and_descendants(std::process::id()).collect();
            met.wait();
            found
        });
        assert_eq!(found.first(), Some(&Some(std::process::id())));
        // The thread of the test has a step of its own.
        assert!(found.iter().filter(|found| found.is_none()).count() > THREADS, "{found:?}");
    }
}
