//! Finds the processes with enough anonymous memory, for as little as that can be had.
//!
//! A sweep costs three system calls a process, and four more for a process with enough memory. It remembers
//! none of them: a process that is forked and gone between two sweeps costs nothing. Nothing that is read
//! here takes a lock that a process can hold for long (`mmap_lock`).

use crate::error::{LinuxError, Result};
use hawkeye_policy::ProcessId;
use hawkeye_policy::ranking::own_bytes;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, fstatat};
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A process that a sweep came by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// Which process.
    pub process: ProcessId,
    /// Resident memory that is no file's, in bytes.
    pub anonymous_bytes: u64,
    /// Of that, what it does not share with processes that were forked from the same program: an estimate,
    /// see [`own_bytes`].
    pub own_bytes: u64,
    /// Processes with which it may share memory, itself included.
    pub family: usize,
    /// CPU time that its threads have used.
    pub cpu: Duration,
    /// The program that it runs.
    pub program: Program,
}

/// What tells that a process runs another program than before, or runs it as another user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Its command name.
    pub command: String,
    /// Its effective user.
    pub user: u32,
    layout: Option<Layout>,
}

/// Addresses that the kernel chooses anew at each exec and that forks inherit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Layout {
    start_code: u64,
    start_stack: u64,
    start_brk: u64,
}

impl Program {
    /// Whether the process has executed something since it was `before`.
    pub fn executed_since(&self, before: &Self) -> bool {
        self.layout != before.layout
    }
}

/// What one sweep saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sweep {
    /// Processes there were, kernel threads included.
    pub processes: usize,
    /// Those with enough anonymous memory, by ascending pid.
    pub large: Vec<Sighting>,
}

/// Looks at all processes of the machine (of its pid namespace, to be exact).
#[derive(Debug)]
pub struct Census {
    proc: Dir,
    page_bytes: u64,
    ticks_per_s: f64,
    unfinished: Option<Unfinished>,
}

/// A sweep that ran out of time.
#[derive(Debug)]
struct Unfinished {
    least_bytes: u64,
    processes: usize,
    rest: std::vec::IntoIter<u32>,
    large: Vec<(Stat, u64)>,
}

