//! Programs that speak the workloads' line protocol.

use super::Program;
use crate::error::BenchError;
use crate::live::Host;
use hawkeye_workload::{Request, Workload};
use std::ffi::OsStr;
use std::process::Command;
use std::time::Duration;

/// One of them.
pub(super) struct Reader {
    workload: Workload,
    pid: u32,
}

/// How often a workload of ours counts aloud, and that it waits until it is told to work.
pub(super) const COUNTING: &str = "--report-ms 20 --wait";

/// Starts a workload of ours, told to wait.
pub(super) fn start(host: &Host, words: &str, mib: u64) -> Result<Reader, BenchError> {
    let words = format!("{words} --mib {mib} --pages base {COUNTING}");
    Reader::ready(host.start(&words)?)
}

/// The command for one that is not ours.
pub(super) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    hawkeye_linux::stop::let_signals_through(&mut command);
    command
}

impl Reader {
    /// Waits until the program has its data; it must not begin to work by itself.
    pub(super) fn ready(mut workload: Workload) -> Result<Self, BenchError> {
        let pid = workload.wait_ready()?.pid;
        Ok(Self::of(workload, pid))
    }

    /// One that is known to have them.
    pub(super) fn of(workload: Workload, pid: u32) -> Self {
        Self { workload, pid }
    }

    /// Tells it something and waits until it has answered.
    pub(super) fn request(
        &mut self,
        request: Request,
        timeout: Duration,
    ) -> Result<(), BenchError> {
        Ok(self.workload.request(request, timeout).map(drop)?)
    }
}

impl Program for Reader {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn go(&mut self) -> Result<(), BenchError> {
        Ok(self.workload.command(Request::Go)?)
    }

    fn stop(&mut self) -> Result<(), BenchError> {
        Ok(self.workload.command(Request::Stop)?)
    }

    fn rate(&mut self, length: Duration, mark: &mut dyn FnMut()) -> Result<f64, BenchError> {
        Ok(self.workload.measure_marked(length, mark)?)
    }
}
