//! Programs that use the workloads' line protocol.

use crate::live::prelude::*;
use std::ffi::OsStr;

pub(super) struct Reader {
    workload: Workload,
    pid: u32,
    /// For a program that reads requests only between two pieces of its work: how long a piece may
    /// take.
    pub(super) last_piece: Option<Duration>,
}

/// Makes one of our workloads report its count at this interval, and wait for a request before it
/// works.
pub(super) const COUNTING: &str = "--report-ms 20 --wait";

/// Starts one of our workloads, which waits for a request.
pub(super) fn start(host: &Host, words: &str, mib: u64) -> Result<Reader> {
    let words = format!("{words} --mib {mib} --pages base {COUNTING}");
    Reader::ready(host.start(&words)?)
}

/// The command for a program that is not ours.
pub(super) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    hawkeye_linux::stop::let_signals_through(&mut command);
    command
}

impl Reader {
    /// Waits until the program has its data; it must not start to work by itself.
    pub(super) fn ready(mut workload: Workload) -> Result<Self> {
        let pid = workload.wait_ready()?.pid;
        Ok(Self::of(workload, pid))
    }

    /// Wraps a program that is known to have its data.
    pub(super) fn of(workload: Workload, pid: u32) -> Self {
        Self {
            workload,
            pid,
            last_piece: None,
        }
    }
}

impl Program for Reader {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn go(&mut self) -> Result<()> {
        Ok(self.workload.command(Request::Go)?)
    }

    fn stop(&mut self) -> Result<()> {
        self.workload.command(Request::Stop)?;
        if let Some(at_most) = self.last_piece {
            // The program answers as soon as it has paused.
            self.workload.request(Request::Rss, at_most)?;
        }
        Ok(())
    }

    fn rate(&mut self, length: Duration, mark: &mut dyn FnMut()) -> Result<f64> {
        Ok(self.workload.measure_marked(length, mark)?)
    }
}
