//! CPU time that a program's work has cost.

use super::Program;
use crate::error::BenchError;
use hawkeye_linux::LinuxError;
use hawkeye_linux::processes::scheduled::Scheduled;
use nix::errno::Errno;
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// Of one program.
pub(super) struct CpuClock {
    pid: u32,
    process: ClockId,
    in_one_thread: bool,
}

/// What it showed.
pub(super) struct Reading {
    /// CPU time of all threads, those that have ended included.
    all: Duration,
    /// CPU time by thread, where one does the work.
    threads: BTreeMap<String, Duration>,
}

impl CpuClock {
    /// # Errors
    /// The process is gone.
    pub(super) fn of(program: &dyn Program) -> Result<Self, BenchError> {
        let pid = program.pid();
        Ok(Self {
            pid,
            process: clock_getcpuclockid(Pid::from_raw(pid as i32)).map_err(unreadable)?,
            in_one_thread: program.works_in_one_thread(),
        })
    }

    /// # Errors
    /// The process is gone.
    pub(super) fn read(&self) -> Result<Reading, BenchError> {
        let threads = match self.in_one_thread {
            true => threads(self.pid)?,
            false => BTreeMap::new(),
        };
        Ok(Reading {
            all: self.process.now().map_err(unreadable)?.into(),
            threads,
        })
    }
}

impl Reading {
    /// CPU time of the work since an earlier reading: where one thread does it, without what the others took. memcached's tidy up for
    /// seconds at a time, whoever asks it. The thread is the one that has worked most since the program's start.
    pub(super) fn since(&self, before: &Self) -> Duration {
        let works = self.threads.iter().max_by_key(|(_, ran)| **ran);
        let works = works.map(|(thread, _)| thread);
        let others = self
            .threads
            .iter()
            .filter(|(thread, _)| Some(*thread) != works);
        let others: Duration = others
            .map(|(thread, now)| {
                let before = before.threads.get(thread).copied().unwrap_or_default();
                now.saturating_sub(before)
            })
            .sum();
        self.all.saturating_sub(before.all).saturating_sub(others)
    }
}

/// CPU time of each thread of a process that there is.
fn threads(pid: u32) -> Result<BTreeMap<String, Duration>, BenchError> {
    let folder = format!("/proc/{pid}/task");
    let all = fs::read_dir(&folder).map_err(LinuxError::file("reading", &folder))?;
    let of = |task: std::io::Result<fs::DirEntry>| {
        let task = task.ok()?;
        let line = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let thread = task.file_name().into_string().ok()?;
        Some((thread, Scheduled::parse(&line)?.ran))
    };
    // One that has ended meanwhile takes no more.
    let found: BTreeMap<_, _> = all.filter_map(of).collect();
    if found.is_empty() {
        let message = format!("the kernel does not say how long threads of process {pid} ran");
        return Err(BenchError::Impossible(message));
    }
    Ok(found)
}

fn unreadable(errno: Errno) -> LinuxError {
    LinuxError::Call {
        call: "reading a process's CPU time",
        errno,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(all_ms: u64, threads_ms: &[(&str, u64)]) -> Reading {
        let ms = Duration::from_millis;
        let thread = |(thread, took): &(&str, u64)| ((*thread).to_owned(), ms(*took));
        Reading {
            all: ms(all_ms),
            threads: threads_ms.iter().map(thread).collect(),
        }
    }

    #[test]
    fn what_other_threads_take_is_left_out() {
        // The first was not seen for the last of its 30 ms, and the second took more; the third began meanwhile; another has ended.
        let before = reading(100, &[("1", 50), ("2", 10)]);
        let after = reading(200, &[("1", 77), ("2", 60), ("3", 10)]);
        assert_eq!(after.since(&before), Duration::from_millis(40));
    }

    #[test]
    fn where_many_threads_work_all_count() {
        let took = reading(200, &[]).since(&reading(50, &[]));
        assert_eq!(took, Duration::from_millis(150));
    }

    #[test]
    fn threads_of_a_process_are_told_apart() {
        let (tell, told) = std::sync::mpsc::channel();
        let asleep = std::thread::spawn(move || {
            let thread = nix::unistd::gettid().to_string();
            while hawkeye_linux::processes::process::thread_cpu() < Duration::from_millis(40) {}
            tell.send(thread).expect("is heard");
            std::thread::park();
        });
        let thread = told.recv().expect("has worked");
        let seen = threads(std::process::id()).expect("reads");
        assert!(seen.len() >= 2);
        // It may still be on its core: then the last tick is missing.
        assert!(seen[&thread] >= Duration::from_millis(20), "{seen:?}");
        asleep.thread().unpark();
        asleep.join().expect("ends");
    }
}
