//! A program that takes a share of a core and does not grow. All of its memory is in use.

use super::flag_set_on_drop::FlagSetOnDrop;
use crate::live::memory_cgroup::MemoryCgroup;
use crate::live::prelude::*;
use crate::live::programs::send_signal;
use hawkeye_linux::processes::process::cpu_time;
use nix::sys::signal::Signal;
use std::sync::atomic::{AtomicBool, Ordering};

/// The program, which is stopped except in [`SteadyNeighbour::run_beside`].
pub(super) struct SteadyNeighbour {
    // Dropped first: the cgroup must be empty then.
    _reader: WorkloadProcess,
    pid: u32,
    _group: MemoryCgroup,
}

/// Time between two checks of how much it has used.
const TICK: Duration = Duration::from_millis(5);

impl SteadyNeighbour {
    /// More than caches hold: one that grows goes through new memory, too.
    pub(super) const MIB: u64 = 128;

    pub(super) fn start_stopped(host: &BenchHost) -> BenchResult<Self> {
        let group = MemoryCgroup::without_limit("hawkeye-bench-control")?;
        let words = format!("sequential --mib {} --pages default --quiet", Self::MIB);
        let mut reader = group.start_workload(host.workload_program_path(), &words)?;
        let pid = reader.wait_ready()?.pid;
        send(pid, Signal::SIGSTOP)?;
        Ok(Self { _reader: reader, pid, _group: group })
    }

    pub(super) fn cpu_time(&self) -> BenchResult<Duration> {
        Ok(cpu_time(self.pid)?)
    }

    /// Lets it use this share of a core while `work` runs.
    pub(super) fn run_beside<T>(
        &self,
        share: f64,
        work: impl FnOnce() -> BenchResult<T>,
    ) -> BenchResult<T> {
        let (pid, over) = (self.pid, AtomicBool::new(false));
        std::thread::scope(|scope| {
            let pacing = scope.spawn(|| keep_to_share(pid, share, &over));
            let ends = FlagSetOnDrop(&over);
            let done = work();
            drop(ends);
            join_or_resume_panic(pacing).and(done)
        })
    }
}

/// Stops the process whenever it has used more than this share of a core since the call, and at the
/// end.
fn keep_to_share(pid: u32, share: f64, over: &AtomicBool) -> BenchResult<()> {
    let (begun, before) = (Instant::now(), cpu_time(pid)?);
    let mut running = false;
    while !over.load(Ordering::Relaxed) {
        let used = cpu_time(pid)?.saturating_sub(before);
        let behind = used < begun.elapsed().mul_f64(share);
        if behind != running {
            running = behind;
            send(pid, if behind { Signal::SIGCONT } else { Signal::SIGSTOP })?;
        }
        std::thread::sleep(TICK);
    }
    send(pid, Signal::SIGSTOP)
}

fn send(pid: u32, signal: Signal) -> BenchResult<()> {
    let sent = send_signal(pid, signal);
    sent.map_err(|errno| impossible!("sending {signal} to the control neighbour: {errno}"))
}
