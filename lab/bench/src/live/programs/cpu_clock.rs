//! CPU time of a program's work.

use super::MeasuredProgram;
use crate::error::{BenchResult, bail};
use hawkeye_linux::LinuxError;
use hawkeye_linux::processes::schedstat::SchedStat;
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

const READING: &str = "reading a process's CPU time";

pub(super) struct ProgramCpuClock {
    pid: u32,
    process: ClockId,
    in_one_thread: bool,
}

pub(super) struct CpuTimeReading {
    /// CPU time of all threads, including ended ones.
    all: Duration,
    /// CPU time by thread, for programs where one thread does the work.
    threads: BTreeMap<String, Duration>,
}

impl ProgramCpuClock {
    pub(super) fn for_program(program: &dyn MeasuredProgram) -> BenchResult<Self> {
        let pid = program.pid();
        let clock = clock_getcpuclockid(Pid::from_raw(pid as i32));
        Ok(Self {
            pid,
            process: clock.map_err(LinuxError::wrap_errno(READING))?,
            in_one_thread: program.works_in_one_thread(),
        })
    }

    pub(super) fn read(&self) -> BenchResult<CpuTimeReading> {
        let threads = match self.in_one_thread {
            true => cpu_time_by_thread(self.pid)?,
            false => BTreeMap::new(),
        };
        Ok(CpuTimeReading {
            all: self.process.now().map_err(LinuxError::wrap_errno(READING))?.into(),
            threads,
        })
    }
}

impl CpuTimeReading {
    /// CPU time of the work since an earlier reading. Where one thread does the work, the time of
    /// the others is left out: memcached's other threads tidy up for seconds at a time, independent
    /// of its load. The working thread is the one with the most CPU time since the program's start.
    pub(super) fn work_cpu_time_since(&self, before: &Self) -> Duration {
        let works = self.threads.iter().max_by_key(|(_, ran)| **ran);
        let works = works.map(|(thread, _)| thread);
        let others = self.threads.iter().filter(|(thread, _)| Some(*thread) != works);
        let others: Duration = others
            .map(|(thread, now)| {
                let before = before.threads.get(thread).copied().unwrap_or_default();
                now.saturating_sub(before)
            })
            .sum();
        self.all.saturating_sub(before.all).saturating_sub(others)
    }
}

fn cpu_time_by_thread(pid: u32) -> BenchResult<BTreeMap<String, Duration>> {
    let folder = format!("/proc/{pid}/task");
    let all = fs::read_dir(&folder).map_err(LinuxError::wrap_io_error("reading", &folder))?;
    let of = |task: std::io::Result<fs::DirEntry>| {
        let task = task.ok()?;
        let line = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let thread = task.file_name().into_string().ok()?;
        Some((thread, SchedStat::parse(&line)?.ran))
    };
    // A thread that has ended meanwhile uses no more time.
    let found: BTreeMap<_, _> = all.filter_map(of).collect();
    if found.is_empty() {
        bail!("the kernel does not report how long threads of process {pid} ran");
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(all_ms: u64, threads_ms: &[(&str, u64)]) -> CpuTimeReading {
        let ms = Duration::from_millis;
        let thread = |(thread, took): &(&str, u64)| ((*thread).to_owned(), ms(*took));
        CpuTimeReading { all: ms(all_ms), threads: threads_ms.iter().map(thread).collect() }
    }

    #[test]
    fn cpu_time_of_other_threads_is_left_out() {
        // The last 30 ms of the first thread are missing, and the second used more; the third
        // started meanwhile; another one has ended.
        let before = reading(100, &[("1", 50), ("2", 10)]);
        let after = reading(200, &[("1", 77), ("2", 60), ("3", 10)]);
        assert_eq!(after.work_cpu_time_since(&before), Duration::from_millis(40));
    }

    #[test]
    fn where_many_threads_work_all_count() {
        let took = reading(200, &[]).work_cpu_time_since(&reading(50, &[]));
        assert_eq!(took, Duration::from_millis(150));
    }

    #[test]
    fn each_thread_of_a_process_has_its_own_cpu_time() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let asleep = std::thread::spawn(move || {
            let thread = nix::unistd::gettid().to_string();
            while hawkeye_linux::processes::process::calling_thread_cpu_time()
                < Duration::from_millis(40)
            {}
            sender.send(thread).expect("is received");
            std::thread::park();
        });
        let thread = receiver.recv().expect("has worked");
        let seen = cpu_time_by_thread(std::process::id()).expect("reads");
        assert!(seen.len() >= 2);
        // The thread may still run: then the last tick is missing.
        assert!(seen[&thread] >= Duration::from_millis(20), "{seen:?}");
        asleep.thread().unpark();
        asleep.join().expect("ends");
    }
}
