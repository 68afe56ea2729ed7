//! Finds the processes with enough anonymous memory, at the least possible cost.
//!
//! A scan costs four system calls for each process, and four more for one with enough memory. For
//! one that has not run since the scan before, it costs one. A process that starts and ends between
//! two scans costs nothing. No read here takes a lock that a process can hold for long
//! (`mmap_lock`).

use crate::error::{LinuxError, Result};
use crate::processes::process::cpu_time;
use hawkeye_policy::ProcessId;
use hawkeye_policy::management_slot_ranking::estimate_unshared_bytes_of_family;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstatat};
use procfs::FromRead;
use procfs::process::{self, StatM};
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A process that a scan found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedProcess {
    /// The process.
    pub process: ProcessId,
    /// Resident memory without a file behind it, in bytes.
    pub anonymous_bytes: u64,
    /// Part of it that is not shared with processes forked from the same program, in bytes. An
    /// estimate, see [`estimate_unshared_bytes_of_family`].
    pub own_bytes: u64,
    /// Number of processes with which it may share memory, itself included.
    pub family: usize,
    /// CPU time used by its threads.
    pub cpu: Duration,
    /// Its program and user.
    pub program: ProgramIdentity,
}

/// Shows whether a process has started another program, or runs as another user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramIdentity {
    /// Its command name.
    pub command: String,
    /// Its effective user.
    pub user: u32,
    layout: Option<AddressLayoutSharedByForks>,
}

/// Addresses that the kernel chooses anew at each exec, and that forks inherit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct AddressLayoutSharedByForks {
    start_code: u64,
    start_stack: u64,
    start_brk: u64,
}

impl ProgramIdentity {
    /// Whether the process has called exec since it was `before`.
    pub fn executed_since(&self, before: &Self) -> bool {
        self.layout != before.layout
    }
}

/// Result of one scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcScanResult {
    /// Number of processes, kernel threads included.
    pub processes: usize,
    /// Those with enough anonymous memory, by ascending pid.
    pub large: Vec<ScannedProcess>,
}

/// Scans all processes of this pid namespace.
#[derive(Debug)]
pub struct ProcScanner {
    proc: Dir,
    page_bytes: u64,
    ticks_per_s: f64,
    unfinished: Option<UnfinishedScan>,
    /// What was last read of each process, by pid.
    known: HashMap<u32, KnownProcess>,
}

/// A process that has not run is read again after this time in any case. Its parent may have ended,
/// and its memory have changed without it: by reclaim, huge pages, userfaultfd or another process.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// What was read of a process.
#[derive(Debug)]
struct KnownProcess {
    read_at: Instant,
    /// Its CPU time right before.
    cpu: Duration,
    anonymous_bytes: u64,
    /// With the pid of its parent; `None` where it was not large.
    entry: Option<(ScannedProcess, u32)>,
}

/// A scan that has not finished before its deadline.
#[derive(Debug)]
struct UnfinishedScan {
    least_bytes: u64,
    processes: usize,
    rest: std::vec::IntoIter<u32>,
    /// With the pid of its parent.
    large: Vec<(ScannedProcess, u32)>,
}