impl Census {
    /// Opens `/proc`.
    pub fn open() -> Result<Self> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let proc = Dir::open("/proc", flags, Mode::empty()).map_err(|errno| LinuxError::Call {
            call: "opening /proc",
            errno,
        })?;
        Ok(Self {
            proc,
            page_bytes: procfs::page_size(),
            ticks_per_s: procfs::ticks_per_second().max(1) as f64,
            unfinished: None,
        })
    }

    /// The next sweep begins with the first process.
    pub fn give_up(&mut self) {
        self.unfinished = None;
    }

    /// Every process with at least `least_bytes` (over 0) of anonymous memory. Those that end meanwhile
    /// are not among them, nor are kernel threads, which have none. `None` where it was not done at the
    /// deadline: the next call goes on with it.
    ///
    /// # Errors
    /// Processes can't be read at all at the moment (too many open files, say): nobody is known to have
    /// gone, and the next sweep begins with the first process.
    pub fn sweep(&mut self, least_bytes: u64, deadline: Instant) -> Result<Option<Sweep>> {
        let mut sweep = match self.unfinished.take() {
            Some(sweep) => sweep,
            None => self.begin(least_bytes),
        };
        while let Some(pid) = sweep.rest.next() {
            let bytes = unless_gone("reading /proc/PID/statm", self.anonymous_bytes(pid))?;
            if let Some(anonymous_bytes) = bytes.filter(|bytes| *bytes >= sweep.least_bytes) {
                if let Some(stat) = unless_gone("reading /proc/PID/stat", self.stat(pid))? {
                    sweep.large.push((stat, anonymous_bytes));
                }
            }
            if Instant::now() >= deadline {
                self.unfinished = Some(sweep);
                return Ok(None);
            }
        }
        Ok(Some(Sweep {
            processes: sweep.processes,
            large: self.sightings(sweep.large),
        }))
    }

    fn begin(&mut self, least_bytes: u64) -> Unfinished {
        let pids: Vec<u32> = self
            .proc
            .iter()
            .flatten()
            .filter_map(|entry| entry.file_name().to_str().ok()?.parse().ok())
            .collect();
        Unfinished {
            least_bytes,
            processes: pids.len(),
            rest: pids.into_iter(),
            large: Vec::new(),
        }
    }

    fn sightings(&self, large: Vec<(Stat, u64)>) -> Vec<Sighting> {
        let parents = self.small_parents(&large);
        let mut families: HashMap<Layout, Vec<(ProcessId, u64)>> = HashMap::new();
        for (stat, bytes) in large.iter().chain(&parents) {
            if let Some(layout) = stat.program.layout {
                families
                    .entry(layout)
                    .or_default()
                    .push((stat.process, *bytes));
            }
        }
        let mut owned: HashMap<ProcessId, (u64, usize)> = HashMap::new();
        for family in families.values_mut() {
            family.sort_by_key(|(process, _)| (process.start_ticks, process.pid));
            let bytes: Vec<u64> = family.iter().map(|(_, bytes)| *bytes).collect();
            for ((process, _), own) in family.iter().zip(own_bytes(&bytes)) {
                owned.insert(*process, (own, family.len()));
            }
        }
        let sighting = |(stat, anonymous_bytes): (Stat, u64)| {
            let own = owned.get(&stat.process).copied();
            let (own_bytes, family) = own.unwrap_or((anonymous_bytes, 1));
            let seconds = stat.cpu_ticks as f64 / self.ticks_per_s;
            Sighting {
                process: stat.process,
                anonymous_bytes,
                own_bytes,
                family,
                cpu: Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX),
                program: stat.program,
            }
        };
        large.into_iter().map(sighting).collect()
    }

    /// Parents of large processes that are not large themselves: what they share with their children is
    /// little.
    fn small_parents(&self, large: &[(Stat, u64)]) -> Vec<(Stat, u64)> {
        let known: HashSet<u32> = large.iter().map(|(stat, _)| stat.process.pid).collect();
        let parents: HashSet<u32> = large.iter().map(|(stat, _)| stat.parent).collect();
        let unknown = parents.difference(&known).filter(|pid| **pid != 0);
        // A parent that can't be read is taken to be another program.
        let read = |pid: &u32| Some((self.stat(*pid).ok()?, self.anonymous_bytes(*pid).ok()?));
        unknown.filter_map(read).collect()
    }

    /// `resident - shared` of `/proc/PID/statm`.
    fn anonymous_bytes(&self, pid: u32) -> Result<u64, Errno> {
        // Seven numbers of at most 20 digits.
        let pages = anonymous_pages(self.read::<160>(pid, "statm")?.text()).unwrap_or(0);
        Ok(pages.saturating_mul(self.page_bytes))
    }

    fn stat(&self, pid: u32) -> Result<Stat, Errno> {
        // Fifty-two numbers of at most 20 digits, one of them a name.
        let text = self.read::<2048>(pid, "stat")?;
        let mut stat = Stat::parse(text.text()).ok_or(Errno::ESRCH)?;
        // The folder belongs to the effective user even of a process that is not dumpable.
        let folder = fstatat(
            self.proc.as_fd(),
            pid.to_string().as_str(),
            AtFlags::empty(),
        )?;
        stat.program.user = folder.st_uid;
        Ok(stat)
    }

    fn read<const MOST: usize>(&self, pid: u32, file: &str) -> Result<Text<MOST>, Errno> {
        let path = format!("{pid}/{file}");
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let file = openat(self.proc.as_fd(), path.as_str(), flags, Mode::empty())?;
        let mut bytes = [0u8; MOST];
        let length = nix::unistd::read(&file, &mut bytes)?;
        Ok(Text { bytes, length })
    }
}

struct Text<const MOST: usize> {
    bytes: [u8; MOST],
    length: usize,
}

impl<const MOST: usize> Text<MOST> {
    fn text(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// `None` for a process that has ended or that nothing may be known of.
fn unless_gone<T>(call: &'static str, read: Result<T, Errno>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Errno::ENOENT | Errno::ESRCH | Errno::EACCES | Errno::EPERM) => Ok(None),
        Err(errno) => Err(LinuxError::Call { call, errno }),
    }
}

fn anonymous_pages(statm: &[u8]) -> Option<u64> {
    let mut fields = std::str::from_utf8(statm).ok()?.split_ascii_whitespace();
    let resident: u64 = fields.nth(1)?.parse().ok()?;
    let shared: u64 = fields.next()?.parse().ok()?;
    // Two counters that are not read at one time.
    Some(resident.saturating_sub(shared))
}

/// What is used of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stat {
    process: ProcessId,
    parent: u32,
    cpu_ticks: u64,
    program: Program,
}

