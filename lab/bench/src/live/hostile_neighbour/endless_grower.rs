//! A program in a cgroup that grows without end in memory that it hardly uses.

use super::flag_set_on_drop::FlagSetOnDrop;
use crate::live::memory_cgroup::MemoryCgroup;
use crate::live::prelude::*;
use crate::live::programs::send_signal;
use crate::live::running_daemon::RunningDaemon;
use hawkeye_linux::processes::process::cpu_time;
use hawkeye_workload::WorkloadProcessError;
use nix::sys::signal::Signal;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The program of [`EndlessGrower::run_beside`], and whether it should grow.
#[derive(Debug, Default)]
pub(super) struct EndlessGrower {
    growing: AtomicBool,
    over: AtomicBool,
    /// That of the program that runs now.
    pid: AtomicU32,
    /// CPU time of all programs so far, in nanoseconds.
    cpu_ns: AtomicU64,
}

/// Time between two checks of what the program should do.
const TICK: Duration = Duration::from_millis(20);

impl EndlessGrower {
    pub(super) const LIMIT_MIB: u64 = 1024;
    pub(super) const GROWS_TO_MIB: u64 = 4096;
    pub(super) const MB_PER_S: u64 = 500;
    /// Memory before it grows: enough for a daemon to manage it.
    const START_MIB: u64 = 128;

    /// Runs `work` beside the program, which is stopped at first. Returns how often the kernel
    /// killed the program. It is started again each time. Where a daemon runs, the program does not
    /// grow before it is managed.
    pub(super) fn run_beside(
        host: &BenchHost,
        daemon: Option<&RunningDaemon>,
        work: impl FnOnce(&Self) -> BenchResult<()>,
    ) -> BenchResult<u64> {
        let group = MemoryCgroup::new("hawkeye-bench-neighbour", Self::LIMIT_MIB << 20)?;
        let program = host.workload_program_path();
        let control = Self::default();
        let mut first = Some(start_stopped(program, &group, daemon)?);
        std::thread::scope(|scope| {
            let growing = scope.spawn(|| -> BenchResult<()> {
                while !control.over.load(Ordering::Relaxed) {
                    let grower = match first.take() {
                        Some(grower) => grower,
                        None => start_stopped(program, &group, daemon)?,
                    };
                    control.serve_until_killed(grower)?;
                }
                Ok(())
            });
            let ends = FlagSetOnDrop(&control.over);
            let worked = work(&control);
            drop(ends);
            worked.and(join_or_resume_panic(growing))
        })?;
        group.count_oom_kills()
    }

    /// Lets it grow, or stops it.
    pub(super) fn set_growing(&self, growing: bool) {
        self.growing.store(growing, Ordering::Relaxed);
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid.load(Ordering::Relaxed)
    }

    /// CPU time of the program, and of those that were killed before it.
    pub(super) fn cpu_time(&self) -> Duration {
        Duration::from_nanos(self.cpu_ns.load(Ordering::Relaxed))
    }

    /// Returns when the program was killed, or when all is over.
    fn serve_until_killed(&self, mut grower: WorkloadProcess) -> BenchResult<()> {
        self.pid.store(grower.pid(), Ordering::Relaxed);
        let (mut running, mut counted) = (false, Duration::ZERO);
        while !self.over.load(Ordering::Relaxed) {
            // Of one that has just been killed, at most a tick is missing.
            let now = cpu_time(grower.pid()).unwrap_or(counted);
            let new = now.saturating_sub(counted).as_nanos() as u64;
            self.cpu_ns.fetch_add(new, Ordering::Relaxed);
            counted = now;
            let growing = self.growing.load(Ordering::Relaxed);
            if growing != running {
                running = growing;
                let signal = if growing { Signal::SIGCONT } else { Signal::SIGSTOP };
                // If it has just been killed, the next event says so.
                let _ = send_signal(grower.pid(), signal);
            }
            match grower.next_event(TICK) {
                Err(WorkloadProcessError::Ended) => return Ok(()),
                Ok(_) | Err(WorkloadProcessError::Timeout(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn start_stopped(
    program: &Path,
    group: &MemoryCgroup,
    daemon: Option<&RunningDaemon>,
) -> BenchResult<WorkloadProcess> {
    let words = format!(
        "grow --endless --mib {} --start-mib {} --mb-per-s {}",
        EndlessGrower::GROWS_TO_MIB,
        EndlessGrower::START_MIB,
        EndlessGrower::MB_PER_S,
    );
    let mut grower = group.start_workload(program, &words)?;
    let pid = grower.wait_ready()?.pid;
    if let Some(daemon) = daemon {
        daemon.wait_until_managed(pid)?;
    }
    let stopped = send_signal(pid, Signal::SIGSTOP);
    stopped.map_err(|errno| impossible!("stopping a program: {errno}"))?;
    grower.send_request(WorkloadRequest::Go)?;
    Ok(grower)
}