impl ProcScanner {
    /// Opens `/proc`.
    pub fn open() -> Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let proc = Dir::open("/proc", flags, Mode::empty());
        let proc = proc.map_err(LinuxError::wrap_errno("opening /proc"))?;
        Ok(Self {
            proc,
            page_bytes: procfs::page_size(),
            ticks_per_s: procfs::ticks_per_second().max(1) as f64,
            unfinished: None,
            known: HashMap::new(),
        })
    }

    /// Discards an unfinished scan. The next one begins with the first process.
    pub fn discard_unfinished_scan(&mut self) {
        self.unfinished = None;
    }

    /// Returns every process with at least `least_bytes` (over 0) of anonymous memory. It omits
    /// processes that end meanwhile, and kernel threads, which have no such memory. Returns `None`
    /// if the deadline passes first; the next call goes on from there.
    ///
    /// # Errors
    /// No process can be read at the moment, for example because of too many open files. That does
    /// not mean that processes have ended. The next scan begins with the first process.
    pub fn scan_large_processes(
        &mut self,
        least_bytes: u64,
        deadline: Instant,
    ) -> Result<Option<ProcScanResult>> {
        let unfinished = self.unfinished.take();
        let mut scan = unfinished.unwrap_or_else(|| self.list_pids_for_scan(least_bytes));
        while let Some(pid) = scan.rest.next() {
            scan.large.extend(self.find_large_process(pid, scan.least_bytes)?);
            if Instant::now() >= deadline {
                self.unfinished = Some(scan);
                return Ok(None);
            }
        }
        let large = self.attribute_shared_memory_once(scan.large);
        Ok(Some(ProcScanResult { processes: scan.processes, large }))
    }

    fn list_pids_for_scan(&mut self, least_bytes: u64) -> UnfinishedScan {
        let pids: Vec<u32> = self
            .proc
            .iter()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok())
            .collect();
        let there: HashSet<u32> = pids.iter().copied().collect();
        self.known.retain(|pid, _| there.contains(pid));
        let (processes, rest) = (pids.len(), pids.into_iter());
        UnfinishedScan { least_bytes, processes, rest, large: Vec::new() }
    }

    /// The process, with the pid of its parent, if it has at least `least_bytes`. One that has not
    /// run since it was read is not read again.
    fn find_large_process(
        &mut self,
        pid: u32,
        least_bytes: u64,
    ) -> Result<Option<(ScannedProcess, u32)>> {
        let cpu = cpu_time(pid).ok();
        let known = self.known.get(&pid).filter(|known| {
            let is_complete = known.entry.is_some() || known.anonymous_bytes < least_bytes;
            Some(known.cpu) == cpu && is_complete && known.read_at.elapsed() < READ_AGAIN
        });
        if let Some(known) = known {
            let large = known.entry.as_ref().filter(|_| known.anonymous_bytes >= least_bytes);
            return Ok(large.cloned());
        }
        let bytes = self.read_anonymous_bytes(pid);
        let Some(anonymous_bytes) = none_if_gone_or_unreadable("reading /proc/PID/statm", bytes)?
        else {
            return Ok(None);
        };
        let is_large = anonymous_bytes >= least_bytes;
        let entry = is_large.then(|| self.read_entry(pid, anonymous_bytes)).transpose();
        let entry = none_if_gone_or_unreadable("reading /proc/PID/stat", entry)?.flatten();
        if let Some(cpu) = cpu {
            let read_at = Instant::now();
            let known = KnownProcess { read_at, cpu, anonymous_bytes, entry: entry.clone() };
            self.known.insert(pid, known);
        }
        Ok(entry)
    }

    /// Counts memory that forks of one program may share only once.
    fn attribute_shared_memory_once(
        &self,
        mut large: Vec<(ScannedProcess, u32)>,
    ) -> Vec<ScannedProcess> {
        let mut parents = self.read_small_parents_of_large(&large);
        let mut families: HashMap<AddressLayoutSharedByForks, Vec<&mut ScannedProcess>> =
            HashMap::new();
        for (entry, _) in large.iter_mut().chain(&mut parents) {
            if let Some(layout) = entry.program.layout {
                families.entry(layout).or_default().push(entry);
            }
        }
        for mut family in families.into_values() {
            family.sort_by_key(|entry| (entry.process.start_ticks, entry.process.pid));
            let count = family.len();
            let bytes: Vec<u64> = family.iter().map(|it| it.anonymous_bytes).collect();
            for (entry, own) in family.into_iter().zip(estimate_unshared_bytes_of_family(&bytes)) {
                (entry.own_bytes, entry.family) = (own, count);
            }
        }
        large.into_iter().map(|(entry, _)| entry).collect()
    }

    /// Small parents of large processes. They share little with their children.
    fn read_small_parents_of_large(
        &self,
        large: &[(ScannedProcess, u32)],
    ) -> Vec<(ScannedProcess, u32)> {
        let known: HashSet<u32> = large.iter().map(|(entry, _)| entry.process.pid).collect();
        let parents: HashSet<u32> = large.iter().map(|(_, parent)| *parent).collect();
        let unknown = parents.difference(&known).filter(|pid| **pid != 0);
        // A parent that cannot be read counts as another program.
        let read = |pid: &u32| self.read_entry(*pid, self.read_anonymous_bytes(*pid).ok()?).ok();
        unknown.filter_map(read).collect()
    }

    /// `resident - shared` of `/proc/PID/statm`.
    fn read_anonymous_bytes(&self, pid: u32) -> Result<u64, Errno> {
        // The kernel does not read the two counters at the same time.
        // Seven numbers of at most 20 digits.
        let mut bytes = [0u8; 160];
        let pages = parse_anonymous_pages(self.read_process_file(pid, "statm", &mut bytes)?);
        Ok(pages.saturating_mul(self.page_bytes))
    }

    fn read_entry(&self, pid: u32, anonymous_bytes: u64) -> Result<(ScannedProcess, u32), Errno> {
        // The file has 52 fields: numbers of at most 20 digits, and one name.
        let mut bytes = [0u8; 2048];
        let stat = self.read_process_file(pid, "stat", &mut bytes)?;
        let entry = parse_stat(stat, anonymous_bytes, self.ticks_per_s);
        let (mut entry, parent) = entry.ok_or(Errno::ESRCH)?;
        // The folder belongs to the effective user, even if the process is not dumpable.
        let name = pid.to_string();
        let folder = fstatat(self.proc.as_fd(), name.as_str(), AtFlags::empty())?;
        entry.program.user = folder.st_uid;
        Ok((entry, parent))
    }

    /// Reads a file into `bytes`. A scan reads a file of every process, so this allocates none.
    fn read_process_file<'b>(
        &self,
        pid: u32,
        file: &str,
        bytes: &'b mut [u8],
    ) -> Result<&'b [u8], Errno> {
        let path = format!("{pid}/{file}");
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let file = openat(self.proc.as_fd(), path.as_str(), flags, Mode::empty())?;
        let length = nix::unistd::read(&file, bytes)?;
        Ok(&bytes[..length])
    }
}