impl Stat {
    /// Numbers of fields are those of proc_pid_stat(5).
    fn parse(text: &[u8]) -> Option<Self> {
        // A command may contain anything, parentheses too.
        let begins = text.iter().position(|byte| *byte == b'(')?;
        let ends = text.iter().rposition(|byte| *byte == b')')?;
        let pid = std::str::from_utf8(text.get(..begins)?).ok()?;
        let rest = std::str::from_utf8(text.get(ends + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let layout = Layout {
            start_code: number(26)?,
            start_stack: number(28)?,
            start_brk: number(47)?,
        };
        let command = text.get(begins + 1..ends)?;
        Some(Self {
            process: ProcessId {
                pid: pid.trim().parse().ok()?,
                start_ticks: number(22)?,
            },
            parent: fields.get(1)?.parse().ok()?,
            cpu_ticks: number(14)?.saturating_add(number(15)?),
            program: Program {
                command: String::from_utf8_lossy(command).into_owned(),
                user: 0,
                // The kernel writes zero where it hides addresses.
                layout: (layout.start_stack != 0).then_some(layout),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_is_what_no_file_backs() {
        assert_eq!(anonymous_pages(b"2603 1250 900 10 0 400 0\n"), Some(350));
        assert_eq!(
            anonymous_pages(b"0 0 0 0 0 0 0\n"),
            Some(0),
            "a kernel thread"
        );
        assert_eq!(anonymous_pages(b"9 3 4 1 0 1 0\n"), Some(0));
        assert_eq!(anonymous_pages(b""), None);
        assert_eq!(anonymous_pages(b"x y z"), None);
    }

    const STAT: &str = "42 (a) b (c) S 7 42 42 0 -1 4194304 111 0 0 0 30 12 0 0 20 0 1 0 9876 1000 50 \
        18446744073709551615 1111 2222 3333 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 4444 5555 6666 7777 8888 9999 1010 0";

    #[test]
    fn a_process_is_read_whatever_its_command_is_called() {
        let stat = Stat::parse(STAT.as_bytes()).expect("is right");
        assert_eq!(stat.process.pid, 42);
        assert_eq!(stat.process.start_ticks, 9876);
        assert_eq!((stat.parent, stat.cpu_ticks), (7, 42));
        assert_eq!(stat.program.command, "a) b (c");
        let layout = stat.program.layout.expect("is shown");
        let addresses = [layout.start_code, layout.start_stack, layout.start_brk];
        assert_eq!(addresses, [1111, 3333, 6666]);
        assert_eq!(Stat::parse(b"42 (cut off) S 1"), None);
        assert_eq!(Stat::parse(b""), None);
    }

    #[test]
    fn hidden_addresses_make_no_family() {
        let hidden = STAT.replace("3333", "0");
        let stat = Stat::parse(hidden.as_bytes()).expect("is right");
        assert_eq!(stat.program.layout, None);
    }

    #[test]
    fn each_sweep_finds_this_process_by_its_memory() {
        let memory = vec![1u8; 16 << 20];
        let mut census = Census::open().expect("/proc is there");
        for _ in 0..2 {
            let sweep = whole_sweep(&mut census, 8 << 20);
            let is_own = |seen: &&Sighting| seen.process.pid == std::process::id();
            let own = sweep.large.iter().find(is_own).expect("is found");
            assert!(own.anonymous_bytes >= memory.len() as u64);
            assert_eq!(own.program.user, nix::unistd::geteuid().as_raw());
            assert!(own.process.start_ticks > 0);
            assert!(sweep.processes >= sweep.large.len());
        }
        let nobody = whole_sweep(&mut census, u64::MAX);
        assert!(nobody.large.is_empty());
    }

    fn whole_sweep(census: &mut Census, least_bytes: u64) -> Sweep {
        let deadline = Instant::now() + Duration::from_secs(60);
        let found = census.sweep(least_bytes, deadline);
        found.expect("it can be read").expect("a minute is enough")
    }

    #[test]
    fn a_sweep_without_time_looks_at_one_process_a_call() {
        let _memory = vec![1u8; 16 << 20];
        let mut census = Census::open().expect("/proc is there");
        let mut calls = 0;
        let sweep = loop {
            calls += 1;
            let found = census.sweep(8 << 20, Instant::now());
            if let Some(sweep) = found.expect("it can be read") {
                break sweep;
            }
        };
        assert_eq!(calls, sweep.processes + 1);
        let own = |seen: &Sighting| seen.process.pid == std::process::id();
        assert!(sweep.large.iter().any(own));
    }

    fn seen(pid: u32, parent: u32, layout: u64) -> Stat {
        let layout = Layout {
            start_code: 1,
            start_stack: layout,
            start_brk: 1,
        };
        Stat {
            process: ProcessId {
                pid,
                start_ticks: 1,
            },
            parent,
            cpu_ticks: 0,
            program: Program {
                layout: Some(layout),
                ..Program::default()
            },
        }
    }

    #[test]
    fn forks_count_what_they_share_once_and_other_programs_keep_theirs() {
        let census = Census::open().expect("/proc is there");
        let large = vec![
            (seen(10, 0, 1), 100),
            (seen(11, 10, 1), 160),
            (seen(12, 0, 2), 70),
        ];
        let own: Vec<(u64, usize)> = census
            .sightings(large)
            .iter()
            .map(|it| (it.own_bytes, it.family))
            .collect();
        assert_eq!(own, [(100, 2), (110, 2), (70, 1)]);
    }
}
