//! Programs that use the workloads' line protocol: our workloads, scripts, and the clients of
//! servers.

use super::running::Running;
use crate::live::prelude::*;
use hawkeye_workload::{HandleError, Latencies, Pace};
use std::ffi::OsStr;
use tempfile::TempDir;

/// How long a client may take to report.
const ANSWER: Duration = Duration::from_secs(30);

pub(super) struct Reader {
    // Dropped first: a client must not outlive its server.
    workload: Workload,
    pid: u32,
    /// For a program that reads requests only between two pieces of its work: how long a piece may
    /// take.
    pub(super) last_piece: Option<Duration>,
    /// The measured server and its folder, if the workload is a client.
    server: Option<(Running, TempDir)>,
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
            server: None,
        }
    }

    /// Wraps a server and its client, once the client has stored all data.
    pub(super) fn client_of(server: Running, folder: TempDir, client: Workload) -> Result<Self> {
        Ok(Self {
            pid: server.id(),
            server: Some((server, folder)),
            ..Self::ready(client)?
        })
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

    fn works_in_one_thread(&self) -> bool {
        self.server.is_some()
    }

    fn latencies(&mut self, pace: Pace) -> Result<Option<Latencies>> {
        if self.server.is_none() {
            return Ok(None);
        }
        let at_most = pace.at_most() + ANSWER;
        match self.workload.request(Request::Latencies(pace), at_most)? {
            Event::Answered(latencies) => Ok(Some(latencies)),
            other => Err(HandleError::Protocol(format!("{other:?}")).into()),
        }
    }
}