/// Returns `None` for a process that has ended or that this one may not read.
fn none_if_gone_or_unreadable<T>(call: &'static str, read: Result<T, Errno>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Errno::ENOENT | Errno::ESRCH | Errno::EACCES | Errno::EPERM) => Ok(None),
        Err(errno) => Err(LinuxError::wrap_errno(call)(errno)),
    }
}

fn parse_anonymous_pages(statm: &[u8]) -> u64 {
    let statm = StatM::from_read(statm);
    statm.map_or(0, |pages| pages.resident.saturating_sub(pages.shared))
}

/// The process that `/proc/PID/stat` describes, with all its memory its own, and its parent's pid.
fn parse_stat(
    text: &[u8],
    anonymous_bytes: u64,
    ticks_per_s: f64,
) -> Option<(ScannedProcess, u32)> {
    let stat = process::Stat::from_read(text).ok()?;
    let layout = AddressLayoutSharedByForks {
        start_code: stat.startcode,
        start_stack: stat.startstack,
        start_brk: stat.start_brk?,
    };
    let cpu_s = stat.utime.saturating_add(stat.stime) as f64 / ticks_per_s;
    let entry = ScannedProcess {
        process: ProcessId { pid: stat.pid.unsigned_abs(), start_ticks: stat.starttime },
        anonymous_bytes,
        own_bytes: anonymous_bytes,
        family: 1,
        cpu: Duration::try_from_secs_f64(cpu_s).unwrap_or(Duration::MAX),
        program: ProgramIdentity {
            command: stat.comm,
            user: 0,
            // The kernel writes zero where it hides addresses.
            layout: (layout.start_stack != 0).then_some(layout),
        },
    };
    Some((entry, stat.ppid.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_is_what_no_file_backs() {
        let pages = |statm: &str| parse_anonymous_pages(statm.as_bytes());
        assert_eq!(pages("2603 1250 900 10 0 400 0\n"), 350);
        // A kernel thread.
        assert_eq!(pages("0 0 0 0 0 0 0\n"), 0);
        assert_eq!(pages("9 3 4 1 0 1 0\n"), 0);
        assert_eq!([pages(""), pages("x y z")], [0, 0]);
    }

    const STAT: &str = "42 (a) b (c) S 7 42 42 0 -1 4194304 111 0 0 0 30 12 0 0 20 0 1 0 9876 1000 50 \
        18446744073709551615 1111 2222 3333 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 4444 5555 6666 7777 8888 9999 1010 0";

    #[test]
    fn a_process_is_read_whatever_its_command_is_called() {
        let (found, parent) =
            parse_stat(STAT.as_bytes(), 0, 100.0).expect("the text is a valid stat file");
        assert_eq!(found.process.pid, 42);
        assert_eq!(found.process.start_ticks, 9876);
        assert_eq!((parent, found.cpu), (7, Duration::from_millis(420)));
        assert_eq!(found.program.command, "a) b (c");
        let layout = found.program.layout.expect("the layout is visible");
        let addresses = [layout.start_code, layout.start_stack, layout.start_brk];
        assert_eq!(addresses, [1111, 3333, 6666]);
        assert_eq!(parse_stat(b"42 (cut off) S 1", 0, 100.0), None);
        assert_eq!(parse_stat(b"", 0, 100.0), None);
    }

    #[test]
    fn processes_with_hidden_addresses_are_no_family() {
        let hidden = STAT.replace("3333", "0");
        let (found, _) =
            parse_stat(hidden.as_bytes(), 0, 100.0).expect("the text is a valid stat file");
        assert_eq!(found.program.layout, None);
    }

    #[test]
    fn each_scan_finds_this_process_by_its_memory() {
        let memory = vec![1u8; 16 << 20];
        let mut scanner = ProcScanner::open().expect("/proc can be opened");
        for _ in 0..2 {
            let scan = full_scan(&mut scanner, 8 << 20);
            let mut large = scan.large.iter();
            let own = large.find(|seen| seen.process.pid == std::process::id());
            let own = own.expect("the scan finds this process");
            assert!(own.anonymous_bytes >= memory.len() as u64);
            assert_eq!(own.program.user, nix::unistd::geteuid().as_raw());
            assert!(own.process.start_ticks > 0);
            assert!(scan.processes >= scan.large.len());
        }
        let none_large = full_scan(&mut scanner, u64::MAX);
        assert!(none_large.large.is_empty());
    }

    #[test]
    fn a_process_that_has_not_run_is_not_read_again() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("it starts");
        let pid = child.id();
        let mut scanner = ProcScanner::open().expect("/proc can be opened");
        let find = |scanner: &mut ProcScanner, least_bytes| {
            scanner.find_large_process(pid, least_bytes).expect("the process can be read")
        };
        // It has executed its program, and sleeps.
        while cpu_time(pid).is_ok_and(|cpu| cpu.is_zero())
            || process::Process::new(pid as i32).is_ok_and(|it| {
                it.stat().is_ok_and(|stat| stat.comm != "sleep" || stat.state != 'S')
            })
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (first, parent) = find(&mut scanner, 4096).expect("it has memory");
        assert_eq!((first.process.pid, parent), (pid, std::process::id()));
        let mark = |scanner: &mut ProcScanner, bytes| {
            let known = scanner.known.get_mut(&pid).expect("the process is known");
            known.anonymous_bytes = bytes;
        };
        mark(&mut scanner, 1);
        assert_eq!(find(&mut scanner, 4096), None, "it was read again");
        mark(&mut scanner, 5000);
        assert_eq!(find(&mut scanner, 4096), Some((first.clone(), parent)));
        // It ran, it is too long ago, or more is asked than is known.
        let forget_cpu = |known: &mut KnownProcess| known.cpu = Duration::ZERO;
        let forget_entry = |known: &mut KnownProcess| known.entry = None;
        let age = |known: &mut KnownProcess| {
            known.read_at = known.read_at.checked_sub(READ_AGAIN).unwrap_or(known.read_at);
        };
        for change in [forget_cpu as fn(&mut KnownProcess), forget_entry, age] {
            mark(&mut scanner, 5000);
            change(scanner.known.get_mut(&pid).expect("the process is known"));
            assert_eq!(find(&mut scanner, 4096), Some((first.clone(), parent)));
            assert_eq!(scanner.known[&pid].anonymous_bytes, first.anonymous_bytes);
        }
        child.kill().and_then(|()| child.wait()).expect("the process ends");
        assert_eq!(find(&mut scanner, 4096), None);
        full_scan(&mut scanner, u64::MAX);
        assert!(!scanner.known.contains_key(&pid));
    }

    fn full_scan(scanner: &mut ProcScanner, least_bytes: u64) -> ProcScanResult {
        let deadline = Instant::now() + Duration::from_secs(60);
        let found = scanner.scan_large_processes(least_bytes, deadline);
        found.expect("/proc can be read").expect("a scan ends within a minute")
    }

    #[test]
    fn a_scan_without_time_looks_at_one_process_a_call() {
        let _memory = vec![1u8; 16 << 20];
        let mut scanner = ProcScanner::open().expect("/proc can be opened");
        let mut scan =
            || scanner.scan_large_processes(8 << 20, Instant::now()).expect("/proc can be read");
        let found = (1..).find_map(|calls| Some((calls, scan()?)));
        let (calls, scan) = found.expect("the scan ends");
        assert_eq!(calls, scan.processes + 1);
        let own = |seen: &ScannedProcess| seen.process.pid == std::process::id();
        assert!(scan.large.iter().any(own));
    }

    fn test_entry(pid: u32, parent: u32, layout: u64, bytes: u64) -> (ScannedProcess, u32) {
        let layout =
            AddressLayoutSharedByForks { start_code: 1, start_stack: layout, start_brk: 1 };
        let entry = ScannedProcess {
            process: hawkeye_test_support::event_constructors::process_with_pid(pid),
            anonymous_bytes: bytes,
            own_bytes: bytes,
            family: 1,
            cpu: Duration::ZERO,
            program: ProgramIdentity { layout: Some(layout), ..ProgramIdentity::default() },
        };
        (entry, parent)
    }

    #[test]
    fn forks_count_what_they_share_once_and_other_programs_keep_theirs() {
        let scanner = ProcScanner::open().expect("/proc can be opened");
        let large =
            vec![test_entry(10, 0, 1, 100), test_entry(11, 10, 1, 160), test_entry(12, 0, 2, 70)];
        let found = scanner.attribute_shared_memory_once(large);
        let own: Vec<_> = found.iter().map(|it| (it.own_bytes, it.family)).collect();
        assert_eq!(own, [(100, 2), (110, 2), (70, 1)]);
    }
}
